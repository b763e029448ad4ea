"""Acceptance of a feed: its spec is resolved and recorded when it is created, updated or repositioned.

The machine knows neither brokers nor sinks. It accepts the request, asks for an effect, and decides on its result.
Much may have happened since: the name taken, the feed resumed, the request withdrawn.

- **update**: only while the feed is stopped, when no agent runs any of it. What defines a feed (FIXED) cannot change;
  tables may join, none may leave. The record's ``revision`` grows, so that no agent starts with an older spec.
- **rewind** (resume from a position): only while stopped. The record's ``incarnation`` grows; a claim of a higher
  incarnation sets the sink's positions to the new start offsets (sinks/contract.py), and the checkpoint starts again.
"""

from itertools import filterfalse
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.effects import (
    FeedRefused,
    FeedResolved,
    ResolveFeed,
    ResolveStart,
    StartResolved,
)
from headgate.coordinator.core.feeds.discovery import DISCOVER_SECONDS, begin, why_not_resumed
from headgate.coordinator.core.outcomes import (
    FINISHED_ADVICE,
    change_wish,
    no_such_feed,
    refuse,
    waits_for_upgrade,
)
from headgate.coordinator.core.signals import CONFLICT_CODE
from headgate.coordinator.core.sink_ownership import sink_of, written_by_others
from headgate.coordinator.core.spans import copying
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    WantedState,
)
from headgate.records.fitting import is_name, why_unwritable
from headgate.records.keys import FeedKey
from headgate.records.levels import withheld
from headgate.records.name_lists import number_of, shown_names
from headgate.records.names import InvalidNameError, check_name
from headgate.records.refusals import coded, is_warning
from headgate.records.slices import slice_of
from headgate.records.spans import table_of
from headgate.records.stored_names import has_slices, plans_today, table_today
from headgate.records.ts import TS_MAX
from headgate.runtime.machine import EffectFailed

__all__ = [
    "FIXED",
    "ask_again",
    "create",
    "finish",
    "rewind",
    "update",
    "why_name_taken",
    "why_not_created",
    "why_not_updated",
]

EFFECT_RETRY_SECONDS: Final = 5.0
"""Pause before an effect that could not be run is requested again."""

FIXED: Final = (
    ("feed",),
    ("source", "format"),
    ("source", "change_log"),
    ("source", "start"),
    ("source", "start_ts"),
    ("source", "start_offsets"),
    ("source", "target_ts"),
    ("sink", "type"),
    ("sink", "dsn"),
    ("sink", "connection"),
    ("sink", "store", "endpoint"),
    ("sink", "registry", "url"),
    ("sink", "table"),
    ("sink", "format"),
    ("sink", "partitions"),
    ("sink", "mode"),
    ("snapshot", "mode"),
)
"""Options that an update may not change: they define the feed, or were used up when it was accepted."""


