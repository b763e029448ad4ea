"""Finds the sessions that block another one, by the locks on the rows that it needs."""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from headgate.databases.mysql.errors import MysqlError, errno, message
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkError, SinkRefusedError
from headgate.sinks.relational.dialect import SIBLING_SECONDS
from headgate.sinks.relational.mysql.connection import MysqlSinkSession, connect
from headgate.sinks.relational.mysql.progress import MysqlProgress
from headgate.sinks.relational.session import RelationalSettings

__all__ = ["cancel", "connect_watcher", "end_blockers"]

_NO_SUCH_THREAD: Final = 1094
_NOT_OWNER: Final = frozenset({1095, 1227})

_WHO: Final = """
SELECT p.id, p.user, p.host, p.command, p.time
FROM information_schema.innodb_lock_waits w
JOIN information_schema.innodb_trx mine ON mine.trx_id = w.requesting_trx_id
JOIN information_schema.innodb_trx theirs ON theirs.trx_id = w.blocking_trx_id
JOIN information_schema.processlist p ON p.id = theirs.trx_mysql_thread_id
WHERE mine.trx_mysql_thread_id = %s ORDER BY p.id
"""
_WHO_MYSQL: Final = """
SELECT b.processlist_id, b.processlist_user, b.processlist_host, b.processlist_command, b.processlist_time
FROM performance_schema.data_lock_waits w
JOIN performance_schema.threads b ON b.thread_id = w.blocking_thread_id
JOIN performance_schema.threads m ON m.thread_id = w.requesting_thread_id
WHERE m.processlist_id = %s ORDER BY b.processlist_id
"""


def connect_watcher(settings: RelationalSettings) -> MysqlSinkSession:
    """See Dialect: a session that reads what is not committed."""
    session = connect(settings)
    session.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    return session


def end_blockers(  # noqa: PLR0917 - see Dialect
    watching: MysqlSinkSession,
    blocked: MysqlSinkSession,
    claim: Claim,
    table: str,
    over_at: Callable[[Epoch], bool],
    waited_seconds: float,
) -> list[str]:
    """See Dialect. Another part of the same table is given a moment first."""
    for holder, of_partition in MysqlProgress(watching).holders(claim, table):
        if holder.feed_id != claim.identity.feed_id or holder.token == blocked.token or not over_at(holder.epoch):
            continue
        if not of_partition and waited_seconds < SIBLING_SECONDS:
            continue
        ((session_id,),) = watching.execute("SELECT IS_USED_LOCK(%s)", (holder.token,))
        if session_id is None:
            continue  # it has ended; what it wrote is being rolled back, or was committed
        try:
            watching.execute(f"KILL {int(session_id)}")
        except MysqlError as error:
            if errno(error) == _NO_SUCH_THREAD:
                continue
            if errno(error) in _NOT_OWNER:
                raise SinkRefusedError(
                    f"session {session_id} holds {table} under epoch {holder.epoch}, which has ended, and this user "
                    f"may not end the session ({message(error)}). Use the same user for every agent, or grant it "
                    "CONNECTION ADMIN"
                ) from error
            raise
    return _who_blocks(watching, blocked)


def _who_blocks(watching: MysqlSinkSession, blocked: MysqlSinkSession) -> list[str]:
    """Who has what we wait for; nothing where this user may not see it."""
    with suppress(MysqlError):
        found = watching.execute(_WHO if watching.is_mariadb else _WHO_MYSQL, (blocked.id,))
        return [f"session {i} (user {user} from {host}, {what} for {time} s)" for i, user, host, what, time in found]
    return []


def cancel(settings: RelationalSettings, blocked: MysqlSinkSession) -> None:
    """See Dialect."""
    with suppress(MysqlError, SinkError), closing(connect(settings)) as other:
        other.execute(f"KILL {blocked.id}")
