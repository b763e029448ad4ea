"""Getting a lock that somebody else holds: ending dead writers' sessions, waiting for everybody else.

A frozen process keeps its transaction, and with it the locks on the progress rows, for ever. So whoever claims does
not just wait: it reads who locked the rows it needs (their uncommitted content says so), and ends those sessions that
work for the same feed and table under an epoch that is over. Everybody else is waited for, with a limit, and then
named, as far as this user may see.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import pymysql

from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.mysql.connection import Session, errno, message
from headgate.sinks.mysql.progress import read_holders

__all__ = ["run_past_blockers"]

GLANCE_SECONDS: Final = 0.05
"""Between two looks at who blocks us. A claim that waits for nobody ends before the first."""

_LOCK_WAIT_TIMEOUT: Final = 1205
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

T = TypeVar("T")


class _Outcome:
    """What the blocked statement came to, handed from its thread."""

    def __init__(self) -> None:
        self.value: object = None
        self.error: BaseException | None = None
        self.done = threading.Event()


def run_past_blockers(
    work: Callable[[], T],
    *,
    blocked: Session,
    watcher: Callable[[], Session],
    claim: Claim,
    table: str,
    over_at: Callable[[Epoch], bool],
) -> T:
    """Run ``work`` on session ``blocked``, ending the sessions of the same feed and table whose epoch is ``over_at``.

    ``work`` must give up by itself (innodb_lock_wait_timeout); ``watcher`` opens a second session, only if there is a
    wait. Raises what ``work`` raises; SinkUnavailableError names blockers that are not ours; SinkRefusedError a
    missing right.
    """
    outcome = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome.error = error
        finally:
            outcome.done.set()

    thread = threading.Thread(target=run, name=f"claim {table} {claim.epoch}", daemon=True)
    thread.start()
    blockers: list[str] = []
    try:
        if not outcome.done.wait(GLANCE_SECONDS):
            with watcher() as watching:
                watching.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
                while not outcome.done.wait(GLANCE_SECONDS):
                    _end_those_over(watching, blocked, claim, table, over_at)
                    blockers = _who_blocks(watching, blocked) or blockers
    except BaseException:
        _cancel(watcher, blocked)
        raise
    finally:
        thread.join()
    if isinstance(outcome.error, pymysql.Error) and errno(outcome.error) == _LOCK_WAIT_TIMEOUT:
        named = ", ".join(blockers) or "somebody this user cannot see (GRANT PROCESS ON *.* to it, to see who)"
        raise SinkUnavailableError(
            f"{table}: waited for a lock that is held by {named}; end that transaction, then try again"
        ) from outcome.error
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]


def _end_those_over(
    watching: Session, blocked: Session, claim: Claim, table: str, over_at: Callable[[Epoch], bool]
) -> None:
    for holder in read_holders(watching, claim, table):
        if holder.feed_id != claim.identity.feed_id or holder.token == blocked.token or not over_at(holder.epoch):
            continue
        ((session_id,),) = watching.execute("SELECT IS_USED_LOCK(%s)", (holder.token,))
        if session_id is None:
            continue  # it has ended; what it wrote is being rolled back, or was committed
        try:
            watching.execute(f"KILL {int(session_id)}")
        except pymysql.Error as error:
            if errno(error) == _NO_SUCH_THREAD:
                continue
            if errno(error) in _NOT_OWNER:
                raise SinkRefusedError(
                    f"session {session_id} holds {table} under epoch {holder.epoch}, which is over, and cannot be "
                    f"ended by this user ({message(error)}): use the same user for every agent, or grant it "
                    "CONNECTION ADMIN"
                ) from error
            raise


def _who_blocks(watching: Session, blocked: Session) -> list[str]:
    """Who has what we wait for; nothing where this user may not see it."""
    with suppress(pymysql.Error):
        found = watching.execute(_WHO if watching.is_mariadb else _WHO_MYSQL, (blocked.id,))
        return [f"session {i} (user {user} from {host}, {what} for {time} s)" for i, user, host, what, time in found]
    return []


def _cancel(watcher: Callable[[], Session], blocked: Session) -> None:
    with suppress(pymysql.Error, SinkError), watcher() as other:
        other.execute(f"KILL {blocked.id}")