def create(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a create_feed: resolve its spec."""
    try:
        check_name("feed", requested.feed)
    except InvalidNameError as error:
        return refuse(draft, request, coded("feed_spec", str(error)))
    if requested.spec is None:
        return refuse(draft, request, "the request has no spec. Give it a source and a sink")
    reason = why_name_taken(draft, request, requested.feed)
    if reason is not None:
        return refuse(draft, request, reason)
    draft.settle(request, OutcomeStatus.ACCEPTED, "looking at the source topics and the sink")
    draft.add_effect(ResolveFeed(request, requested.feed, requested.spec))
    return None


def why_name_taken(draft: CoordinatorDraft, request: str, name: str) -> str | None:
    """Why no feed of this name can be created now; None if one can."""
    feed = draft.feed(name)
    if feed is not None and feed.wanted is WantedState.REMOVED:
        return f"feed {name!r} is still being removed: try again when it is gone"
    if feed is not None:
        return f"feed {name!r} already exists. Change it with `headgate feed update`, or choose another name"
    for other, placed in sorted(draft.state.requests.items()):
        outcome = draft.outcome(other)
        is_under_way = outcome is not None and outcome.status is OutcomeStatus.ACCEPTED
        if (
            other != request
            and is_under_way
            and (placed.request.kind, placed.request.feed)
            == (
                OperationKind.CREATE_FEED,
                name,
            )
        ):
            return f"feed {name!r} is being created by request {other}"
    return None


def update(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start an update_feed: resolve the new spec."""
    feed = draft.feed(requested.feed)
    reason = no_such_feed(draft, requested.feed) if feed is None else _why_not_stopped(feed, requested.feed, "updated")
    if reason is None and requested.spec is None:
        reason = "the request has no spec. Send the feed's specification"
    if reason is not None:
        return refuse(draft, request, reason)
    draft.settle(request, OutcomeStatus.ACCEPTED, "looking at the source topics and the sink")
    draft.add_effect(_resolve(request, requested, feed))
    return None


def _resolve(request: str, requested: OperationRequested, feed: FeedRecorded | None) -> ResolveFeed:
    """The effect that resolves the request. A feed that is updated keeps its spans."""
    is_update = requested.kind is OperationKind.UPDATE_FEED
    if feed is None or not is_update:
        return ResolveFeed(request, requested.feed, requested.spec or "")
    return ResolveFeed(request, requested.feed, requested.spec or "", plans_today(feed), feed.spec)


def rewind(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a resume_feed with a start position: resolve its offsets."""
    feed = draft.feed(requested.feed)
    reason = no_such_feed(draft, requested.feed) if feed is None else _why_not_rewound(feed, requested.feed)
    if reason is not None or feed is None:
        return refuse(draft, request, reason or "")
    draft.settle(request, OutcomeStatus.ACCEPTED, "determining the offsets to continue from")
    draft.add_effect(ResolveStart(request, requested.feed, requested.spec or "", feed.spans, feed.spec))
    return None


def _why_not_stopped(feed: FeedRecorded, name: str, what: str) -> str | None:
    if (feed.wanted, feed.state) == (WantedState.STOPPED, FeedState.STOPPED):
        return None
    if feed.wanted is WantedState.FINISHED:
        return f"feed {name!r} has reached its target_ts: {FINISHED_ADVICE}"
    return (
        f"feed {name!r} is {feed.state}, wanted {feed.wanted}: it can be {what} only while it is stopped; "
        f"`headgate feed pause {name}` first"
    )


def _why_not_rewound(feed: FeedRecorded, name: str) -> str | None:
    if (feed.wanted, feed.state) == (WantedState.FINISHED, FeedState.FINISHED):
        return None  # every table is sealed: it can go back, and will end at its target again
    return why_not_resumed(feed, name) or _why_not_stopped(feed, name, "resumed from there")


def ask_again(draft: CoordinatorDraft, request: str) -> None:
    """Request again the effect that an accepted request waits for; do nothing if it no longer waits."""
    placed, outcome = draft.state.requests.get(request), draft.outcome(request)
    if placed is None or outcome is None or outcome.status is not OutcomeStatus.ACCEPTED:
        return
    requested = placed.request
    feed = draft.feed(requested.feed)
    if requested.kind in (OperationKind.CREATE_FEED, OperationKind.UPDATE_FEED):
        draft.add_effect(_resolve(request, requested, feed))
    elif requested.kind is OperationKind.RESUME_FEED and feed is not None:
        draft.add_effect(ResolveStart(request, requested.feed, requested.spec or "", feed.spans, feed.spec))
    else:
        refuse(draft, request, no_such_feed(draft, requested.feed))


def finish(draft: CoordinatorDraft, effect: ResolveFeed | ResolveStart, result: Any) -> None:
    """Handle the service's result. It is ignored if the request was withdrawn or settled in the meantime."""
    placed, outcome = draft.state.requests.get(effect.request), draft.outcome(effect.request)
    if placed is None or outcome is None or outcome.status is not OutcomeStatus.ACCEPTED:
        return
    match effect, result:
        case _, EffectFailed():
            reason = f"under way, but: {result.reason}; retried every {EFFECT_RETRY_SECONDS:.0f} s"
            draft.settle(effect.request, OutcomeStatus.ACCEPTED, reason)
            draft.set_timer("resolve", effect.request, EFFECT_RETRY_SECONDS)
        case _, FeedRefused():
            refuse(draft, effect.request, result.reason)
        case ResolveFeed(), FeedResolved() if placed.request.kind is OperationKind.UPDATE_FEED:
            _change(draft, effect, result)
        case ResolveFeed(), FeedResolved():
            _record(draft, effect, result, placed.offset)
        case ResolveStart(), StartResolved():
            _rewind(draft, effect, result)
        case _:
            raise TypeError(f"{type(result).__name__} is not an answer to {type(effect).__name__}")


def _record(draft: CoordinatorDraft, effect: ResolveFeed, result: FeedResolved, offset: int) -> None:
    reason = why_not_created(draft, effect.request, effect.feed, result)
    if reason is not None:
        return refuse(draft, effect.request, reason)
    record = _made(draft, effect.request, result, offset)
    draft.put(FeedKey(effect.feed), record)
    copying.begin_snapshots(draft, effect.feed, record.feed_id, result.copies)
    begin(draft, effect.feed, record)
    if not record.spans:
        draft.feeds_touched.add(effect.feed)  # no span will, and its checkpoint must be written
    note = f": {result.note}; it is looked for every {DISCOVER_SECONDS:.0f} s" if result.note else ""
    copied = f"; the rows of {len(result.copies)} are copied from the source" if result.copies else ""
    said = "; ".join((f"created with {number_of(len(record.spans), 'table')}{copied}{note}", *result.warnings))
    draft.settle(effect.request, OutcomeStatus.DONE, said)
    draft.set_timer("schedule", "", 0.0)
    return None


def _made(draft: CoordinatorDraft, request: str, result: FeedResolved, offset: int) -> FeedRecorded:
    """The record of a new feed, without the fields that the log's schema level does not contain."""
    told = FeedRecorded(
        feed_id=f"{draft.state.shard}-{offset}",
        owner_rev=draft.term.owner_rev,
        incarnation=1,
        spec=result.spec,
        spans=tuple(sorted(result.spans, key=lambda plan: plan.span)),
        wanted=WantedState.RUNNING,
        state=FeedState.NORMAL,
        error_code=None,
        error=None,
        request=request,
        changed_ms=draft.now.wall_ms,
        target_ts=result.target_ts,
        sink_id=result.sink_id,
        notices=(result.note,) if result.note else (),
    )
    return withheld(told, draft.state.level)


def why_not_created(draft: CoordinatorDraft, request: str, name: str, result: FeedResolved) -> str | None:
    """Why this feed cannot be created; None if it can."""
    reason = why_name_taken(draft, request, name) or _why_not(draft, name, result)
    reason = reason or copying.why_not_copied_yet(draft, name, result.copies)
    return reason or waits_for_upgrade(draft, _made(draft, request, result, 0))


def _change(draft: CoordinatorDraft, effect: ResolveFeed, result: FeedResolved) -> None:
    feed = draft.feed(effect.feed)
    if feed is None:
        return refuse(draft, effect.request, no_such_feed(draft, effect.feed))
    reason = why_not_updated(draft, effect.feed, result)
    if reason is not None:
        return refuse(draft, effect.request, reason)
    found = {plan.table: plan for plan in result.spans}
    joined = sorted(found.keys() - {table_today(feed.spec, plan.table) for plan in feed.spans})
    changed = replace(
        feed,
        owner_rev=draft.term.owner_rev,
        revision=feed.revision + 1,
        spec=result.spec,
        notices=tuple(filterfalse(is_warning, feed.notices)),
        spans=tuple(sorted((*feed.spans, *(found[table] for table in joined)), key=lambda plan: plan.span)),
        changed_ms=draft.now.wall_ms,
    )
    draft.put(FeedKey(effect.feed), withheld(changed, draft.state.level))
    copies = {table: rows for table, rows in result.copies.items() if table in joined}
    copying.begin_snapshots(draft, effect.feed, feed.feed_id, copies)
    more = (f"{number_of(len(joined), 'table')} added: {shown_names(joined)}",) if joined else ()
    said = "; ".join(("updated", *more, *result.warnings))
    draft.settle(effect.request, OutcomeStatus.DONE, said)
    return None


def why_not_updated(draft: CoordinatorDraft, name: str, result: FeedResolved) -> str | None:
    """Why the feed cannot be updated to its new spec; None if it can."""
    feed = draft.feed(name)
    if feed is None:
        return no_such_feed(draft, name)
    return _why_not_stopped(feed, name, "updated") or why_not_changed(draft, name, result)


def why_not_changed(draft: CoordinatorDraft, name: str, result: FeedResolved) -> str | None:
    """Why the feed could not be updated to its new spec even if it were stopped; None if it could."""
    feed = draft.feed(name)
    if feed is None:
        return no_such_feed(draft, name)
    reason = _why_fixed(feed.spec, result.spec) or _why_not_named(feed, result.spec) or _why_not(draft, name, result)
    reason = reason or copying.why_not_copied_yet(draft, name, result.copies)
    found = {plan.table: plan for plan in result.spans}
    for plan in sorted(feed.spans, key=lambda kept: kept.span):
        new = found.get(table_today(feed.spec, plan.table))
        if reason is None and (new is None or new.topic != plan.topic):
            reason = f"table {plan.table} from topic {plan.topic} would leave the feed: tables may join, none may leave"
    return reason


def _why_not_named(feed: FeedRecorded, spec: str) -> str | None:
    """Why a table of an older version cannot be in a feed with slices; None if there is none."""
    if not has_slices(spec) or has_slices(feed.spec):
        return None
    return next(
        (
            f"table {plan.table} is stored under a name that is a slice's in a feed with `into`: write several sources "
            "to one table by another feed"
            for plan in feed.spans
            if slice_of(plan.table) is not None
        ),
        None,
    )


def _why_fixed(old: str, new: str) -> str | None:
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    for path in FIXED:
        was, will_be = _option(before, path), _option(after, path)
        if was != will_be:
            name = ".".join(path)
            return f"{name} cannot be changed (it is {was!r}, not {will_be!r}): make another feed, and remove this one"
    was, will_be = _targets(before), _targets(after)
    if _option(before, ("source", "tables")) and was != will_be:
        # With a topic for each table, a table that goes elsewhere leaves the feed, which is refused by its topic.
        return (
            f"target tables of a feed with source.tables cannot be changed (`tables` names {was!r}, not {will_be!r}): "
            "make another feed, and remove this one"
        )
    return _why_not_copied(before, after)


def _why_not_copied(before: Any, after: Any) -> str | None:
    """Rows are copied when a table joins, so it is too late for tables that have joined."""
    for pattern in sorted(_tables(before).keys() & _tables(after).keys()):
        path = ("tables", pattern, "snapshot", "mode")
        was, will_be = _option(before, path), _option(after, path)
        if was != will_be:
            return (
                f"{'.'.join(path)} cannot be changed (it is {was!r}, not {will_be!r}), because rows are copied when a "
                "table joins. Copy them with `headgate table resync`"
            )
    return None


_TARGETS: Final = ("table", "into")
"""Options of an entry of ``tables`` that name the rows which its sources write."""


def _targets(spec: Any) -> dict[str, Any]:
    """Pattern of ``tables`` → where its rows go: the options of that which it has."""
    found = {}
    for pattern, options in _tables(spec).items():
        target = {name: value for name in _TARGETS if (value := _option(options, (name,))) is not None}
        if target:
            found[pattern] = target
    return found


def _tables(spec: Any) -> dict[str, Any]:
    tables = _option(spec, ("tables",))
    return tables if isinstance(tables, dict) else {}


def _option(spec: Any, path: tuple[str, ...]) -> Any:
    """None stands for the default, which an accepted spec leaves out."""
    for name in path:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec


def _rewind(draft: CoordinatorDraft, effect: ResolveStart, result: StartResolved) -> None:
    feed = draft.feed(effect.feed)
    if feed is None:
        return refuse(draft, effect.request, no_such_feed(draft, effect.feed))
    reason = _why_not_rewound(feed, effect.feed)
    if reason is None and [plan.span for plan in result.spans] != [plan.span for plan in feed.spans]:
        reason = "its tables have changed since: ask again"
    reason = reason or next(filter(None, map(why_unwritable, result.spans)), None)
    if reason is not None:
        return refuse(draft, effect.request, reason)
    changed = withheld(replace(feed, incarnation=feed.incarnation + 1, spans=result.spans), draft.state.level)
    change_wish(draft, effect.feed, changed, WantedState.RUNNING, effect.request)
    reason = f"running from the offsets asked for, as incarnation {changed.incarnation}"
    draft.settle(effect.request, OutcomeStatus.DONE, reason)
    return None


def _why_not(draft: CoordinatorDraft, feed: str, result: FeedResolved) -> str | None:
    names = [plan.span for plan in result.spans]
    if not names and not result.note:
        return "the feed has no table to replicate: check source.topics or source.topic_pattern"
    if len(set(names)) != len(names):
        return "two spans have one name: check sink.table, which names tables after topics"
    parted = next((name for name in names if table_of(name) != name), None)
    if parted is not None:
        return (
            f"table {parted} cannot be distinguished from a part of {table_of(parted)}. Give it another name "
            "in sink.table"
        )
    unwritable = _why_unwritable(result)
    if unwritable is not None:
        return unwritable
    if sink_of(result.spec) is None:
        return "the spec has no sink.type with sink.dsn or sink.connection"
    shared = written_by_others(draft.state.index.written, feed, result.spec, result.sink_id, result.spans)
    return None if shared is None else coded(CONFLICT_CODE, shared.reason(feed))


def _why_unwritable(result: FeedResolved) -> str | None:
    if not all(map(is_name, (result.spec, result.sink_id or ""))):
        return "it has a text with half of a surrogate pair, which nothing can write: take it out"
    if result.target_ts is not None and not 0 <= result.target_ts <= TS_MAX:
        return f"source.target_ts is {result.target_ts}: no ts, which has 63 bits"
    return next(filter(None, map(why_unwritable, result.spans)), None)
