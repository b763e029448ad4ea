"""The checkpoint of a feed: the minimum over all of its spans, and what holds it back.

It never goes back within an incarnation. A span that no agent replicates, or of which nothing is known yet, holds it
where it is. So does a hole: partitions whose old span is being sealed while the new one waits. Positions are by table,
and stay as they are when it is divided. Their parts are counted as records come in (state.py, index.py). This module
writes the checkpoint, at most once a second per feed and only if something has changed, so an idle feed costs nothing.

A span that is moved, lost, or divided differently in the second before a new owner starts may be further, at the sink,
than this record shows: the new owner counts only the reports of current primaries (a report does not contain its
incarnation), and the next one's claim brings what was sealed. The record shows less than the truth, never more. Where
no primary follows, because the feed has stopped or ended, the last positions are written at that point
(feed_lifecycle.py).
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.index import FeedIndex
from headgate.coordinator.core.spans.stages import standing_of
from headgate.records.control import FeedProgressed, HeldBy, Positions, WantedState
from headgate.records.fitting import fitted
from headgate.records.keys import FeedProgressKey, SpanKey
from headgate.records.levels import withheld
from headgate.records.ts import ts_of_ms

CHECKPOINT_SECONDS: Final = 1.0
"""Pace of a feed's checkpoint: a person sees it move; agents report at the same pace."""

POSITIONS_SPANS_MAX: Final = 1_000
"""Most spans whose positions are combined in a feed's own record: beyond, it would come near Kafka's 1 MiB limit, and
``positions`` is empty; each span's positions are in its own records on the checkpoint topic."""


UNAPPLIED_SPANS_MAX: Final = 1_000
"""Most spans without progress that a feed's record names, those that have waited longest: as for positions."""


def note_change(draft: CoordinatorDraft, feed: str) -> None:
    """Something of the feed has changed: check its checkpoint within a second."""
    if not draft.has_timer("checkpoint", feed):
        draft.set_timer("checkpoint", feed, CHECKPOINT_SECONDS)


def write(draft: CoordinatorDraft, name: str) -> int | None:
    """Write the feed's checkpoint if it has changed. Return the ts up to which all its spans are complete, if known.

    That may be less than what was reported before: nothing is known yet of a table that has joined since.
    """
    state, feed = draft.state, draft.feed(name)
    if feed is None:
        return None
    index, said = state.index.feed(name), state.feed_progress.get(name)
    if said is not None and (said.feed_id, said.incarnation) != (feed.feed_id, feed.incarnation):
        said = None
    unapplied = _unapplied(draft, name, index, said) if feed.wanted is WantedState.RUNNING else {}
    complete, looked_ms = draft.term.complete.get(name, (frozenset(), 0))
    least_ts = index.least_ts(complete, ts_of_ms(looked_ms))
    told = FeedProgressed(
        feed_id=feed.feed_id,
        incarnation=feed.incarnation,
        owner_rev=draft.term.owner_rev,
        positions=_positions(index),
        checkpoint_ts=_never_back(least_ts, None if said is None else said.checkpoint_ts),
        held_by=_held_by(draft, name, index, said, unapplied) if feed.wanted is WantedState.RUNNING else None,
        progressed_ms=draft.now.wall_ms,
        resolved_ts=_never_back(index.least_resolved_ts(), None if said is None else said.resolved_ts),
        unapplied=unapplied or None,
    )
    record = fitted(withheld(told, state.level))
    if said is not None and replace(record, owner_rev=said.owner_rev, progressed_ms=said.progressed_ms) == said:
        return index.least_resolved_ts()
    draft.put(FeedProgressKey(name), record)
    return index.least_resolved_ts()


def _positions(index: FeedIndex) -> dict[str, Positions]:
    if len(index.plans) > POSITIONS_SPANS_MAX:
        return {}
    return {table: dict(positions) for table, positions in sorted(index.positions.items())}


def _never_back(least: int | None, before: int | None) -> int | None:
    """The greater of both; while a span is missing, the value reported before."""
    if least is None or before is None:
        return before if least is None else least
    return max(before, least)


def _unapplied(draft: CoordinatorDraft, name: str, index: FeedIndex, said: FeedProgressed | None) -> dict[str, int]:
    """Result of the last check of the source; before the first one of this term, what was reported before."""
    before = {} if said is None else said.unapplied or {}
    found = draft.term.unapplied.get(name, before)
    worst = sorted((append_ms, span) for span, append_ms in found.items() if span in index.plans)[:UNAPPLIED_SPANS_MAX]
    return {span: append_ms for append_ms, span in sorted(worst, key=lambda each: each[1])}


def _paused(draft: CoordinatorDraft, name: str) -> SpanKey | None:
    """A paused table that had changes to apply at the last check of the source, or may have had."""
    feed, (complete, _) = draft.feed(name), draft.term.complete.get(name, (frozenset(), 0))
    tables = () if feed is None else feed.paused
    return next((SpanKey(name, paused.table) for paused in tables if paused.table not in complete), None)


def _held_by(
    draft: CoordinatorDraft, name: str, index: FeedIndex, said: FeedProgressed | None, unapplied: Mapping[str, int]
) -> HeldBy | None:
    """What holds the checkpoint: a span that no agent replicates, else one that fails, stalls, or lags most.

    If there is none, a paused table.
    """
    waiting, erring, lagging = index.waiting.first(), draft.first_erring(name), index.lagging.first()
    late = min(unapplied, key=lambda span: (unapplied[span], span), default=lagging)
    key = waiting if waiting is not None else erring
    if key is None and late is not None:
        key = SpanKey(name, late)
    if key is None:
        key = _paused(draft, name)
    if key is None:
        return None
    standing = standing_of(draft.state, key, unapplied)
    since = draft.now.wall_ms if standing.since_ms is None else standing.since_ms
    if (
        said is not None
        and said.held_by is not None
        and (said.held_by.span, said.held_by.stage) == (key.span, standing.stage)
    ):
        since = said.held_by.since_ms
    return HeldBy(span=key.span, stage=standing.stage, agent=standing.agent, since_ms=since, detail=standing.detail)
