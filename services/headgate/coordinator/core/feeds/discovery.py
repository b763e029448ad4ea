"""Repeated checks of a running feed: whether its source is still as it was when the feed was accepted.

    timer discover ──DiscoverTables──▶ new tables join: wanted spans, each from its earliest change
          ▲                     │────▶ problems are reported (``FeedRecorded.notices``) and hold no other table
          └──── after each ─────┘────▶ a topic has more partitions than planned: the feed stops and shows what to do
                                │──▶ a change log has more partitions than planned: they become a part of its table
                                └──▶ of a change log: what the sink has is reported, so that the rest is not retired

A table joins by one record, the feed's. From that record on the feed's checkpoint cannot move past it: a wanted span
of which nothing is known holds it (checkpoint.py). A feed may start without any table; its checkpoint then has no
positions, and no ts is claimed, because the rows of a table that joins can be older than any check.

A feed that has reached its target is checked once more before it may end (``has_all``): a table that came since the
check before may have changes up to the target.

A table whose topic no longer exists fails on its agent (``source_topic_missing``), and is retried like any other
failure.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.effects import DiscoverTables, FeedRefused, TablesDiscovered
from headgate.coordinator.core.outcomes import change_wish
from headgate.coordinator.core.sink_ownership import written_by_others
from headgate.coordinator.core.spans import copying, dividing, span_lifecycle
from headgate.records.control import FeedRecorded, Positions, SpanPlan, WantedState
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.fitting import fitted, why_unwritable
from headgate.records.keys import FeedKey
from headgate.records.levels import withheld
from headgate.records.refusals import is_warning
from headgate.records.spans import table_of
from headgate.records.ts import ts_of_ms
from headgate.runtime.machine import EffectFailed

__all__ = ["DISCOVER_SECONDS", "begin", "finish", "has_all", "look", "reads_change_log", "watch", "why_not_resumed"]

DISCOVER_SECONDS: Final = 10.0
"""Between the end of a check and the next. A check is one request for the broker's metadata; a new table waits for it,
and until then the checkpoint does not know of the table, so it should not wait longer than people do."""

WARNINGS_MAX: Final = 20
"""Warnings about tables that joined, the newest ones. A pattern can match thousands."""

_WAY_OUT: Final = (
    "changes of a key may be in two partitions now, and their order is lost; let the source write to a new topic with "
    "as many partitions as wanted, remove this feed, copy the table again, and create the feed again"
)


def begin(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    """Start checks of a new feed. A change log gets its first report at once, because no agent starts before that."""
    watch(draft, name, feed)
    if reads_change_log(feed):
        draft.set_timer("discover", name, 0.0)


def watch(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    """Check the feed's source repeatedly while the feed runs, and only then."""
    if feed.wanted is not WantedState.RUNNING:
        draft.cancel_timer("discover", name)
        draft.term.last_looks.pop(name, None)
        draft.term.unapplied.pop(name, None)
        draft.term.complete.pop(name, None)
    elif name not in draft.term.discovering and not draft.has_timer("discover", name):
        draft.set_timer("discover", name, DISCOVER_SECONDS)


def look(draft: CoordinatorDraft, name: str) -> None:
    """On the timer: request the next check."""
    feed = draft.feed(name)
    if feed is not None and feed.wanted is WantedState.RUNNING:
        draft.term.discovering.add(name)
        is_last = name in draft.term.last_looks
        positions = _positions(draft, name, feed) if reads_change_log(feed) else {}
        # The index changes while the effect is run on another thread.
        reached = {table: dict(known) for table, known in draft.state.index.feed(name).positions.items()}
        draft.add_effect(DiscoverTables(name, feed.feed_id, feed.spec, feed.spans, is_last, positions, reached))


