"""What of a MySQL or MariaDB has to change before Debezium can capture it. Pure: facts in, findings out."""

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.capture.finding import KEYLESS, CaptureFinding, FixIn, State
from headgate.capture.mysql.facts import MysqlFacts, MysqlTable
from headgate.databases.mysql.sql import quoted

__all__ = ["mysql_findings"]

_RETENTION_HOURS_MIN: Final = 24
"""A connector that was away for longer than the server keeps its log must take a new snapshot."""

_ALL: Final = "ALL PRIVILEGES"

_RIGHTS: Final = (
    ("REPLICATION SLAVE", frozenset({"REPLICATION SLAVE"})),
    ("REPLICATION CLIENT", frozenset({"REPLICATION CLIENT", "BINLOG MONITOR"})),
)
"""What reading the log needs, as GRANT takes it everywhere, and how servers call it."""

_INET: Final = ("inet4", "inet6")
"""Types that Debezium's MariaDB connector (3.5.0) cannot parse."""


def mysql_findings(facts: MysqlFacts, tables: Sequence[MysqlTable]) -> list[CaptureFinding]:
    """Every check, in the order in which a new source is set up."""
    return [
        CaptureFinding("version", State.OK, facts.version),
        *_log(facts),
        *_retention(facts),
        *_filters(facts, tables),
        *_user(facts, tables),
        *(finding for table in tables for finding in _table(table)),
    ]


def _log(facts: MysqlFacts) -> Iterator[CaptureFinding]:
    if not _is_on(facts.variables.get("log_bin", "OFF")):
        yield CaptureFinding(
            "log_bin",
            State.WRONG,
            "off: the server writes no binary log",
            fix=("log_bin = binlog", "server_id = 1", "binlog_format = ROW", "binlog_row_image = FULL"),
            fix_in=FixIn.OPTION_FILE,
            then="Restart the server. No two servers of a replication may have the same server_id",
        )
    else:
        yield CaptureFinding("log_bin", State.OK, "on")
    yield _setting(facts, "binlog_format", "ROW", "statements do not identify the rows that they changed")
    yield _setting(facts, "binlog_row_image", "FULL", "rows in the log do not have all columns")
    if facts.variables.get("binlog_row_value_options"):
        yield _setting(facts, "binlog_row_value_options", "", "JSON columns are written in parts")
    if facts.variables.get("server_id", "0") == "0":
        yield CaptureFinding(
            "server_id",
            State.WRONG,
            "0: the server accepts no replication connections",
            fix=("SET GLOBAL server_id = 1;",),
            then="Set it in the server's option file as well",
        )


def _is_on(value: str) -> bool:
    return value.upper() in ("ON", "1")


def _setting(facts: MysqlFacts, name: str, wanted: str, why: str) -> CaptureFinding:
    found = facts.variables.get(name, wanted)
    if found.upper() == wanted:
        return CaptureFinding(name, State.OK, found)
    return CaptureFinding(
        name,
        State.WRONG,
        f"{found}: {why}",
        fix=(f"SET GLOBAL {name} = '{wanted}';",),
        then="Set it in the server's option file as well, and let clients reconnect: their sessions keep the old value",
    )


def _retention(facts: MysqlFacts) -> Iterator[CaptureFinding]:
    seconds = float(facts.variables.get("binlog_expire_logs_seconds") or 0)
    days = float(facts.variables.get("expire_logs_days") or 0)
    hours = (seconds or days * 86_400) / 3_600
    if 0 < hours < _RETENTION_HOURS_MIN:
        name, value = ("binlog_expire_logs_seconds", 259_200) if seconds else ("expire_logs_days", 3)
        yield CaptureFinding(
            "log retention",
            State.WARNING,
            f"{hours:g} hours: a connector that is away for longer needs a new snapshot",
            fix=(f"SET GLOBAL {name} = {value};",),
            then="Set it in the server's option file as well",
        )
    else:
        yield CaptureFinding("log retention", State.OK, f"{hours:g} hours" if hours else "without a limit")


def _filters(facts: MysqlFacts, tables: Sequence[MysqlTable]) -> Iterator[CaptureFinding]:
    databases = dict.fromkeys(table.schema for table in tables)
    left_out = [
        name for name in databases if name in facts.not_logged or (facts.logged_only and name not in facts.logged_only)
    ]
    if left_out:
        yield CaptureFinding(
            "binlog filter",
            State.WRONG,
            f"the binary log does not have {', '.join(left_out)}",
            then="Remove binlog_do_db and binlog_ignore_db from the server's option file, and restart it",
        )


def _user(facts: MysqlFacts, tables: Sequence[MysqlTable]) -> Iterator[CaptureFinding]:
    lacking = [] if _ALL in facts.rights else [name for name, names in _RIGHTS if not names & facts.rights]
    if lacking:
        yield CaptureFinding(
            "replication",
            State.WRONG,
            f"lacks {' and '.join(lacking)}",
            facts.account,
            fix=(f"GRANT {', '.join(lacking)} ON *.* TO {facts.account};",),
        )
    else:
        yield CaptureFinding("replication", State.OK, "may read the binary log", facts.account)
    databases = dict.fromkeys(table.schema for table in tables)
    if not facts.rights & {_ALL, "RELOAD"} and not set(databases) <= facts.lockable:
        yield CaptureFinding(
            "snapshot locks",
            State.WRONG,
            "may not lock tables, which the connector does at the start of a snapshot",
            facts.account,
            fix=(f"GRANT RELOAD ON *.* TO {facts.account};",),
        )
    closed = [table for table in tables if not table.may_select]
    if closed:
        yield CaptureFinding(
            "select",
            State.WRONG,
            f"may not read {', '.join(table.name for table in closed)}, which a snapshot does",
            facts.account,
            fix=tuple(f"GRANT SELECT ON {quoted(table.schema, table.table)} TO {facts.account};" for table in closed),
        )
    else:
        yield CaptureFinding("select", State.OK, "may read every table", facts.account)


def _table(table: MysqlTable) -> Iterator[CaptureFinding]:
    name, target = table.name, quoted(table.schema, table.table)
    if table.is_view:
        yield CaptureFinding(
            "table", State.WRONG, "is a view, which has no changes of its own", name, then="Leave it out with --tables"
        )
        return
    problems = [*_key(table, name), *_unfit(table, name, target)]
    yield from problems or [CaptureFinding("table", State.OK, table.shown_key, name)]


def _key(table: MysqlTable, name: str) -> Iterator[CaptureFinding]:
    if not table.row_key:
        yield CaptureFinding(
            "primary key",
            State.WARNING,
            "has none, so updates and deletes do not identify their row",
            name,
            then=KEYLESS,
        )


def _unfit(table: MysqlTable, name: str, target: str) -> Iterator[CaptureFinding]:
    if (table.engine or "").upper() != "INNODB":
        yield CaptureFinding(
            "engine",
            State.WARNING,
            f"is {table.engine}, without transactions: a snapshot of it need not fit the log",
            name,
            fix=(f"ALTER TABLE {target} ENGINE = InnoDB;",),
        )
    inet = [column.name for column in table.columns if column.type in _INET]
    if inet:
        yield CaptureFinding(
            "column types",
            State.WRONG,
            f"has columns of type inet4 or inet6 ({', '.join(inet)}), which stop the connector",
            name,
            then="Give them the type varchar(45), or leave the table out with --tables",
        )
