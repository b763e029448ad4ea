"""The global checkpoint of a feed: the least over all spans it wants, and what holds it.

It never goes back within an incarnation, and a span that nobody replicates or of which nothing is known yet holds it
where it
is. What it is made of is counted as records come in (state.py, index.py); here it is written down, at most once a
second per feed and only if something has changed, so an idle feed costs nothing.
"""

from typing import Final

from msgspec.structs import replace

from headgate.coordinator.draft import Draft
from headgate.coordinator.index import LAG_HOLDS_MS, FeedIndex
from headgate.coordinator.state import CoordinatorState
from headgate.records.control import FeedProgressed, HeldBy, Positions, Role, SetState, TaskState, WantedState
from headgate.records.keys import FeedProgressKey, SpanKey

__all__ = ["CHECKPOINT_SECONDS", "FLOWING", "POSITIONS_SPANS_MAX", "note_change", "stage_of", "write"]

CHECKPOINT_SECONDS: Final = 1.0
"""Pace of a feed's checkpoint: a person sees it move; agents report at the same pace."""

FLOWING: Final = "replicating"
"""The stage that holds nothing."""

POSITIONS_SPANS_MAX: Final = 1_000
"""Most spans whose positions are summed up in a feed's own record: beyond, it would come near Kafka's 1 MiB limit, and
``positions`` is empty; each span's stand in its own records on the checkpoint topic."""


def note_change(draft: Draft, feed: str) -> None:
    """Something of the feed has changed: look at its checkpoint within a second."""
    if not draft.has_timer("checkpoint", feed):
        draft.set_timer("checkpoint", feed, CHECKPOINT_SECONDS)


def write(draft: Draft, name: str) -> None:
    """Write the feed's checkpoint if it says anything new."""
    state, feed = draft.state, draft.feed(name)
    if feed is None:
        return
    index, said = state.index.feed(name), state.feed_progress.get(name)
    if said is not None and (said.feed_id, said.incarnation) != (feed.feed_id, feed.incarnation):
        said = None
    record = FeedProgressed(
        feed_id=feed.feed_id,
        incarnation=feed.incarnation,
        owner_rev=draft.term.owner_rev,
        positions=_positions(index),
        checkpoint_ts=_checkpoint_ts(index, said),
        held_by=_held_by(draft, name, index, said) if feed.wanted is WantedState.RUNNING else None,
        progressed_ms=draft.now.wall_ms,
    )
    if said is not None and replace(record, owner_rev=said.owner_rev, progressed_ms=said.progressed_ms) == said:
        return
    draft.put(FeedProgressKey(name), record)


def _positions(index: FeedIndex) -> dict[str, Positions]:
    if len(index.plans) > POSITIONS_SPANS_MAX:
        return {}
    return {span: dict(index.positions[span]) for span in sorted(index.plans) if span in index.positions}


def _checkpoint_ts(index: FeedIndex, said: FeedProgressed | None) -> int | None:
    """Least ts over the spans; while one is missing, what was said before."""
    before = None if said is None else said.checkpoint_ts
    first = index.ts.first()
    if first is None or len(index.ts) < len(index.plans):
        return before
    least: int = index.ts.rank(first)
    return least if before is None else max(before, least)


def _held_by(draft: Draft, name: str, index: FeedIndex, said: FeedProgressed | None) -> HeldBy | None:
    """A span that nobody replicates, else the one that lags most; None when nothing holds."""
    waiting = index.waiting.first()
    lagging = index.lagging.first()
    key = waiting if waiting is not None else None if lagging is None else SpanKey(name, lagging)
    if key is None:
        return None
    stage, agent, detail = stage_of(draft.state, key)
    since = draft.now.wall_ms
    if said is not None and said.held_by is not None and (said.held_by.span, said.held_by.stage) == (key.span, stage):
        since = said.held_by.since_ms
    return HeldBy(span=key.span, stage=stage, agent=agent, since_ms=since, detail=detail)


def stage_of(state: CoordinatorState, key: SpanKey) -> tuple[str, str | None, str]:
    """(stage, agent, detail) of a span: where it stands on its way to being replicated, from the log alone.

    Stages: agent missing, scheduling, retrying, starting, preparing, claiming, handover, closing, lagging, replicating.
    """
    record = state.spans.get(key)
    if record is None or record.primary is None:
        return _stage_of_unassigned(state, key)
    role = record.primary
    word = state.tasks.get(key, {}).get((role.agent, role.session))
    doing = word.state if word is not None and word.epoch == role.epoch else None
    if record.state is SetState.REMOVING:
        return "closing", role.agent, "its last position is being sealed at the sink"
    if record.secondary is not None and record.state is SetState.COMMIT:
        return "handover", role.agent, f"being drained and sealed for {record.secondary.agent}"
    if record.state is SetState.COMMIT:
        return _stage_of_start(role, doing, record.last_error)
    progress = state.progress.get(key, {}).get((role.agent, role.session))
    if progress is not None and progress.epoch == role.epoch and progress.lag_ms >= LAG_HOLDS_MS:
        lag_seconds = progress.lag_ms / 1000
        return "lagging", role.agent, f"its last batch became visible {lag_seconds:.1f} s after it was logged"
    return FLOWING, role.agent, ""


def _stage_of_start(role: Role, doing: TaskState | None, last_error: str | None) -> tuple[str, str | None, str]:
    before = f"; before: {last_error}" if last_error else ""
    if doing is None:
        return "starting", role.agent, f"told to replicate; no word from the agent yet{before}"
    stage = "preparing" if doing is TaskState.PREPARING else "claiming"
    return stage, role.agent, f"the agent reports {doing}{before}"


def _stage_of_unassigned(state: CoordinatorState, key: SpanKey) -> tuple[str, str | None, str]:
    record = state.spans.get(key)
    if record is not None and record.failures:
        return "retrying", None, f"failed {record.failures} times in a row; {record.last_error}"
    if not state.index.live:
        return "agent missing", None, "no agent is alive"
    if record is not None and record.state is SetState.REMOVING:
        return "closing", None, "waits for an agent to seal it"
    return "scheduling", None, "waits for an agent with a free seat, or for one that has not stopped writing it yet"
