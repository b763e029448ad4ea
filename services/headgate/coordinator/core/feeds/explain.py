"""Why a feed's checkpoint is where it is: structured reasons from a replayed state, for ``headgate why``.

A stall without a message is what users of such systems report most (TiCDC's issues). So every table that is not
replicating, has failed or lags is named with its stage, its agent, since when, and what to do.
"""

from typing import Final

import msgspec

from headgate.coordinator.core.spans.stages import FLOWING, SpanStanding, feed_held_by, standing_of
from headgate.coordinator.core.state import CoordinatorState
from headgate.records.control import FeedState, WantedState
from headgate.records.keys import SpanKey

REASONS_MAX: Final = 50
"""Tables named at once; ``held_count`` is their total number."""


class UnknownFeedError(Exception):
    """The feed does not exist. The message lists those that do."""


class Reason(msgspec.Struct, frozen=True):
    """One table, or part of one, that holds the feed back. ``since_ms``: since 1970, by the writer's clock.

    ``is_late`` means that it replicates and only its last batch was late, ``is_copying`` that its rows are not all
    copied from the source yet (stages.py).
    """

    span: str
    table: str
    stage: str
    agent: str | None
    since_ms: int
    detail: str
    advice: str
    is_late: bool = False
    is_copying: bool = False


class Explanation(msgspec.Struct, frozen=True):
    """A feed, its desired state, how far it is, and what holds it: some of its tables, or the feed as a whole.

    A part of a table counts as one. ``changed_ms``: when the feed was created or last changed, by its owner's clock.
    """

    feed: str
    feed_id: str
    wanted: WantedState
    state: FeedState
    checkpoint_ts: int | None
    table_count: int
    held_count: int
    reasons: tuple[Reason, ...]
    changed_ms: int
    feed_held_by: tuple[str, ...] = ()


def explain(state: CoordinatorState, feed: str, *, has_owner: bool = True, kept_by: str = "") -> Explanation:
    """Why the feed is where it is, from the records alone. Raises UnknownFeedError.

    ``has_owner``: whether the shard's owner is there; its last report may be old. ``kept_by``: the migration that
    pauses and resumes the feed, empty for an operator's feed.
    """
    record = state.feeds.get(feed)
    if record is None:
        known = ", ".join(sorted(state.feeds)) or "none"
        raise UnknownFeedError(f"feed {feed!r} does not exist; existing feeds: {known}")
    held = [
        (SpanKey(feed, plan.span), plan.table)
        for plan in record.spans
        if _is_held(state, SpanKey(feed, plan.span), record.wanted)
    ]
    said = state.feed_progress.get(feed)
    return Explanation(
        feed=feed,
        feed_id=record.feed_id,
        wanted=record.wanted,
        state=record.state,
        checkpoint_ts=None if said is None or said.feed_id != record.feed_id else said.checkpoint_ts,
        table_count=len(record.spans),
        held_count=len(held),
        reasons=tuple(_reason(state, key, table) for key, table in held[:REASONS_MAX]),
        changed_ms=record.changed_ms,
        feed_held_by=feed_held_by(state, feed, has_owner=has_owner, kept_by=kept_by),
    )


def _is_held(state: CoordinatorState, key: SpanKey, wanted: WantedState) -> bool:
    if wanted is WantedState.RUNNING:
        return standing_of(state, key).stage != FLOWING
    record = state.spans.get(key)
    return record is not None and not record.sealed


def _reason(state: CoordinatorState, key: SpanKey, table: str) -> Reason:
    at = standing_of(state, key)
    since_ms = _since_ms(state, key, at)
    return Reason(key.span, table, at.stage, at.agent, since_ms, at.detail, at.advice, at.is_late, at.is_copying)


def _since_ms(state: CoordinatorState, key: SpanKey, at: SpanStanding) -> int:
    """Since when, as far as the log shows: by the checkpoint, the agent's last report, or the feed's last change."""
    if at.since_ms is not None:
        return at.since_ms
    said = state.feed_progress.get(key.feed)
    if (
        said is not None
        and said.held_by is not None
        and (said.held_by.span, said.held_by.stage) == (key.span, at.stage)
    ):
        return said.held_by.since_ms
    record = state.spans.get(key)
    if record is not None and record.primary is not None:
        word = state.tasks.get(key, {}).get((record.primary.agent, record.primary.session))
        if word is not None and word.epoch == record.primary.epoch:
            return word.reported_ms
    return state.feeds[key.feed].changed_ms
