"""How long the owner waits for each session. Memory of one term: a new owner waits again.

Three waits are for something that a session does by itself, though its heartbeats may continue while it hangs
(deadlines.py handles their ends):

    a primary starts      from its role to its first report as the writer                            START_SECONDS_MAX
    a primary drains      from "hand over", or "close", to its report that the table is sealed       DRAIN_SECONDS_MAX
    a writer stops        an undetermined session that a span without a primary waits for           STOP_SECONDS_MAX

A session that overruns one is **skipped** for that table: its reports on the table under that epoch, or a lower one, no
longer keep other agents from it. The agent that gets the table claims it under a higher epoch. From then on the sink
refuses the writes of the skipped session, as it refuses those of a thawed process (sinks/contract.py). The session
keeps its other tables: trouble with one table does not affect another.
"""

from collections.abc import Iterable
from typing import Final

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.replication import SpanPhase, phase
from headgate.coordinator.core.term import RoleWait, SessionId
from headgate.records.control import Assignment, Epoch, SpanDispatched, TaskReported, TaskState
from headgate.records.keys import SpanKey

START_SECONDS_MAX: Final = 120.0
"""From a role as primary to writing: a cold Spark (12 s), a claim that ends a blocking session, many tables at once. An
agent that takes longer has hung while its heartbeats continue; on another agent, or on a retry, the table may start."""

DRAIN_SECONDS_MAX: Final = 60.0
"""From "drain" to sealed: a batch under way (seconds, tens where the sink is slow) and one row at the sink. Too short a
limit costs no more than that batch, which the next writer applies again; waiting costs the table its pause. The time
starts again while the session still ends other drains: a feed that stops may request thousands of it at once."""

STOP_SECONDS_MAX: Final = 60.0
"""As for a drain, for a session that was never asked to seal."""

_SECONDS_MAX: Final = {"start": START_SECONDS_MAX, "drain": DRAIN_SECONDS_MAX}

MAY_WRITE: Final = (TaskState.REPLICATING, TaskState.STOPPING)
"""States reported by a session that may be writing."""


def watch(draft: CoordinatorDraft, key: SpanKey, record: SpanDispatched) -> None:
    """Start, or end, the waits that the record implies."""
    at, term = phase(record), draft.term
    if at is SpanPhase.REPLICATING:
        term.avoided.pop(key, None)
    _watch(draft, "start", term.starting, key, record.primary if at is SpanPhase.COMMIT else None)
    is_draining = at in (SpanPhase.HANDOVER, SpanPhase.REMOVING)
    ended = _watch(draft, "drain", term.draining, key, record.primary if is_draining else None)
    if ended is not None:
        term.drained_at[ended.agent, ended.session] = draft.now.monotonic
        if not term.draining:
            term.drained_at.clear()


def _watch(
    draft: CoordinatorDraft, timer: str, waits: dict[SpanKey, RoleWait], key: SpanKey, role: Assignment | None
) -> Assignment | None:
    """Update a span's wait. All share one timer, because all have the same limit.

    A timer per span would cost a first dispatch a second. ``role`` is the role that the span waits for now. Return the
    role that it no longer waits for.
    """
    before = waits.get(key)
    if before is not None and before.role == role:
        return None
    if before is not None:
        del waits[key]
    if role is not None:
        waits[key] = RoleWait(role, draft.now.monotonic)
        if len(waits) == 1:
            draft.set_timer(timer, "", _SECONDS_MAX[timer])
    return None if before is None else before.role


def await_stops(draft: CoordinatorDraft, key: SpanKey, sessions: Iterable[SessionId]) -> None:
    """Limit the wait of ``key`` for sessions that report that they may be writing it, during which no agent gets it."""
    stops = draft.term.stops
    for session in sessions:
        if (key, session) not in stops:
            stops[key, session] = draft.now.monotonic
            if not draft.has_timer("stop", ""):
                draft.set_timer("stop", "", STOP_SECONDS_MAX)


def pass_over(draft: CoordinatorDraft, key: SpanKey, session: SessionId, epoch: Epoch) -> None:
    """Skip the session, which has had its time: see the module's docstring."""
    draft.term.avoided[key] = session
    draft.term.passed_over.setdefault(session, {})[key] = epoch


def is_passed_over(draft: CoordinatorDraft, key: SpanKey, session: SessionId, epoch: Epoch) -> bool:
    """Whether the session's reports on the span under ``epoch`` no longer keep other agents from it."""
    passed = draft.term.passed_over.get(session)
    return passed is not None and key in passed and epoch <= passed[key]


def passed_over(draft: CoordinatorDraft, key: SpanKey) -> set[SessionId]:
    """Sessions that were skipped for the span, or for another with a partition of it."""
    if not draft.term.passed_over:
        return set()
    keys = {key, *draft.state.index.overlapping(key)}
    return {session for session, passed in draft.term.passed_over.items() if keys & passed.keys()}


def forgive(draft: CoordinatorDraft, key: SpanKey, words: dict[SessionId, TaskReported]) -> None:
    """Re-admit the sessions that were skipped for the span and have stopped since."""
    for session, passed in sorted(draft.term.passed_over.items()):
        word = words.get(session)
        if key in passed and (word is None or word.state not in MAY_WRITE):
            del passed[key]
            if not passed:
                del draft.term.passed_over[session]
