"""Agents that join or return: which sessions get spans from others, and the moves to them.

A session joins when its first answer of the term is read and it holds less than an even share of the shard's spans. A
new owner has not seen which sessions joined when. It treats as a joiner each session that holds less than half a share,
unless that is more load than others carry: then it is intended (schedulers/balance.py). Joiners are memory of the term,
as moves are.

Each shard evens out its own spans. A feed with ``spread: manual`` keeps its spans where they are.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.term import Joiner, SessionId
from headgate.coordinator.schedulers import even
from headgate.coordinator.schedulers.contract import Move
from headgate.records.keys import SpanKey


def note_answered(draft: CoordinatorDraft, session: SessionId) -> None:
    """Record that a session has answered this owner after the barrier: if for the first time, it has joined."""
    term = draft.term
    if session in term.met or not draft.is_answered(session):
        return
    term.met.add(session)
    counts = _counts(draft)
    if session in counts and not even.has_share(session, counts):
        _begin(draft, session)


def note_present(draft: CoordinatorDraft) -> None:
    """Once the barrier is over: a session that is present may have joined while the shard had no owner."""
    counts = _counts(draft)
    draft.term.met.update(counts)
    if not counts:
        return
    loads = {session: draft.state.agents[session].load_bytes_per_s for session in counts}
    share, mean = sum(counts.values()) // len(counts), sum(loads.values()) / len(loads)
    for session in sorted(counts):
        if 2 * counts[session] < share and loads[session] <= mean:
            _begin(draft, session)


def _begin(draft: CoordinatorDraft, session: SessionId) -> None:
    draft.term.joiners[session] = Joiner(draft.now.monotonic)
    if not draft.has_timer("even", ""):
        draft.set_timer("even", "", even.JOINED_SECONDS)


def _counts(draft: CoordinatorDraft) -> dict[SessionId, int]:
    """Spans of every session that may be assigned roles; one that is being moved counts for both."""
    return {session: draft.role_count(session) for session in draft.targets()}


def look(draft: CoordinatorDraft) -> tuple[dict[SessionId, int], dict[SessionId, int]]:
    """(how many spans each joiner can be sent now, spans of every target). Forget joiners that are done."""
    term = draft.term
    term.is_even_due = False
    counts = _counts(draft)
    rooms = {session: even.MOVING_PER_JOINER_MAX - _look(draft, session, counts) for session in sorted(term.joiners)}
    for session in rooms:
        if _is_over(draft, session, counts):
            del term.joiners[session]
    return {session: rooms[session] for session in term.joiners if session in counts}, counts


def may_join(draft: CoordinatorDraft, key: SpanKey, joiner: SessionId, automatic: dict[str, bool]) -> bool:
    """Whether the span may be offered to the joiner; ``automatic`` caches for a round which feeds allow it."""
    if key.feed not in automatic:
        automatic[key.feed] = _is_automatic(draft, key.feed)
    return automatic[key.feed] and key not in draft.term.joiners[joiner].offered


def note_begun(draft: CoordinatorDraft, begun: Iterable[Move]) -> None:
    """Record the moves to joiners that were started. As long as there are joiners they are checked again."""
    for move in begun:
        joiner = draft.term.joiners[move.target]
        joiner.offered.add(move.key)
        joiner.since = draft.now.monotonic
        joiner.moving_count += 1
    if draft.term.joiners:
        draft.set_timer("even", "", even.EVEN_SECONDS)


def _look(draft: CoordinatorDraft, session: SessionId, counts: dict[SessionId, int]) -> int:
    """How many spans are on their way to the joiner; in ``counts`` they no longer count for their givers."""
    joiner = draft.term.joiners[session]
    moving = joiner.failed_count = 0
    for key in sorted(joiner.offered):
        record = draft.span(key)
        role = None if record is None else record.secondary or record.primary
        if record is None or role is None or (role.agent, role.session) != session:
            joiner.failed_count += 1
        elif record.secondary is not None and record.primary is not None:
            moving += 1
            giver = (record.primary.agent, record.primary.session)
            if giver in counts:
                counts[giver] -= 1
    joiner.moving_count = moving
    return moving


def _is_over(draft: CoordinatorDraft, session: SessionId, counts: dict[SessionId, int]) -> bool:
    joiner = draft.term.joiners[session]
    is_full = session in counts and even.has_share(session, counts) and not joiner.moving_count
    is_late = draft.now.monotonic - joiner.since >= even.JOIN_SECONDS_MAX
    return is_full or is_late or joiner.failed_count >= even.FAILURES_MAX or not draft.is_live(session)


class _SpreadPart(msgspec.Struct):
    spread: Literal["auto", "manual"] = "auto"


def _is_automatic(draft: CoordinatorDraft, name: str) -> bool:
    feed = draft.feed(name)
    return feed is not None and msgspec.json.decode(feed.spec, type=_SpreadPart).spread == "auto"
