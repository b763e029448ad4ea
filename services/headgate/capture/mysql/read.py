"""Reads the facts from a MySQL or MariaDB, in a session that cannot write."""

import re
from collections import defaultdict
from contextlib import closing
from typing import Final

import msgspec

from headgate.capture.mysql.facts import MysqlFacts, MysqlTable
from headgate.capture.tables import CapturedColumn
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseUnavailableError
from headgate.databases.faults import Fault
from headgate.databases.mysql.errors import MysqlError, fault_of, message
from headgate.databases.mysql.reading import READ_ONLY, reading
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.mysql.sql import literal, quoted
from headgate.databases.mysql.types import GEOMETRIES
from headgate.sinks.relational.mysql.origin import read_own_id

__all__ = ["read_mysql", "with_rights"]

_VARIABLES: Final = (
    "log_bin",
    "server_id",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_value_options",
    "expire_logs_days",
    "binlog_expire_logs_seconds",
)

_POSITION: Final = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""MySQL 8.4 has the second form only, MariaDB the first."""

# The server's own databases, and Headgate's at a sink.
_OWN: Final = "('mysql', 'information_schema', 'performance_schema', 'sys', 'headgate')"

_TABLES: Final = f"""
SELECT table_schema, table_name, engine FROM information_schema.tables
WHERE table_schema NOT IN {_OWN} AND table_type IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') ORDER BY 1, 2
"""  # noqa: S608 - names of our own

_COLUMNS: Final = f"""
SELECT table_schema, table_name, column_name, column_type FROM information_schema.columns
WHERE table_schema NOT IN {_OWN} ORDER BY table_schema, table_name, ordinal_position
"""  # noqa: S608

_INDEXES: Final = f"""
SELECT table_schema, table_name, index_name, column_name, nullable, sub_part FROM information_schema.statistics
WHERE table_schema NOT IN {_OWN} AND non_unique = 0 ORDER BY table_schema, table_name, index_name, seq_in_index
"""  # noqa: S608

_GRANT: Final = re.compile(r"GRANT (?P<rights>.+?) ON (?P<on>`(?:[^`]|``)*`\.\S+|\S+) TO ")


def read_mysql(target: Target) -> MysqlFacts:
    """Everything the rules ask for. Writes nothing. Raises DatabaseError."""
    with reading(target) as session:
        return _facts(session)


def _facts(session: MysqlSession) -> MysqlFacts:
    ((account, database),) = session.execute("SELECT CURRENT_USER(), DATABASE()")
    user, _, host = str(account).rpartition("@")
    names = ", ".join(map(literal, _VARIABLES))
    variables = session.execute(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    rights, lockable = _granted([str(row[0]) for row in session.execute("SHOW GRANTS")])
    logged_only, not_logged = _filters(session)
    own_id = read_own_id(session)
    return MysqlFacts(
        account=f"{literal(user)}@{literal(host)}",
        version=session.version,
        is_mariadb=session.is_mariadb,
        database=database,
        variables={str(name): str(value) for name, value in variables},
        rights=rights,
        lockable=lockable,
        logged_only=logged_only,
        not_logged=not_logged,
        tables=_tables(session),
        own_id=None if own_id is None else own_id.rpartition("/")[0],
    )


def _granted(lines: list[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Privileges on everything, and the databases on which LOCK TABLES is granted."""
    rights: set[str] = set()
    lockable: set[str] = set()
    for line in lines:
        found = _GRANT.match(line)
        if found is None:
            continue
        named = {right.strip().upper() for right in found["rights"].split(",")}
        if found["on"] == "*.*":
            rights |= named
        elif named & {"LOCK TABLES", "ALL PRIVILEGES"} and found["on"].endswith(".*"):
            lockable.add(found["on"].removesuffix(".*").strip("`").replace("``", "`"))
    return frozenset(rights), frozenset(lockable)


def _filters(session: MysqlSession) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Databases that the binary log includes or leaves out. Empty if the user may not see that, or the log is off."""
    for statement in _POSITION:
        try:
            rows = session.named_rows(statement)
        except MysqlError:
            continue
        if rows:
            return _names(rows[0].get("Binlog_Do_DB")), _names(rows[0].get("Binlog_Ignore_DB"))
    return (), ()


def _names(text: object) -> tuple[str, ...]:
    return tuple(name for name in str(text or "").split(",") if name)


def _tables(session: MysqlSession) -> tuple[MysqlTable, ...]:
    columns: defaultdict[tuple[str, str], list[CapturedColumn]] = defaultdict(list)
    for schema, table, name, kind in session.execute(_COLUMNS):
        columns[schema, table].append(CapturedColumn(str(name), str(kind), is_geometry=str(kind) in GEOMETRIES))
    keys, others = _unique_indexes(session)
    found = []
    for schema, table, engine in session.execute(_TABLES):
        index, index_columns = others.get((schema, table), (None, ()))
        found.append(
            MysqlTable(
                schema=str(schema),
                table=str(table),
                engine=engine,
                columns=tuple(columns[schema, table]),
                key=keys.get((schema, table), ()),
                unique_index=index,
                unique_columns=index_columns,
            )
        )
    return tuple(found)


Indexes = dict[tuple[str, str], tuple[str, tuple[str, ...]]]


def _unique_indexes(session: MysqlSession) -> tuple[dict[tuple[str, str], tuple[str, ...]], Indexes]:
    """Of each table the primary key's columns, and the first unique index over whole columns that are never NULL."""
    parts: defaultdict[tuple[str, str, str], list[tuple[str, bool]]] = defaultdict(list)
    for schema, table, index, column, nullable, prefix in session.execute(_INDEXES):
        parts[schema, table, index].append((str(column), nullable == "YES" or prefix is not None))
    keys: dict[tuple[str, str], tuple[str, ...]] = {}
    others: Indexes = {}
    for (schema, table, index), members in parts.items():
        names = tuple(column for column, _ in members)
        if index == "PRIMARY":
            keys[schema, table] = names
        elif not any(is_unfit for _, is_unfit in members):
            others.setdefault((schema, table), (index, names))
    return keys, others


def with_rights(target: Target, tables: list[MysqlTable]) -> list[MysqlTable]:
    """The same tables, each with whether the user may read it. Raises DatabaseError."""
    with closing(open_session(target, MysqlSession, settings=(READ_ONLY,))) as session:
        return [msgspec.structs.replace(table, may_select=_may_select(session, table, target)) for table in tables]


def _may_select(session: MysqlSession, table: MysqlTable, target: Target) -> bool:
    """Tried, because rights may come from the table, from its database's name as a pattern, or from a role."""
    try:
        session.execute(f"SELECT * FROM {quoted(table.schema, table.table)} LIMIT 0")  # noqa: S608 - quoted
    except MysqlError as error:
        if fault_of(error) is Fault.PERMISSION:
            return False
        raise DatabaseUnavailableError(
            f"the {target.options.place} did not answer a query of {table.name}: {message(error)}"
        ) from error
    return True
