"""Splits a table into spans by its source partitions, and merges them again.

The feed's record lists the spans into which each of its tables is divided: nothing else is needed (docs/adr/0010). A
request writes another plan. What follows is the usual sequence for spans that are no longer wanted and for new ones:

    plan written ──▶ old spans close, are sealed, are forgotten ──▶ new spans find agents ──▶ all replicate: done

No new span is assigned before every old one with a partition of it is sealed (Draft.takes_agent). In between the
partitions are a hole: they hold the feed's checkpoint where it is. The new spans start where the sink's positions are:
it keeps positions by partition.

A division is kept in the term only while a client waits for its end; a new owner resumes accepted requests.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.outcomes import no_such_feed, no_such_table, refuse, waits_for_upgrade
from headgate.coordinator.core.spans import span_lifecycle
from headgate.coordinator.core.term import SessionId
from headgate.coordinator.schedulers import split
from headgate.coordinator.schedulers.contract import Division, TableLoad
from headgate.records.control import (
    FeedRecorded,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    ReplicationState,
    SpanPlan,
    WantedState,
)
from headgate.records.keys import FeedKey, SpanKey
from headgate.records.spans import SpanName, divide, paused_table, table_of, unite

__all__ = [
    "add_partitions",
    "ask",
    "begin",
    "holders",
    "settle",
    "table_loads",
    "take_up",
    "try_division",
    "why_not_now",
    "why_paused",
]

_WITH_OTHERS: Final = (
    "its topic carries other tables, too (source.tables): every part would read all of them again. Give the table a "
    "topic of its own, and a feed for it, if one agent cannot keep up with it"
)
_NO_PARTS: Final = "give a number of parts of at least 2; to make a table whole: headgate table merge"


def ask(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Start a split_table or a merge_table."""
    feed = draft.feed(requested.feed)
    if feed is None:
        return refuse(draft, request, no_such_feed(draft, requested.feed))
    if feed.wanted is not WantedState.RUNNING:
        return refuse(draft, request, f"feed {requested.feed!r} is {feed.state}, wanted {feed.wanted}: resume it first")
    table = requested.table or ""
    plans = [plan for plan in feed.spans if plan.table == table]
    if not plans:
        return refuse(draft, request, no_such_table(feed, requested.feed, requested.table))
    is_split = requested.kind is OperationKind.SPLIT_TABLE
    if is_split and requested.parts is None:
        return _unpin(draft, request, requested.feed, feed, table)
    parts = (requested.parts or 0) if is_split else 1
    reason = (
        (_WITH_OTHERS if is_split and _plan_of_division(feed).source.tables else None)
        or _why_under_way(draft, requested.feed, table)
        or _why_not(table, plans, parts, is_split=is_split)
        or why_not_now(draft, requested.feed, plans)
    )
    if reason is not None:
        return refuse(draft, request, reason)
    begin(draft, requested.feed, table, parts, request)
    return None


def _why_not(table: str, plans: list[SpanPlan], parts: int, *, is_split: bool) -> str | None:
    count = len(unite(plans).start)
    if not is_split:
        return f"table {table!r} is not split" if len(plans) == 1 else None
    if parts < 2:
        return f"{parts} parts: {_NO_PARTS}"
    if len(plans) > 1:
        return f"table {table!r} is in {len(plans)} parts already: merge it first"
    if count < parts:
        return f"table {table!r} cannot be divided into {parts} parts: the partitions of its topic are {count}"
    return None


def _why_under_way(draft: CoordinatorDraft, name: str, table: str) -> str | None:
    return f"table {table!r} is being divided otherwise just now" if (name, table) in draft.term.divisions else None


