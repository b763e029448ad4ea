"""Getting a lock that somebody else holds: ending dead writers' sessions, waiting for everybody else.

A frozen process keeps its transaction, and with it the locks on the progress rows, for ever. So whoever claims does
not just wait: it asks PostgreSQL who blocks it, and ends those sessions whose label says that they work for the same
table under an epoch that is over. Everybody else is waited for, with a limit, and then named.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import psycopg
from psycopg import errors

from headgate.records.control import Epoch
from headgate.sinks.contract import SinkRefusedError, SinkUnavailableError
from headgate.sinks.postgresql.catalog import Connection
from headgate.sinks.postgresql.connection import Label

__all__ = ["run_past_blockers"]

GLANCE_SECONDS: Final = 0.05
"""Between two looks at who blocks us. A claim that waits for nobody ends before the first."""

SIBLING_SECONDS: Final = 1.0
"""How long a claim lets another part of its table finish its own: milliseconds, unless that one is frozen."""

_BLOCKERS: Final = """
SELECT a.pid, a.backend_start, a.application_name, a.usename, a.state, extract(epoch FROM now() - a.xact_start)::float8
FROM unnest(pg_blocking_pids(%s)) b JOIN pg_stat_activity a ON a.pid = b ORDER BY a.pid
"""

# Start time and name are looked at again in the same statement: a pid is soon somebody else's.
_END: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND application_name = %s
"""

T = TypeVar("T")


class _Blocker(msgspec.Struct, frozen=True):
    pid: int
    started: object
    name: str
    user: str | None
    state: str | None
    open_seconds: float | None

    def __str__(self) -> str:
        since = "" if self.open_seconds is None else f", transaction open for {self.open_seconds:.0f} s"
        return f"pid {self.pid} ({self.name or 'no application name'}, user {self.user}, {self.state}{since})"


class _Outcome:
    """What the blocked statement came to, handed from its thread."""

    def __init__(self) -> None:
        self.value: object = None
        self.error: BaseException | None = None
        self.done = threading.Event()


def run_past_blockers(
    work: Callable[[], T],
    *,
    blocked: Connection,
    watcher: Callable[[], Connection],
    mine: Label,
    over_at: Callable[[Epoch], bool],
) -> T:
    """Run ``work`` on session ``blocked``, ending the sessions of the same feed and table whose epoch is ``over_at``.

    ``work`` must give up by itself (lock_timeout); ``watcher`` opens a second session, only if there is a wait.
    Raises what ``work`` raises; SinkUnavailableError names blockers that are not ours; SinkRefusedError a missing
    right.
    """
    outcome = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome.error = error
        finally:
            outcome.done.set()

    pid = blocked.info.backend_pid
    thread = threading.Thread(target=run, name=f"claim {mine}", daemon=True)
    thread.start()
    blockers: list[_Blocker] = []
    try:
        if not outcome.done.wait(GLANCE_SECONDS):
            with watcher() as watching:
                looks = 0
                while not outcome.done.wait(GLANCE_SECONDS):
                    looks += 1
                    ends_siblings = looks * GLANCE_SECONDS >= SIBLING_SECONDS
                    blockers = _look(watching, pid, mine, over_at, ends_siblings=ends_siblings) or blockers
    except BaseException:
        blocked.cancel_safe()
        raise
    finally:
        thread.join()
    if isinstance(outcome.error, errors.LockNotAvailable):
        named = ", ".join(map(str, blockers)) or "nobody visible to this user"
        raise SinkUnavailableError(
            f"{mine.table}: waited for a lock that is held by {named}; end that transaction, then try again"
        ) from outcome.error
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]


def _look(
    watching: Connection, pid: int, mine: Label, over_at: Callable[[Epoch], bool], *, ends_siblings: bool
) -> list[_Blocker]:
    blockers = [_Blocker(*row) for row in watching.execute(_BLOCKERS, (pid,))]
    for blocker in blockers:
        label = Label.parse(blocker.name)
        if label is None or (label.feed, label.table) != (mine.feed, mine.table) or not over_at(label.epoch):
            continue
        if not label.may_meet(mine) and not ends_siblings:
            continue
        try:
            watching.execute(_END, (blocker.pid, blocker.started, blocker.name))
        except psycopg.errors.InsufficientPrivilege as error:
            raise SinkRefusedError(
                f"{blocker} holds {mine.table} under an epoch that is over and cannot be ended by this user: "
                "use the same user for every agent, or GRANT pg_signal_backend"
            ) from error
    return blockers
