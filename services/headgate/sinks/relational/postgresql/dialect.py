"""PostgreSQL as the engine's dialect, and as a sink."""

from typing import Final

from headgate.databases.postgresql.address import SCHEMES
from headgate.databases.postgresql.errors import PostgresError, fault_of
from headgate.sinks.registry import SinkPlug
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.postgresql.at_once import apply_at_once
from headgate.sinks.relational.postgresql.catalog import PostgresSinkColumn, check_database, load_table
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession, connect, sink_address
from headgate.sinks.relational.postgresql.contention import cancel, end_blockers
from headgate.sinks.relational.postgresql.faults import sink_error, words_of
from headgate.sinks.relational.postgresql.firing import firing
from headgate.sinks.relational.postgresql.origin import read_own_id, read_published
from headgate.sinks.relational.postgresql.progress import PostgresProgress
from headgate.sinks.relational.postgresql.staging import PostgresStage
from headgate.sinks.relational.session import OPTIONS, RelationalSettings, settings_of
from headgate.sinks.relational.sink import RelationalSink

__all__ = ["SINK", "PostgresSink"]

_POSTGRESQL: Final = Dialect[PostgresSinkSession, PostgresSinkColumn, PostgresError](
    error=PostgresError,
    connect=connect,
    check_database=check_database,
    load_table=load_table,
    firing=firing,
    progress=PostgresProgress,
    stage=PostgresStage,
    columns_ignore_case=False,
    stages_in_transaction=True,
    apply_at_once=apply_at_once,
    own_id=read_own_id,
    published=read_published,
    fault_of=fault_of,
    words_of=words_of,
    sink_error=sink_error,
    folded=(
        "another row has a key that column {columns} treats as equal (citext, or a collation that is not "
        "deterministic), or the column's type changes how the key is written. Make it text with a deterministic "
        "collation"
    ),
    keeps_session=True,
    connect_watcher=connect,
    end_blockers=end_blockers,
    unseen_blocker="a session that this user may not see",
    cancel=cancel,
)


class PostgresSink(RelationalSink[PostgresSinkSession, PostgresSinkColumn, PostgresError]):
    """A PostgreSQL database as a sink."""

    def __init__(self, settings: RelationalSettings, *, keeps_session: bool = False) -> None:
        super().__init__(_POSTGRESQL, settings, keeps_session=keeps_session)


SINK: Final = SinkPlug(
    summary="PostgreSQL 14 and later: COPY into a temporary table, then set-wise merge",
    options=OPTIONS,
    schemes=SCHEMES,
    connectors=frozenset({"postgresql"}),
    alters_tables=True,
    takes_slices=True,
    trigger_advice=(
        "Disable them (ALTER TABLE … DISABLE TRIGGER …), or write as a subscription of PostgreSQL does, which fires "
        "only ENABLE ALWAYS and ENABLE REPLICA ones: sink.foreign_keys: ignore"
    ),
    address=sink_address,
    open=lambda spec, password_file, keeps_session: PostgresSink(
        settings_of(spec, password_file), keeps_session=keeps_session
    ),
)
