"""The clauses of schema changes that Headgate knows, and the strategies that support each.

This table is the allow-list: a clause that is not in it is refused. docs/reference/clauses.md is made from it, and the
readers of both grammars (mariadb.py, postgresql.py) refer to its rows by their keys.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

DialectName = Literal["mysql", "postgres"]


class Support(StrEnum):
    """Which strategies carry a clause out."""

    COPIED = "online"
    """Every strategy, including those that copy the table."""
    DIRECT = "direct only"
    REFUSED = "refused"


class Clause(msgspec.Struct, frozen=True):
    """One kind of clause. ``form`` shows it in the documentation and in errors.

    ``why`` explains, for a clause that is not copied, what is in the way and what to do instead; for others, what
    limits it. ``is_rehearsed``: it can be tried on an empty copy of the table, because it names nothing that a copy
    does not have.
    """

    key: str
    form: str
    support: Support
    why: str = ""
    is_rehearsed: bool = True


def _copied(key: str, form: str, why: str = "") -> Clause:
    return Clause(key, form, Support.COPIED, why)


def _direct(key: str, form: str, why: str) -> Clause:
    return Clause(key, form, Support.DIRECT, why)


def _untried(key: str, form: str, why: str) -> Clause:
    """A clause for ``direct`` only; only the server can determine whether it can be done."""
    return Clause(key, form, Support.DIRECT, why, is_rehearsed=False)


def _refused(key: str, form: str, why: str) -> Clause:
    return Clause(key, form, Support.REFUSED, why)


_CATALOGUE: Final = "It changes the catalogue only, so there is nothing to copy."
_BY_YOURSELF: Final = "It is not a schema change. Run it yourself."
_SECOND: Final = "It names a second table, and a migration changes exactly one. Run it yourself."
_RENAME: Final = "It takes no time. Run it yourself, while no migration of the table is pending."
_FOREIGN: Final = "A foreign key ties the table to another one, so a copy cannot take its place."
_PARTITION: Final = "It changes single partitions, which the server does without copying the table."
_FILE: Final = "It names a file or a server."
_KEY: Final = "pt-osc and gh-ost need a unique key that exists before and after; online does not."

MARIADB: Final = (
    _copied("add-column", "ADD [COLUMN] [IF NOT EXISTS] c TYPE … [FIRST | AFTER d]"),
    _copied("modify-column", "MODIFY [COLUMN] [IF EXISTS] c TYPE … [FIRST | AFTER d]"),
    _copied("change-column", "CHANGE [COLUMN] [IF EXISTS] c d TYPE … [FIRST | AFTER e]"),
    _copied("rename-column", "RENAME COLUMN [IF EXISTS] c TO d", "pt-osc refuses it: write CHANGE COLUMN."),
    _copied("drop-column", "DROP [COLUMN] [IF EXISTS] c"),
    _copied("column-default", "ALTER [COLUMN] c SET DEFAULT … | DROP DEFAULT"),
    _copied("add-index", "ADD {INDEX | KEY | FULLTEXT … | SPATIAL …} [name] (…)"),
    _copied("add-unique", "ADD [CONSTRAINT name] UNIQUE [INDEX | KEY] [name] (…)"),
    _direct(
        "add-unique-prefix",
        "ADD UNIQUE … (c(10), …)",
        "A unique key over the beginning of a column refuses rows that are equal only there.",
    ),
    _copied("add-primary", "ADD [CONSTRAINT name] PRIMARY KEY (…)", _KEY),
    _copied("drop-primary", "DROP PRIMARY KEY", _KEY),
    _copied("drop-index", "DROP {INDEX | KEY} [IF EXISTS] name"),
    _copied("rename-index", "RENAME {INDEX | KEY} [IF EXISTS] a TO b"),
    _direct("ignore-index", "ALTER {INDEX | KEY} [IF EXISTS] name [NOT] IGNORED", _CATALOGUE),
    _copied("add-check", "ADD [CONSTRAINT name] CHECK (…)"),
    _copied(
        "drop-constraint",
        "DROP CONSTRAINT [IF EXISTS] name",
        "pt-osc refuses a table with named constraints, because it would change their names.",
    ),
    _direct("add-foreign", "ADD [CONSTRAINT name] FOREIGN KEY …, or REFERENCES in a column's definition", _FOREIGN),
    _direct("drop-foreign", "DROP FOREIGN KEY [IF EXISTS] name", _FOREIGN),
    _copied("convert-charset", "CONVERT TO CHARACTER SET x [COLLATE y]"),
    _copied("default-charset", "[DEFAULT] CHARACTER SET = x, [DEFAULT] COLLATE = y"),
    _copied("engine", "ENGINE = InnoDB"),
    _direct(
        "other-engine",
        "ENGINE = {Aria | MyISAM | MEMORY | ARCHIVE | CSV | ROCKSDB}",
        "Only InnoDB tables are copied under load.",
    ),
    _copied(
        "storage",
        "ROW_FORMAT, KEY_BLOCK_SIZE, PAGE_COMPRESSED, PAGE_COMPRESSION_LEVEL, ENCRYPTED, ENCRYPTION_…, STATS_… = …",
    ),
    _copied("table-comment", "COMMENT = '…'"),
    _copied("force", "FORCE"),
    _direct(
        "counter",
        "AUTO_INCREMENT = …",
        "A copy continues the table's counter, so the number would be overwritten.",
    ),
    _direct(
        "hints",
        "AVG_ROW_LENGTH, CHECKSUM, MAX_ROWS, MIN_ROWS, PACK_KEYS, PAGE_CHECKSUM, TRANSACTIONAL = …",
        _CATALOGUE,
    ),
    _direct("order-by", "ORDER BY c, …", "A copy is filled in the order of its key."),
    _direct(
        "algorithm",
        "ALGORITHM = …, LOCK = …, ALTER ONLINE TABLE",
        "They control how the server alters the table itself.",
    ),
    _copied("partition-by", "PARTITION BY …"),
    _copied("remove-partitioning", "REMOVE PARTITIONING"),
    _direct("add-partition", "ADD PARTITION …", _PARTITION),
    _direct("drop-partition", "DROP PARTITION …", _PARTITION),
    _direct("coalesce-partition", "COALESCE PARTITION …", _PARTITION),
    _direct("reorganize-partition", "REORGANIZE PARTITION …", _PARTITION),
    _direct("versioning", "{ADD | DROP} SYSTEM VERSIONING, PERIOD FOR …", "A copy does not have the rows' history."),
    _direct("create-table", "CREATE TABLE [IF NOT EXISTS] t (…)", "There is nothing to copy."),
    _direct("create-like", "CREATE TABLE [IF NOT EXISTS] t LIKE u", "There is nothing to copy."),
    _direct("drop-table", "DROP TABLE [IF EXISTS] t", "There is nothing to copy."),
    _refused(
        "executable-comment",
        "/*! … */, /*M! … */",
        "The server executes it. Write its contents as a part of the statement.",
    ),
    _refused("rename-table", "RENAME [TO] u", _RENAME),
    _refused("exchange-partition", "EXCHANGE PARTITION p WITH TABLE u", _SECOND),
    _refused("convert-partition", "CONVERT {TABLE u TO PARTITION … | PARTITION p TO TABLE u}", _SECOND),
    _refused("union", "UNION = (u, v), INSERT_METHOD = …", _SECOND),
    _refused("drop-tables", "DROP TABLE t, u", "It drops several tables. Submit one migration for each."),
    _refused(
        "create-select",
        "CREATE TABLE t … SELECT …",
        "It copies rows of other tables. Create the table, then fill it yourself.",
    ),
    _refused("create-replace", "CREATE OR REPLACE TABLE", "It drops the table that exists. Submit DROP TABLE first."),
    _refused("temporary", "TEMPORARY", "A temporary table exists in its own session only."),
    _refused("truncate-partition", "TRUNCATE PARTITION …", _BY_YOURSELF),
    _refused("maintain-partition", "{ANALYZE | CHECK | OPTIMIZE | REBUILD | REPAIR} PARTITION …", _BY_YOURSELF),
    _refused("tablespace", "{DISCARD | IMPORT} [PARTITION …] TABLESPACE", _FILE),
    _refused("directory", "DATA DIRECTORY, INDEX DIRECTORY, CONNECTION = …", _FILE),
    _refused(
        "elsewhere-engine",
        "ENGINE = …, any other (SPIDER, FEDERATED, CONNECT, S3, BLACKHOLE, …)",
        "It does not keep the rows on this server, and may take an address from a comment. Run it yourself.",
    ),
    _refused("keys-enabled", "{DISABLE | ENABLE} KEYS", "It concerns MyISAM tables. Run it yourself."),
    _refused("ignore", "ALTER IGNORE TABLE", "It deletes rows that do not fit. Leave out IGNORE."),
    _refused("wait", "WAIT n, NOWAIT", "Use --cutover-threshold instead."),
)

POSTGRESQL: Final = (
    _copied("AT_AddColumn", "ADD [COLUMN] [IF NOT EXISTS] c type …"),
    _copied("AT_DropColumn", "DROP [COLUMN] [IF EXISTS] c"),
    _copied("rename-column", "RENAME [COLUMN] c TO d"),
    _copied("AT_AlterColumnType", "ALTER [COLUMN] c [SET DATA] TYPE type [COLLATE …]"),
    _direct(
        "type-using",
        "ALTER [COLUMN] c TYPE type USING …",
        "A copy converts values as the server does, not by an expression.",
    ),
    _copied("AT_ColumnDefault", "ALTER [COLUMN] c {SET DEFAULT … | DROP DEFAULT}"),
    _copied("AT_SetNotNull", "ALTER [COLUMN] c SET NOT NULL"),
    _copied("AT_DropNotNull", "ALTER [COLUMN] c DROP NOT NULL"),
    _copied("AT_SetExpression", "ALTER [COLUMN] c SET EXPRESSION AS (…)"),
    _direct("AT_DropExpression", "ALTER [COLUMN] c DROP EXPRESSION", _CATALOGUE),
    _copied("AT_AddIdentity", "ALTER [COLUMN] c ADD GENERATED … AS IDENTITY"),
    _copied("AT_DropIdentity", "ALTER [COLUMN] c DROP IDENTITY"),
    _copied("AT_SetIdentity", "ALTER [COLUMN] c SET GENERATED …, RESTART"),
    _direct("AT_SetStatistics", "ALTER [COLUMN] c SET STATISTICS n", _CATALOGUE),
    _direct("AT_SetOptions", "ALTER [COLUMN] c SET (n_distinct = …)", _CATALOGUE),
    _direct("AT_ResetOptions", "ALTER [COLUMN] c RESET (…)", _CATALOGUE),
    _direct("AT_SetStorage", "ALTER [COLUMN] c SET STORAGE …", _CATALOGUE),
    _direct("AT_SetCompression", "ALTER [COLUMN] c SET COMPRESSION …", _CATALOGUE),
    _copied("add-check", "ADD [CONSTRAINT name] CHECK (…)"),
    _copied("add-unique", "ADD [CONSTRAINT name] UNIQUE (…)"),
    _copied("add-primary", "ADD [CONSTRAINT name] PRIMARY KEY (…)"),
    _untried("add-foreign", "ADD [CONSTRAINT name] FOREIGN KEY …, or REFERENCES in a column's definition", _FOREIGN),
    _direct("add-exclusion", "ADD [CONSTRAINT name] EXCLUDE …", "Rows that a copy refuses are not known in advance."),
    _untried(
        "add-using-index",
        "ADD [CONSTRAINT name] {UNIQUE | PRIMARY KEY} USING INDEX i",
        "The index belongs to the table, not to a copy.",
    ),
    _direct("add-not-valid", "ADD [CONSTRAINT name] … NOT VALID", _CATALOGUE),
    Clause("AT_DropConstraint", "DROP CONSTRAINT [IF EXISTS] name", Support.COPIED, is_rehearsed=False),
    _untried("AT_AlterConstraint", "ALTER CONSTRAINT name …", _CATALOGUE),
    _untried("AT_ValidateConstraint", "VALIDATE CONSTRAINT name", "It reads the table and does not hold it."),
    _untried("rename-constraint", "RENAME CONSTRAINT a TO b", _CATALOGUE),
    _copied("AT_SetRelOptions", "SET (fillfactor = …)"),
    _copied("AT_ResetRelOptions", "RESET (fillfactor)"),
    _direct("AT_SetLogged", "SET LOGGED", "Whether a table is logged is a property of the table itself."),
    _direct("AT_SetUnLogged", "SET UNLOGGED", "Changes of an unlogged table cannot be followed."),
    _direct("AT_SetAccessMethod", "SET ACCESS METHOD m", "A copy has the table's access method."),
    _direct("AT_SetTableSpace", "SET TABLESPACE s", "A copy is created in the default tablespace."),
    _untried("AT_ClusterOn", "CLUSTER ON i", _CATALOGUE),
    _direct("AT_DropCluster", "SET WITHOUT CLUSTER", _CATALOGUE),
    _untried("AT_ReplicaIdentity", "REPLICA IDENTITY …", _CATALOGUE),
    _direct("AT_ChangeOwner", "OWNER TO r", _CATALOGUE),
    *(
        _untried(f"AT_{word}Trig{which}", f"{form} TRIGGER {name}", _CATALOGUE)
        for word, form in (("Enable", "ENABLE"), ("Disable", "DISABLE"))
        for which, name in (("", "name"), ("All", "ALL"), ("User", "USER"))
    ),
    _untried("AT_EnableAlwaysTrig", "ENABLE ALWAYS TRIGGER name", _CATALOGUE),
    _untried("AT_EnableReplicaTrig", "ENABLE REPLICA TRIGGER name", _CATALOGUE),
    _untried("AT_EnableRule", "ENABLE RULE name", _CATALOGUE),
    _untried("AT_EnableAlwaysRule", "ENABLE ALWAYS RULE name", _CATALOGUE),
    _untried("AT_EnableReplicaRule", "ENABLE REPLICA RULE name", _CATALOGUE),
    _untried("AT_DisableRule", "DISABLE RULE name", _CATALOGUE),
    _direct("AT_EnableRowSecurity", "ENABLE ROW LEVEL SECURITY", _CATALOGUE),
    _direct("AT_DisableRowSecurity", "DISABLE ROW LEVEL SECURITY", _CATALOGUE),
    _direct("AT_ForceRowSecurity", "FORCE ROW LEVEL SECURITY", _CATALOGUE),
    _direct("AT_NoForceRowSecurity", "NO FORCE ROW LEVEL SECURITY", _CATALOGUE),
    _direct("create-table", "CREATE TABLE [IF NOT EXISTS] t (…)", "There is nothing to copy."),
    _direct("drop-table", "DROP TABLE [IF EXISTS] t", "There is nothing to copy."),
    _refused("rename-table", "RENAME TO u", _RENAME),
    _refused("set-schema", "SET SCHEMA s", _RENAME),
    _refused("AT_AttachPartition", "ATTACH PARTITION u …", _SECOND),
    _refused("AT_DetachPartition", "DETACH PARTITION u …", _SECOND),
    _refused("AT_DetachPartitionFinalize", "DETACH PARTITION u FINALIZE", _SECOND),
    _refused("AT_AddInherit", "INHERIT u", _SECOND),
    _refused("AT_DropInherit", "NO INHERIT u", _SECOND),
    _refused("partition-of", "CREATE TABLE t PARTITION OF u …, INHERITS (u)", _SECOND),
    _refused("AT_AddOf", "OF type", "It ties the table to a type. Run it yourself."),
    _refused("AT_DropOf", "NOT OF", "It unties the table from a type. Run it yourself."),
    _refused(
        "cascade", "CASCADE", "It drops other objects that depend on this one. Drop them first, then leave out CASCADE."
    ),
    _refused("drop-tables", "DROP TABLE t, u", "It drops several tables. Submit one migration for each."),
    _refused(
        "create-select",
        "CREATE TABLE t AS …",
        "It copies rows of other tables. Create the table, then fill it yourself.",
    ),
    _refused("temporary", "TEMPORARY", "A temporary table exists in its own session only."),
    _refused(
        "tablespace-all", "ALTER TABLE ALL IN TABLESPACE …", "It changes several tables. Submit one migration for each."
    ),
)

CLAUSES: Final[dict[DialectName, dict[str, Clause]]] = {
    "mysql": {clause.key: clause for clause in MARIADB},
    "postgres": {clause.key: clause for clause in POSTGRESQL},
}