def _positions(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> Positions:
    """By partition, from the feed's checkpoint: a change log is one table's."""
    said = draft.state.feed_progress.get(name)
    if said is None or (said.feed_id, said.incarnation) != (feed.feed_id, feed.incarnation):
        return {}
    return {partition: offset for table in said.positions.values() for partition, offset in sorted(table.items())}


class _SourcePart(msgspec.Struct, frozen=True):
    change_log: str | None = None


class _SpecPart(msgspec.Struct):
    source: _SourcePart = _SourcePart()


def reads_change_log(feed: FeedRecorded) -> bool:
    """Whether its source is a change log of generations."""
    return msgspec.json.decode(feed.spec, type=_SpecPart).source.change_log is not None


def has_all(draft: CoordinatorDraft, name: str) -> bool:
    """Whether a check that began after the first call of this has found nothing that the feed lacks.

    Called for a feed at its target. A check that was already under way may have missed what came after it read.
    """
    term = draft.term
    if name not in term.last_looks:
        term.last_looks[name] = False
        draft.cancel_timer("discover", name)
        if name not in term.discovering:
            look(draft, name)
    return term.last_looks[name]


def finish(draft: CoordinatorDraft, effect: DiscoverTables, result: Any) -> None:
    """Handle the service's result. It is ignored if the feed no longer runs, or is another feed by now."""
    name = effect.feed
    draft.term.discovering.discard(name)
    feed = draft.feed(name)
    if feed is None:
        return
    if feed.wanted is WantedState.RUNNING and (feed.feed_id, feed.spec) == (effect.feed_id, effect.spec):
        match result:
            case TablesDiscovered(grown=str(grown)):
                _stop(draft, name, feed, grown)
                return
            case TablesDiscovered():
                _note_unapplied(draft, name, feed, result)
                found = _with_partitions(draft, name, result)
                has_joined = _join(draft, name, draft.feed(name) or feed, found)
                _note_last(draft, effect, has_joined=has_joined)
            case EffectFailed(reason=reason) | FeedRefused(reason=reason):
                notice = f"the source could not be checked: {reason}"
                _join(draft, name, feed, TablesDiscovered(notices=(notice,)))
            case _:
                raise TypeError(f"{type(result).__name__} is not an answer to {type(effect).__name__}")
    watch(draft, name, feed)


def _note_unapplied(draft: CoordinatorDraft, name: str, feed: FeedRecorded, found: TablesDiscovered) -> None:
    """Record which spans make no progress, for the feed's next checkpoint."""
    unapplied = found.unapplied
    if unapplied is None:
        return
    before = draft.term.unapplied.get(name)
    draft.term.unapplied[name] = dict(unapplied)
    draft.term.complete[name] = (frozenset(found.complete), found.looked_ms)
    said = draft.state.feed_progress.get(name)
    told, told_ts = (None, None) if said is None else (said.unapplied, said.checkpoint_ts)
    least_ts = draft.state.index.feed(name).least_ts(frozenset(found.complete), ts_of_ms(found.looked_ms))
    if (before or {}) != unapplied or (told or {}) != unapplied or (least_ts or 0) > (told_ts or 0):
        draft.feeds_touched.add(name)
    span_lifecycle.note_recovered(draft, feed, name, unapplied)


def _note_last(draft: CoordinatorDraft, effect: DiscoverTables, *, has_joined: bool) -> None:
    """The source of a feed that may be at its target has been checked successfully."""
    name, looks = effect.feed, draft.term.last_looks
    if name not in looks:
        return
    if has_joined:
        del looks[name]  # another one, once what has joined is at the target, too
    elif effect.is_last:
        looks[name] = True
    else:
        look(draft, name)


def _with_partitions(draft: CoordinatorDraft, name: str, found: TablesDiscovered) -> TablesDiscovered:
    """``found`` after partitions that a change log has gained are planned, or with a notice why they are not yet."""
    if found.added is None:
        return found
    reason = dividing.add_partitions(draft, name, found.added)
    if reason is None:
        return found
    notice = f"partitions {sorted(found.added.start)} of topic {found.added.topic} are not read yet: {reason}"
    return replace(found, notices=(*found.notices, notice))


def _join(draft: CoordinatorDraft, name: str, feed: FeedRecorded, found: TablesDiscovered) -> bool:
    """Add the tables that join to the feed. Return whether any has joined."""
    known = {plan.topic for plan in feed.spans} | {plan.table for plan in feed.spans}
    new, wrong = [], []
    for plan in found.joined:
        if plan.topic in known or plan.table in known:
            continue  # an update was quicker
        copies = {plan.table: found.copies[plan.table]} if plan.table in found.copies else {}
        reason = _why_left_out(draft, name, feed, plan) or copying.why_not_copied_yet(draft, name, copies)
        if reason is None:
            new.append(plan)
        else:
            wrong.append(f"topic {plan.topic} is left out: {reason}")
    # No client was there to read them, so they stay until the feed is updated or resumed.
    warnings = (*filter(is_warning, feed.notices), *(found.warnings if new else ()))[-WARNINGS_MAX:]
    notices = (*found.notices, *wrong, *warnings)
    changed = fitted(withheld(replace(feed, notices=notices), draft.state.level))
    if not new and changed.notices == feed.notices:
        return False
    changed = replace(
        changed,
        owner_rev=draft.term.owner_rev,
        spans=tuple(sorted((*feed.spans, *new), key=lambda plan: plan.span)) if new else feed.spans,
        changed_ms=draft.now.wall_ms,
    )
    changed = withheld(changed, draft.state.level)
    draft.put(FeedKey(name), changed)
    if new:
        copies = {plan.table: found.copies[plan.table] for plan in new if plan.table in found.copies}
        copying.begin_snapshots(draft, name, feed.feed_id, copies)
        draft.feeds_touched.add(name)
        # The spans are in the index once this is evolved; the next round, at once, takes them from there.
        draft.set_timer("schedule", "", 0.0)
    return bool(new)


def _why_left_out(draft: CoordinatorDraft, name: str, feed: FeedRecorded, plan: SpanPlan) -> str | None:
    if table_of(plan.span) != plan.span:
        return f"table {plan.span} cannot be distinguished from a part of {table_of(plan.span)}. Change sink.table"
    unwritable = why_unwritable(plan)
    if unwritable is not None:
        return unwritable
    other = written_by_others(draft.state.index.written, name, feed.spec, feed.sink_id, [plan])
    return None if other is None else other.reason(name)


def _stop(draft: CoordinatorDraft, name: str, feed: FeedRecorded, grown: str) -> None:
    """Stop the feed: what has been read so far is in order; what follows may not be."""
    changed = replace(feed, error_code=PARTITIONS_GROWN, error=f"{grown}: {_WAY_OUT}")
    change_wish(draft, name, changed, WantedState.STOPPED, None)


def why_not_resumed(feed: FeedRecorded, name: str) -> str | None:
    """Why the feed can never be resumed; None if it can."""
    if feed.error_code != PARTITIONS_GROWN or reads_change_log(feed):  # older versions stopped those, too
        return None
    return f"feed {name!r} cannot continue: {feed.error}"