def why_not_now(draft: CoordinatorDraft, name: str, plans: list[SpanPlan]) -> str | None:
    """Why the table of these spans cannot be divided differently now; None if it can."""
    feed = draft.feed(name)
    if feed is None:
        return no_such_feed(draft, name)
    count = sum(other == name for other, _ in draft.term.divisions)
    is_full = count >= split.DIVISIONS_PER_FEED_MAX
    rebalance = draft.term.rebalances.get(name)
    return (
        _why_under_way(draft, name, plans[0].table)
        or why_paused(draft, name, plans[0].span)
        # Agents of a lower level find the plan of a span only under its name: they could not close an unplanned span.
        or waits_for_upgrade(draft, replace(feed, pinned=("any",)))
        or (f"feed {name!r} is being rebalanced, by request {rebalance.request}: ask later" if rebalance else None)
        or (f"{count} tables of feed {name!r} are being divided already: ask again later" if is_full else None)
        or next(filter(None, (_why_not_still(draft, SpanKey(name, plan.span)) for plan in plans)), None)
    )


def why_paused(draft: CoordinatorDraft, name: str, span: str) -> str | None:
    """Why a span of a paused table can be neither moved nor divided; None if its table is not paused."""
    feed = draft.feed(name)
    paused = None if feed is None else paused_table(feed, span)
    if paused is None:
        return None
    return f"table {paused.table!r} is paused by {paused.by}. Resume it first: headgate table resume"


def _why_not_still(draft: CoordinatorDraft, key: SpanKey) -> str | None:
    record = draft.span(key)
    if record is not None and record.secondary is not None:
        return f"{key.span!r} is being moved to {record.secondary.agent}: ask again when the move has ended"
    return span_lifecycle.why_not_movable(key.span, record)


def begin(draft: CoordinatorDraft, name: str, table: str, parts: int, request: str | None) -> None:
    """Record another division of a table; one on request stays as it is until an operator asks again."""
    feed = draft.feed(name)
    if feed is None:
        raise RuntimeError(f"feed {name} is gone: nothing of it can be divided")
    whole = unite([plan for plan in feed.spans if plan.table == table])
    pinned = feed.pinned if request is None else tuple(sorted({*feed.pinned, table}))
    _plan(draft, name, replace(feed, pinned=pinned), table, divide(whole, parts) if parts > 1 else (whole,))
    draft.term.divisions[name, table] = request
    into = f"{parts} parts" if parts > 1 else "one"
    draft.settle(request, OutcomeStatus.ACCEPTED, f"becomes {into}: what writes it now drains and is sealed first")


def add_partitions(draft: CoordinatorDraft, name: str, added: SpanPlan) -> str | None:
    """Give new partitions of a table's topic a part of their own. Return why that is impossible now, None if done.

    A whole table becomes a part with its present partitions, because a span's name lists them. So its writer drains and
    is sealed, as when an operator divides the table.
    """
    feed = draft.feed(name)
    plans = [] if feed is None else [plan for plan in feed.spans if plan.table == added.table]
    if feed is None or not plans:
        return no_such_feed(draft, name)
    if not set(added.start).isdisjoint(unite(plans).start):
        return None  # another check was quicker
    reason = why_not_now(draft, name, plans)
    if reason is not None:
        return reason
    _plan(draft, name, feed, added.table, (*map(_as_part, plans), added))
    draft.term.divisions[name, added.table] = None
    return None


def _as_part(plan: SpanPlan) -> SpanPlan:
    return replace(plan, span=SpanName(table_of(plan.span), tuple(sorted(plan.start))).text())


def _plan(draft: CoordinatorDraft, name: str, feed: FeedRecorded, table: str, plans: Iterable[SpanPlan]) -> None:
    """Record other spans of a table; see the module's picture for what follows."""
    others = [plan for plan in feed.spans if plan.table != table]
    spans = tuple(sorted((*others, *plans), key=lambda plan: plan.span))
    _write(draft, name, replace(feed, spans=spans))
    draft.feeds_touched.add(name)
    # The spans concerned are in the index once this is evolved; the next round, at once, takes them from there.
    draft.set_timer("schedule", "", 0.0)


def _unpin(draft: CoordinatorDraft, request: str, name: str, feed: FeedRecorded, table: str) -> None:
    if table in feed.pinned:
        _write(draft, name, replace(feed, pinned=tuple(other for other in feed.pinned if other != table)))
    draft.settle(request, OutcomeStatus.DONE, "left to the split scheduler, which splits and merges it by load")


def _write(draft: CoordinatorDraft, name: str, feed: FeedRecorded) -> None:
    draft.put(FeedKey(name), replace(feed, owner_rev=draft.term.owner_rev, changed_ms=draft.now.wall_ms))


