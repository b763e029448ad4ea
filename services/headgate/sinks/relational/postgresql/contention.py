"""Finds the sessions that block another one: PostgreSQL lists them, and their labels identify their work."""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.faults import Fault
from headgate.databases.postgresql.errors import PostgresError, fault_of
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.relational.dialect import SIBLING_SECONDS
from headgate.sinks.relational.postgresql.connection import Label, PostgresSinkSession
from headgate.sinks.relational.session import RelationalSettings

__all__ = ["cancel", "end_blockers"]

_BLOCKERS: Final = """
SELECT a.pid, a.backend_start, a.application_name, a.usename, a.state, extract(epoch FROM now() - a.xact_start)::float8
FROM unnest(pg_blocking_pids(%s)) b JOIN pg_stat_activity a ON a.pid = b ORDER BY a.pid
"""

# Start time and name are checked again in the same statement: the pid may belong to another process by then.
_END: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND application_name = %s
"""


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


def end_blockers(  # noqa: PLR0917 - see Dialect
    watching: PostgresSinkSession,
    blocked: PostgresSinkSession,
    claim: Claim,
    table: str,
    over_at: Callable[[Epoch], bool],
    waited_seconds: float,
) -> list[str]:
    """See Dialect. Another part of the same table is given a moment first."""
    mine = Label.of(claim)
    blockers = [_Blocker(*row) for row in watching.execute(_BLOCKERS, (blocked.connection.info.backend_pid,))]
    for blocker in blockers:
        label = Label.parse(blocker.name)
        if label is None or (label.feed, label.table) != (mine.feed, mine.table) or not over_at(label.epoch):
            continue
        if not label.may_meet(mine) and waited_seconds < SIBLING_SECONDS:
            continue
        try:
            watching.execute(_END, (blocker.pid, blocker.started, blocker.name))
        except PostgresError as error:
            if fault_of(error) is not Fault.PERMISSION:
                raise
            raise SinkRefusedError(
                f"{blocker} holds {table} under an epoch that has ended, and this user may not end the session. Use "
                "the same user for every agent, or GRANT pg_signal_backend"
            ) from error
    return [str(blocker) for blocker in blockers]


def cancel(settings: RelationalSettings, blocked: PostgresSinkSession) -> None:
    """See Dialect."""
    del settings
    blocked.cancel()
