"""Creating the tables that a sink lacks.

Nothing here is guarded by a lock. PostgreSQL creates a table with its schema, enums and comments in one transaction;
MySQL and MariaDB create it with its comments in one statement, a lake with the table's first commit. So a killed agent
leaves a whole table, or a schema or folder that the next one finds. Of two creators one succeeds, and the other finds
that the table exists.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.faults import Fault
from headgate.databases.kinds import kind_of
from headgate.databases.mysql.errors import MysqlError
from headgate.databases.mysql.errors import fault_of as mysql_fault
from headgate.databases.mysql.session import MysqlSession
from headgate.records.control import SpanPlan
from headgate.sinks.contract import SinkError, SinkUnavailableError
from headgate.sinks.creating import CreatesTables
from headgate.sinks.registry import open_sink, target_of
from headgate.sinks.relational.mysql.faults import sink_error as mysql_sink_error
from headgate.sinks.relational.postgresql.faults import sink_error as postgresql_sink_error
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sinks.relational.session import as_sink_errors
from headgate.tables.executing import TRIES, TakenError, execute_at_mysql, execute_at_postgresql
from headgate.tables.missing import MissingTables, Said, SchemaOf, check_created, no_schema, plan_missing
from headgate.tables.mysql_rights import all_rights
from headgate.tables.plan import Sink, needed_first
from headgate.tables.statement import CreateTable

__all__ = ["create_missing"]


def create_missing(spec: FeedSpec, plan: SpanPlan, said: Said, schema_of: SchemaOf = no_schema) -> bool:
    """Create the feed's table if the sink lacks it; whether it did. Idempotent. Raises SinkError, SourceError."""
    for number in range(TRIES):
        missing = plan_missing(spec, [plan], said, schema_of)
        if not missing.lacking:
            return number > 0
        check_created(missing)
        if missing.sink is None:
            if _create_in_lake(spec, missing):
                return True
            continue
        try:
            _create(target_of(spec.sink), missing.tables.created, missing.sink)
        except TakenError:
            continue
        return True
    raise SinkUnavailableError(f"table {plan.table} was not created: others change the same schema at the same time")


def _create_in_lake(spec: FeedSpec, missing: MissingTables) -> bool:
    """Whether all are created; False if another process has created one, which is then looked for again."""
    with closing(open_sink(spec.sink)) as sink:
        return isinstance(sink, CreatesTables) and all(sink.create(table.new) for table in missing.of_lake)


def _create(target: Target, tables: Sequence[CreateTable], sink: Sink) -> None:
    with as_sink_errors():
        _CREATORS[kind_of(target.dsn, target.options).name](target, tables, sink)


def _statements(tables: Sequence[CreateTable], sink: Sink) -> list[str]:
    return [*needed_first(tables, sink), *(statement for table in tables for statement in table.statements)]


def _doing(tables: Sequence[CreateTable]) -> str:
    return f"creating {', '.join(table.name for table in tables)}"


def _postgresql(target: Target, tables: Sequence[CreateTable], sink: Sink) -> None:
    execute_at_postgresql(
        target, _statements(tables, sink), sink, lambda error: postgresql_sink_error(error, _doing(tables))
    )


def _mysql(target: Target, tables: Sequence[CreateTable], sink: Sink) -> None:
    execute_at_mysql(
        target, _statements(tables, sink), sink, lambda session, error: _mysql_error(session, error, tables)
    )


def _mysql_error(session: MysqlSession, error: MysqlError, tables: Sequence[CreateTable]) -> SinkError:
    if mysql_fault(error) is not Fault.PERMISSION:
        return mysql_sink_error(error, _doing(tables))
    names = ", ".join(table.name for table in tables)
    return RightsMissingError(f"no right to create {names}", all_rights(session, tables))


_CREATORS: Final[dict[str, Callable[[Target, Sequence[CreateTable], Sink], None]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}