def take_up(draft: CoordinatorDraft, request: str, requested: OperationRequested) -> None:
    """Resume a request that an earlier owner accepted: its plan is written, a client waits for the outcome."""
    draft.term.divisions[requested.feed, requested.table or ""] = request


def settle(draft: CoordinatorDraft) -> None:
    """After a round: settle the divisions that are over."""
    for name, table in sorted(draft.term.divisions):
        request = draft.term.divisions[name, table]
        feed = draft.feed(name)
        plans = [] if feed is None else [plan for plan in feed.spans if plan.table == table]
        if feed is None or not plans or feed.wanted is not WantedState.RUNNING:
            reason = "the feed is being stopped or removed; its table is divided as requested when it resumes"
            draft.settle(request, OutcomeStatus.FAILED, reason)
        elif _is_under_way(draft, name, plans):
            continue
        else:
            parts = f"{len(plans)} parts" if len(plans) > 1 else "one"
            draft.settle(request, OutcomeStatus.DONE, f"replicating as {parts}")
        del draft.term.divisions[name, table]


def _is_under_way(draft: CoordinatorDraft, name: str, plans: list[SpanPlan]) -> bool:
    index = draft.state.index
    if any(plan.span not in index.feed(name).plans for plan in plans):
        return True  # not evolved yet
    for plan in plans:
        key = SpanKey(name, plan.span)
        record = draft.span(key)
        is_running = record is not None and record.state in (ReplicationState.REPLICATING, ReplicationState.PREPARE)
        if not is_running or any(draft.span(other) is not None for other in index.overlapping(key)):
            return True
    return False


def holders(draft: CoordinatorDraft, key: SpanKey) -> set[SessionId]:
    """Sessions that have other parts of the span's table."""
    if table_of(key.span) == key.span:
        return set()
    whole = SpanKey(key.feed, table_of(key.span))
    records = [draft.span(other) for other in draft.state.index.overlapping(whole)]
    return {(record.primary.agent, record.primary.session) for record in records if record and record.primary}


def try_division(draft: CoordinatorDraft, wanted: Division) -> bool:
    """Start a division that the split scheduler proposes, if the feed allows it and the table is otherwise idle."""
    feed = draft.feed(wanted.feed)
    plans = [] if feed is None else [plan for plan in feed.spans if plan.table == wanted.table]
    if feed is None or not plans or wanted.table in feed.pinned or not _is_automatic(feed):
        return False
    if why_not_now(draft, wanted.feed, plans) is not None:
        return False
    begin(draft, wanted.feed, wanted.table, wanted.parts, None)
    return True


def table_loads(draft: CoordinatorDraft, rates: Mapping[SpanKey, float]) -> dict[tuple[str, str], TableLoad]:
    """Tables that moved anything, and those that are divided, of running feeds."""
    index = draft.state.index
    sums: dict[tuple[str, str], float] = dict.fromkeys(sorted(index.parts), 0.0)
    for key, rate in sorted(rates.items()):
        place = (key.feed, table_of(key.span))
        sums[place] = sums.get(place, 0.0) + rate
    loads = {}
    for (name, table), rate in sums.items():
        plans = index.feed(name).plans
        whole = SpanKey(name, table)
        names = [other.span for other in (whole, *index.overlapping(whole)) if other.span in plans]
        if names and draft.is_wanted(SpanKey(name, names[0])):
            partitions = sum(len(plans[span].start) for span in names)
            loads[name, table] = TableLoad(name, plans[names[0]].table, rate, len(names), partitions)
    return loads


class _SourcePart(msgspec.Struct, frozen=True):
    tables: tuple[str, ...] = ()


class _SplitPart(msgspec.Struct):
    split: str = "auto"
    source: _SourcePart = _SourcePart()


def _plan_of_division(feed: FeedRecorded) -> _SplitPart:
    return msgspec.json.decode(feed.spec, type=_SplitPart)


def _is_automatic(feed: FeedRecorded) -> bool:
    wanted = _plan_of_division(feed)
    return wanted.split == "auto" and not wanted.source.tables
