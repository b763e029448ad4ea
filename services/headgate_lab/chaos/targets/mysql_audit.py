"""The audit of every change in a MariaDB: triggers, and the server's own record of the order of commits.

``demo.audit`` defines what the record is checked for. Three things differ from PostgreSQL.

*The order of commits.* A trigger here runs with its statement, not at the commit, so it numbers entries in the order of
the writing: a holder frozen in a transaction, which commits behind its successor's claim, would seem to come first. So
``audit.entries`` is a table with transaction-precise history: in ``mysql.transaction_registry`` the server itself
records when each transaction that wrote to it was committed, and as which.

MariaDB 10.11 leaves out a transaction that wrote nothing to a table with history after a part of it was last rolled
back: to a savepoint, or because a statement failed or found a key that exists (ON DUPLICATE KEY UPDATE). InnoDB then
forgets that the transaction wrote to such a table before (trx_mod_table_time_t). Batches that are
tried in parts end so, and those that keep what a table's columns are. Whatever the sink keeps beside the rows comes
last, and is an entry too (KEPT), so they are recorded. Others that are left out are taken in the order of their
beginnings: one of them that commits behind its successor's claim might not be found. Where they are more than
UNNOTED_SHARE_MAX of all, the record is refused.

*Who writes.* A session has no name in this protocol. It identifies its assignment by what it writes into the row that
it locks (docs/adr/0011). The trigger on that table keeps this text in a variable of the session, where it stays, as an
application name would, until the session writes another. A session that never wrote one is unlabelled.

*When the triggers are created.* MariaDB has none on DDL, so the sink's own code creates the bookkeeping beforehand.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from pymysql.connections import Connection
from pymysql.cursors import Cursor, SSCursor

from headgate.databases.mysql.sql import quoted
from headgate_lab.demo.audit import AuditEntry, Key
from headgate_lab.demo.schema import SCHEMA, TABLES, VERSION, ShopTable

__all__ = ["AuditError", "commit_times", "install_audit", "read_entries", "read_standing", "unnoted_commits"]

_ENTRIES: Final = (
    "CREATE DATABASE audit",
    """
    CREATE TABLE audit.entries (
        id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
        label varchar(700) NOT NULL, table_name varchar(129) NOT NULL, operation varchar(6) NOT NULL,
        row_key json NOT NULL, old_version bigint NULL, new_version bigint NULL,
        written_by bigint unsigned GENERATED ALWAYS AS ROW START,
        removed_by bigint unsigned GENERATED ALWAYS AS ROW END,
        PERIOD FOR SYSTEM_TIME (written_by, removed_by), KEY (table_name)
    ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin WITH SYSTEM VERSIONING
    """,
)

_NOTE: Final = (
    "INSERT INTO audit.entries (label, table_name, operation, row_key, old_version, new_version) "
    "VALUES (COALESCE(@audit_label, ''), '{name}', '{operation}', {key}, {old}, {new});"
)
_SAYS: Final = (
    "SET @audit_label = CONCAT('headgate ', NEW.feed, ' ', NEW.table_name, ' ', SUBSTRING_INDEX(NEW.holder, '|', -1));"
)
_HOLDS: Final = (
    "INSERT INTO audit.entries (label, table_name, operation, row_key) VALUES "
    "(CONCAT(NEW.owner_rev, '.', NEW.n), NEW.table_name, IF(NEW.closed, 'SEAL', 'CLAIM'), '[]');"
)
COPY: Final = "COPY"
"""A transaction that copies rows from the source also keeps how far the copy is (docs/adr/0114)."""

KEPT: Final = "KEPT"
"""Positions were locked or moved, or something else is kept beside the rows: last in a transaction."""

_KEEPS: Final = (
    "INSERT INTO audit.entries (label, table_name, operation, row_key) "  # noqa: S608
    f"VALUES (COALESCE(@audit_label, ''), NEW.table_name, '{KEPT}', '[]')"
)

_HOLDERS: Final = (
    f"CREATE TRIGGER headgate.note_claim AFTER INSERT ON headgate.progress FOR EACH ROW BEGIN {_SAYS} {_HOLDS} END",
    f"""
    CREATE TRIGGER headgate.note_holder AFTER UPDATE ON headgate.progress FOR EACH ROW BEGIN {_SAYS}
        IF (NEW.owner_rev, NEW.n, NEW.closed) <> (OLD.owner_rev, OLD.n, OLD.closed) THEN {_HOLDS} ELSE {_KEEPS}; END IF;
    END
    """,
)

_COPIES: Final = tuple(
    f"CREATE TRIGGER headgate.note_copy_{event.lower()} AFTER {event} ON headgate.row_copies FOR EACH ROW "  # noqa: S608
    "INSERT INTO audit.entries (label, table_name, operation, row_key) "
    f"VALUES (COALESCE(@audit_label, ''), NEW.table_name, '{COPY}', '[]')"
    for event in ("INSERT", "UPDATE")
)

_BESIDE: Final = tuple(
    f"CREATE TRIGGER headgate.note_{table}_{event.lower()} AFTER {event} ON headgate.{table} FOR EACH ROW {_KEEPS}"
    for table in ("known_columns", "source_tables")
    for event in ("INSERT", "UPDATE")
)

_COMMITTED: Final = "audit.entries e LEFT JOIN mysql.transaction_registry r ON r.transaction_id = e.written_by"


UNNOTED_SHARE_MAX: Final = 0.01
"""None is known that is left out and has rows."""

_UNNOTED: Final = f"""
SELECT COUNT(*), SUM(recorded IS NULL)
FROM (SELECT e.written_by, MAX(r.commit_id) recorded FROM {_COMMITTED} GROUP BY e.written_by) t
"""  # noqa: S608 - constants

_READ: Final = f"""
SELECT e.id, e.label, e.table_name, e.operation, e.row_key, e.old_version, e.new_version, c.written_by IS NOT NULL
FROM {_COMMITTED} LEFT JOIN (SELECT DISTINCT written_by FROM audit.entries WHERE operation = '{COPY}') c
    ON c.written_by = e.written_by
WHERE e.operation NOT IN ('{COPY}', '{KEPT}') ORDER BY COALESCE(r.commit_id, e.written_by), e.id
"""  # noqa: S608 - constants

_TIMES: Final = f"""
SELECT DISTINCT e.table_name, r.commit_id, UNIX_TIMESTAMP(r.commit_timestamp) FROM {_COMMITTED}
WHERE e.operation IN ('INSERT', 'UPDATE', 'DELETE') AND r.commit_id IS NOT NULL ORDER BY r.commit_id
"""  # noqa: S608 - no value in it


class AuditError(Exception):
    """The record is not what the audit needs; the message explains the difference."""


def install_audit(target: "Connection[Cursor]") -> None:
    """Write down changes, claims and seals: the shop's tables and the sink's bookkeeping are there, and empty."""
    with target.cursor() as cursor:
        for statement in (*_ENTRIES, *_HOLDERS, *_COPIES, *_BESIDE):
            cursor.execute(statement)
        for table in TABLES:
            for statement in _triggers(table):
                cursor.execute(statement)


def _triggers(table: ShopTable) -> Iterator[str]:
    old_key, new_key = _key(table, "OLD."), _key(table, "NEW.")
    old, new = f"OLD.{quoted(VERSION)}", f"NEW.{quoted(VERSION)}"
    names = {"name": table.full_name}
    insert = _NOTE.format(**names, operation="INSERT", key=new_key, old="NULL", new=new)
    update = _NOTE.format(**names, operation="UPDATE", key=new_key, old=old, new=new)
    delete = _NOTE.format(**names, operation="DELETE", key=old_key, old=old, new="NULL")
    changed = f"IF BINARY {old_key} = BINARY {new_key} THEN {update} ELSE {delete} {insert} END IF;"
    for event, what in (("INSERT", insert), ("UPDATE", changed), ("DELETE", delete)):
        name = quoted(SCHEMA, f"note_{event.lower()}_{table.name}")
        yield f"CREATE TRIGGER {name} AFTER {event} ON {quoted(SCHEMA, table.name)} FOR EACH ROW BEGIN {what} END"


def _key(table: ShopTable, prefix: str = "") -> str:
    """The key's columns as a JSON array of texts: the source's audit has the same texts."""
    return f"JSON_ARRAY({', '.join(f'CAST({prefix}{quoted(column)} AS CHAR)' for column in table.key)})"


def read_entries(target: "Connection[Cursor]") -> Iterator[AuditEntry]:
    """The record in the order of the commits. Raises AuditError if the server has not recorded one of them."""
    transactions, unnoted = unnoted_commits(target)
    if unnoted > UNNOTED_SHARE_MAX * transactions:
        raise AuditError(f"mysql.transaction_registry does not know {unnoted} of {transactions} transactions")
    for *entry, is_copied in _stream(target, _READ):
        number, label, table, operation, key, old_version, new_version = entry
        yield AuditEntry(number, label, table, operation, _decoded(key), old_version, new_version, bool(is_copied))


def unnoted_commits(target: "Connection[Cursor]") -> tuple[int, int]:
    """How many transactions the record has, and how many of their commits the server has not recorded."""
    ((transactions, unnoted),) = _stream(target, _UNNOTED)
    return int(transactions), int(unnoted or 0)


def read_standing(target: "Connection[Cursor]") -> Iterator[tuple[str, Key, int]]:
    """(table, key, version) of every row that exists now."""
    for table in TABLES:
        query = f"SELECT {_key(table)}, {quoted(VERSION)} FROM {quoted(SCHEMA, table.name)}"  # noqa: S608 - names of our own
        for key, version in _stream(target, query):
            yield table.full_name, _decoded(key), version


def commit_times(target: "Connection[Cursor]") -> dict[str, list[float]]:
    """Table → when its changes became visible, in that order, in seconds since 1970."""
    times: dict[str, list[float]] = {table.full_name: [] for table in TABLES}
    for table, _, at in _stream(target, _TIMES):
        times[table].append(float(at))
    return times


def _stream(target: "Connection[Cursor]", query: str) -> Iterator[tuple[Any, ...]]:
    with target.cursor(SSCursor) as cursor:
        cursor.execute(query)
        yield from cursor


def _decoded(key: str) -> Key:
    return msgspec.json.decode(key, type=tuple[str, ...])
