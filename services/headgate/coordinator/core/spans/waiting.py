"""How long the owner waits for each session. Memory of one term: a new owner waits again.

Three waits are for something that a session does by itself, though its heartbeats may continue while it hangs (what
acts on their ends is in deadlines.py):

    a primary begins      from its role to its first word as the writer                              START_SECONDS_MAX
    a primary drains      from "hand over", or "close", to its word that the table is sealed         DRAIN_SECONDS_MAX
    a writer stops        an undetermined session that a span without a primary waits for           STOP_SECONDS_MAX

Who overruns one is **passed over** for that table: what it says of the table under that epoch, or a lower one, keeps
it from nobody any more. Whoever gets the table claims it under a higher epoch, and from then on the sink refuses what
the session that was passed over still does, as it refuses what a thawed process does (sinks/contract.py). Its other
tables stay: no table's trouble is another's.
"""

from collections.abc import Iterable
from typing import Final

from headgate.coordinator.core.draft import Draft
from headgate.coordinator.core.replication import Phase, phase
from headgate.coordinator.core.term import SessionId, Wait
from headgate.records.control import Assignment, Epoch, SpanDispatched, TaskReported, TaskState
from headgate.records.keys import SpanKey

START_SECONDS_MAX: Final = 120.0
"""From a role as primary to writing: a cold Spark (12 s), a claim that ends a blocking session, many tables at once. An
agent that takes longer has hung while its heartbeats go on; elsewhere, or tried again, the table may begin."""

DRAIN_SECONDS_MAX: Final = 60.0
"""From "drain" to sealed: a batch under way (seconds, tens where the sink is slow) and one row at the sink. To be
impatient costs no more than that batch, which the next writer applies again; to wait costs the table its pause. It runs
again while the session still ends other drains: thousands may have been asked of it at once (a feed that stops)."""

STOP_SECONDS_MAX: Final = 60.0
"""As a drain, of a session that was never told to seal."""

_SECONDS_MAX: Final = {"start": START_SECONDS_MAX, "drain": DRAIN_SECONDS_MAX}

MAY_WRITE: Final = (TaskState.REPLICATING, TaskState.STOPPING)
"""Words of a session that may be writing."""


def watch(draft: Draft, key: SpanKey, record: SpanDispatched) -> None:
    """Begin, or end, the waits that the record implies."""
    at, term = phase(record), draft.term
    if at is Phase.REPLICATING:
        term.avoided.pop(key, None)
    _watch(draft, "start", term.starting, key, record.primary if at is Phase.COMMIT else None)
    is_draining = at in (Phase.HANDOVER, Phase.REMOVING)
    ended = _watch(draft, "drain", term.draining, key, record.primary if is_draining else None)
    if ended is not None:
        term.drained_at[ended.agent, ended.session] = draft.now.monotonic
        if not term.draining:
            term.drained_at.clear()


def _watch(
    draft: Draft, timer: str, waits: dict[SpanKey, Wait], key: SpanKey, role: Assignment | None
) -> Assignment | None:
    """One timer for all, because all have the same time: a timer a span would cost a first dispatch a second.

    ``role`` is whom the span waits for now; the answer is whom it does not wait for any more.
    """
    before = waits.get(key)
    if before is not None and before.role == role:
        return None
    if before is not None:
        del waits[key]
    if role is not None:
        waits[key] = Wait(role, draft.now.monotonic)
        if len(waits) == 1:
            draft.set_timer(timer, "", _SECONDS_MAX[timer])
    return None if before is None else before.role


def await_stops(draft: Draft, key: SpanKey, sessions: Iterable[SessionId]) -> None:
    """Nobody is given a span while these say that they may be writing ``key``: not for ever."""
    stops = draft.term.stops
    for session in sessions:
        if (key, session) not in stops:
            stops[key, session] = draft.now.monotonic
            if not draft.has_timer("stop", ""):
                draft.set_timer("stop", "", STOP_SECONDS_MAX)


def pass_over(draft: Draft, key: SpanKey, session: SessionId, epoch: Epoch) -> None:
    """The session has had its time: see the module's docstring."""
    draft.term.avoided[key] = session
    draft.term.passed_over.setdefault(session, {})[key] = epoch


def is_passed_over(draft: Draft, key: SpanKey, session: SessionId, epoch: Epoch) -> bool:
    """Whether what the session says of the span under ``epoch`` keeps it from nobody."""
    passed = draft.term.passed_over.get(session)
    return passed is not None and key in passed and epoch <= passed[key]


def passed_over(draft: Draft, key: SpanKey) -> set[SessionId]:
    """Who has been passed over for the span, or for another with a partition of it."""
    if not draft.term.passed_over:
        return set()
    keys = {key, *draft.state.index.overlapping(key)}
    return {session for session, passed in draft.term.passed_over.items() if keys & passed.keys()}


def forgive(draft: Draft, key: SpanKey, words: dict[SessionId, TaskReported]) -> None:
    """Forget who was passed over for the span and has stopped since."""
    for session, passed in sorted(draft.term.passed_over.items()):
        word = words.get(session)
        if key in passed and (word is None or word.state not in MAY_WRITE):
            del passed[key]
            if not passed:
                del draft.term.passed_over[session]
