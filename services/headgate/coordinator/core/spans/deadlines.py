"""Consequences of a deadline that a session has missed; waiting.py has the deadlines.

    prepare   the target of a move is not warm          the move ends, the table stays where it is
    start     a primary does not start to write         its role has failed; the table goes to another
    drain     a primary does not seal what it drains    skipped: the target of the move, or a closing agent, claims
    stop      an undetermined session does not stop     skipped: the table goes to any free agent

None of them checks why the session is slow: at the sink only one can write, the one that claimed last.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.replication import SpanSignal
from headgate.coordinator.core.signals import cause
from headgate.coordinator.core.spans import span_lifecycle, waiting
from headgate.coordinator.core.spans.waiting import DRAIN_SECONDS_MAX, START_SECONDS_MAX, STOP_SECONDS_MAX
from headgate.coordinator.core.term import RoleWait
from headgate.records.control import ReplicationState
from headgate.records.keys import SpanKey

START_CODE: Final = "start_timeout"

DRAIN_CODE: Final = "drain_timeout"

EXPIRIES_PER_DECISION_MAX: Final = 2_000
"""Drains given up in one decision: as many as are reviewed in one (span_lifecycle.REVIEWS_PER_DECISION_MAX)."""


def expire_prepare(draft: CoordinatorDraft, key: SpanKey) -> None:
    """End the move whose target has had its time."""
    record = draft.span(key)
    if record is None or record.secondary is None or record.state is not ReplicationState.PREPARE:
        return
    limit = f"{span_lifecycle.PREPARE_SECONDS_MAX:.0f} s"
    reason = f"{record.secondary.agent} was not prepared within {limit}; the table stays where it is"
    span_lifecycle.act(draft, key, record, SpanSignal.DEADLINE, cause(draft, reason=reason))


def expire_starts(draft: CoordinatorDraft, _subject: object) -> None:
    """Fail primaries that have had their time and do not replicate."""
    for key, wait in _overdue(draft, "start", draft.term.starting, START_SECONDS_MAX):
        text = f"{wait.role.agent} has not started to write within {START_SECONDS_MAX:.0f} s, without an error"
        _give_up(draft, key, wait, START_CODE, text)


def expire_drains(draft: CoordinatorDraft, _subject: object) -> None:
    """Skip primaries that were asked to drain, and have neither sealed nor failed."""
    term, now = draft.term, draft.now.monotonic
    for key, wait in islice(_overdue(draft, "drain", term.draining, DRAIN_SECONDS_MAX), EXPIRIES_PER_DECISION_MAX):
        session = wait.role.agent, wait.role.session
        if term.drained_at.get(session, float("-inf")) + DRAIN_SECONDS_MAX > now:
            term.draining[key] = RoleWait(wait.role, now)  # at the end: it is still draining others
            continue
        limit = f"{DRAIN_SECONDS_MAX:.0f} s"
        text = f"{wait.role.agent} has not sealed it within {limit}, so it is excluded: the next claim fences it"
        _give_up(draft, key, wait, DRAIN_CODE, text)
    if term.draining and not draft.has_timer("drain", ""):
        longest = next(iter(term.draining.values()))
        draft.set_timer("drain", "", max(longest.since + DRAIN_SECONDS_MAX - now, 0.0))


def _overdue(
    draft: CoordinatorDraft, timer: str, waits: dict[SpanKey, RoleWait], seconds: float
) -> Iterator[tuple[SpanKey, RoleWait]]:
    """Take out the waits that have had their time, the longest first; the first that has time left sets the timer."""
    for key, wait in list(waits.items()):
        left = wait.since + seconds - draft.now.monotonic
        if left > 0:
            draft.set_timer(timer, "", left)
            return
        del waits[key]
        yield key, wait


def _give_up(draft: CoordinatorDraft, key: SpanKey, wait: RoleWait, code: str, error: str) -> None:
    record = draft.span(key)
    if record is None or record.primary != wait.role or draft.is_abandoned(key.feed):
        return
    why = replace(cause(draft, reason=error), error_code=code, error=error)
    waiting.pass_over(draft, key, (wait.role.agent, wait.role.session), wait.role.epoch)
    span_lifecycle.act(draft, key, record, SpanSignal.DEADLINE, why)


def expire_stops(draft: CoordinatorDraft, _subject: object) -> None:
    """Skip undetermined sessions that a span has waited for long enough; the following round assigns the span."""
    stops = draft.term.stops
    for (key, session), since in list(stops.items()):
        if session not in span_lifecycle.writers(draft, key):
            del stops[key, session]
            continue
        left = since + STOP_SECONDS_MAX - draft.now.monotonic
        if left > 0:
            draft.set_timer("stop", "", left)
            return
        del stops[key, session]
        waiting.pass_over(draft, key, session, draft.state.tasks[key][session].epoch)
