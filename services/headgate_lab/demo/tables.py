"""The state of the feed's tables, read off the control topics: who holds each, whether it replicates, rows and lag."""

import time
from collections import Counter

import msgspec

from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import (
    Assignment,
    FeedProgressed,
    FeedRecorded,
    OperationKind,
    OperationRequested,
    ReplicationState,
    RequestSettled,
    TaskState,
    is_unsettled,
)
from headgate.records.keys import FeedKey, FeedProgressKey, OutcomeKey, RequestKey
from headgate_lab.demo.stack import FEED


class TableView(msgspec.Struct, frozen=True):
    """One table as the log knows it. ``rows`` applied under the present assignment; None for what was not reported."""

    span: str
    state: str
    role: Assignment | None
    replicating: bool
    rows: int | None
    lag_ms: int | None
    error: str | None


def views(snapshot: Snapshot) -> list[TableView]:
    """All wanted tables of the feed, sorted; empty before the feed was accepted."""
    feed = snapshot.get(FeedKey(FEED), FeedRecorded)
    spans = sorted(plan.span for plan in feed.spans) if feed is not None else []
    return [_view(snapshot, span) for span in spans]


def _view(snapshot: Snapshot, span: str) -> TableView:
    dispatched = snapshot.dispatched(FEED, span)
    if dispatched is None:
        return TableView(
            span, ReplicationState.ABSENT.value, None, replicating=False, rows=None, lag_ms=None, error=None
        )
    role = dispatched.primary
    reported = snapshot.reported(FEED, span, role) if role is not None else None
    progressed = snapshot.progressed(FEED, span, role) if role is not None else None
    replicates = reported is not None and reported.state is TaskState.REPLICATING
    return TableView(
        span,
        dispatched.state.value,
        role,
        replicating=dispatched.state is ReplicationState.REPLICATING and replicates,
        rows=progressed.rows if progressed is not None else None,
        lag_ms=progressed.lag_ms if progressed is not None else None,
        error=reported.error if reported is not None and reported.error else dispatched.last_error,
    )


def holders(snapshot: Snapshot) -> dict[str, Assignment]:
    """Tables that replicate, and who does it."""
    return {view.span: view.role for view in views(snapshot) if view.replicating and view.role is not None}


def all_replicate(snapshot: Snapshot) -> bool:
    """Whether every wanted table replicates."""
    found = views(snapshot)
    return bool(found) and all(view.replicating for view in found)


def all_apply(snapshot: Snapshot) -> bool:
    """Whether every wanted table replicates and has applied rows under its present assignment."""
    return all_replicate(snapshot) and all(view.rows for view in views(snapshot))


def busiest_agent(snapshot: Snapshot) -> str | None:
    """The agent that runs most tables, the first by name of several."""
    tables = Counter(role.agent for role in holders(snapshot).values())
    return min(tables, key=lambda agent: (-tables[agent], agent), default=None)


def passed(snapshot: Snapshot, ends: dict[str, dict[int, int]]) -> bool:
    """Whether the feed's checkpoint has passed ``ends``: topic → {partition: next offset}."""
    feed = snapshot.get(FeedKey(FEED), FeedRecorded)
    progress = snapshot.get(FeedProgressKey(FEED), FeedProgressed)
    if feed is None or progress is None:
        return False
    reached = {plan.topic: progress.positions.get(plan.table, {}) for plan in feed.spans}
    return all(
        reached.get(topic, {}).get(partition, -1) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


class RowRate:
    """Rows per second since the last look."""

    def __init__(self) -> None:
        self._rows = 0
        self._at = time.monotonic()

    def look(self, rows: int) -> float:
        """The rate between the last look and now, ``rows`` being the total now."""
        now = time.monotonic()
        rate = (rows - self._rows) / max(now - self._at, 1e-3)
        self._rows, self._at = rows, now
        return max(0.0, rate)


def copies(snapshot: Snapshot) -> frozenset[str]:
    """Tables that are being copied from the source, or will be."""
    return frozenset(
        request.table
        for key, request in snapshot.each(RequestKey, OperationRequested)
        if request.kind is OperationKind.RESYNC_TABLE
        and request.table is not None
        and is_unsettled(snapshot.get(OutcomeKey(key.request), RequestSettled))
    )
