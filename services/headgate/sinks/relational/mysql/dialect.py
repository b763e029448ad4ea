"""MySQL and MariaDB as the engine's dialect, and as a sink."""

from typing import Final

from headgate.databases.mysql.address import SCHEMES
from headgate.databases.mysql.errors import MysqlError, fault_of
from headgate.sinks.registry import SinkPlug
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn, check_database, load_table
from headgate.sinks.relational.mysql.connection import MysqlSinkSession, connect, sink_address
from headgate.sinks.relational.mysql.contention import cancel, connect_watcher, end_blockers
from headgate.sinks.relational.mysql.faults import sink_error, words_of
from headgate.sinks.relational.mysql.firing import firing
from headgate.sinks.relational.mysql.origin import read_own_id, read_published
from headgate.sinks.relational.mysql.progress import MysqlProgress
from headgate.sinks.relational.mysql.staging import MysqlStage
from headgate.sinks.relational.session import OPTIONS, RelationalSettings, settings_of
from headgate.sinks.relational.sink import RelationalSink

__all__ = ["SINK", "MysqlSink"]

_MYSQL: Final = Dialect[MysqlSinkSession, MysqlSinkColumn, MysqlError](
    error=MysqlError,
    connect=connect,
    check_database=check_database,
    load_table=load_table,
    firing=firing,
    progress=MysqlProgress,
    stage=MysqlStage,
    columns_ignore_case=True,
    stages_in_transaction=False,
    own_id=read_own_id,
    published=read_published,
    fault_of=fault_of,
    words_of=words_of,
    sink_error=sink_error,
    folded=(
        "another row has a key that the collation of column {columns} treats as equal. Give the key a collation "
        "that ends in _nopad_bin (MariaDB) or _0900_bin (MySQL); other collations treat 'a' and 'a ' as equal"
    ),
    keeps_session=False,  # the rows that a claim has locked keep naming its session, so that another might end it
    connect_watcher=connect_watcher,
    end_blockers=end_blockers,
    unseen_blocker="a session that this user may not see (GRANT PROCESS ON *.* to the user to see it)",
    cancel=cancel,
)


class MysqlSink(RelationalSink[MysqlSinkSession, MysqlSinkColumn, MysqlError]):
    """A MySQL or MariaDB server as a sink."""

    def __init__(self, settings: RelationalSettings, *, keeps_session: bool = False) -> None:
        super().__init__(_MYSQL, settings, keeps_session=keeps_session)


SINK: Final = SinkPlug(
    summary="MySQL and MariaDB: LOAD DATA LOCAL into a temporary table, then set-wise merge",
    options=OPTIONS,
    schemes=SCHEMES,
    connectors=frozenset({"mysql", "mariadb"}),
    alters_tables=True,
    takes_slices=True,
    trigger_advice=(
        "Drop them, or let them do nothing in Headgate's sessions, which have @headgate set: IF @headgate IS NULL "
        "THEN … END IF"
    ),
    address=sink_address,
    open=lambda spec, password_file, keeps_session: MysqlSink(
        settings_of(spec, password_file), keeps_session=keeps_session
    ),
)
