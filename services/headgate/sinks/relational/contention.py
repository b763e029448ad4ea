"""Waiting for a lock that another session holds: sessions of dead writers are ended, others are waited for.

A frozen process keeps its transaction, and with it the locks on the progress rows, without limit. So a claim does not
just wait: a second session finds out which sessions are in the way, and ends those that work for the same feed and
table under an epoch that is over. All others are waited for, with a limit, and then named. How a database identifies
them is in its dialect's ``contention``.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

from headgate.databases.faults import Fault
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkUnavailableError
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.session import RelationalSettings, Session
from headgate.supervision.threads import BackgroundThread

__all__ = ["run_past_blockers"]

GLANCE_SECONDS: Final = 0.05
"""Between two checks of the blocking sessions. A claim that waits for no session ends before the first."""

T = TypeVar("T")
S = TypeVar("S", bound=Session)


class _Outcome:
    """What the blocked statement came to, handed from its thread."""

    def __init__(self) -> None:
        self.value: object = None
        self.error: BaseException | None = None
        self.done = threading.Event()


def run_past_blockers(
    work: Callable[[], T],
    *,
    dialect: Dialect[S, Any, Any],
    settings: RelationalSettings,
    blocked: S,
    claim: Claim,
    table: str,
    over_at: Callable[[Epoch], bool],
) -> T:
    """Run ``work`` on session ``blocked``, ending the sessions of the same feed and table whose epoch is ``over_at``.

    ``work`` must give up by itself; a second session is opened only if there is a wait. Raises what ``work`` raises;
    SinkUnavailableError names blockers that are not ours; SinkRefusedError a missing right.
    """
    outcome = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome.error = error
        finally:
            outcome.done.set()

    thread = BackgroundThread(run, name="claim", detail=f"{table} {claim.epoch}")
    thread.start()
    blockers: Sequence[str] = ()
    try:
        if not outcome.done.wait(GLANCE_SECONDS):
            with closing(dialect.connect_watcher(settings)) as watching:
                looks = 0
                while not outcome.done.wait(GLANCE_SECONDS):
                    looks += 1
                    waited = looks * GLANCE_SECONDS
                    blockers = dialect.end_blockers(watching, blocked, claim, table, over_at, waited) or blockers
    except BaseException:
        dialect.cancel(settings, blocked)
        raise
    finally:
        thread.join()
    error = outcome.error
    if isinstance(error, dialect.error) and dialect.fault_of(error) is Fault.LOCK_WAIT:
        named = ", ".join(blockers) or dialect.unseen_blocker
        raise SinkUnavailableError(
            f"{table}: waited too long for a lock that is held by {named}. End that transaction; the table is retried"
        ) from error
    if error is not None:
        raise error
    return outcome.value  # type: ignore[return-value]
