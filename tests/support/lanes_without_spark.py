"""Lanes, their spans and their queries without Spark, broker or sink, for tests of who is where and what is written."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.inputs import Opened, Placed, Served, SpanInput, SpanResult, TellRestart
from headgate.agent.core.span.states import Span
from headgate.records.control import Epoch, Positions, SpanPlan
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.lane import Lane
from headgate.replication.plan import TaskResult
from headgate.replication.queries import (
    ExecutorSettings,
    Queries,
)
from headgate.replication.span_lifecycle import SpanLifecycle
from headgate.replication.span_table import SpanTable
from headgate.replication.spark import SparkRuntime
from headgate.replication.spark_options import SparkOptions

SPEC = '{"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": "dbname=x"}}'

NOW_MS = 1_795_000_000_000
"""What time it is by the broker's clock."""

NOON = 1_795_262_400_000 << 18


class Restarts(SpanLifecycle):
    """A lifecycle that calls nobody, and remembers what was asked for and who was sent back."""

    def __init__(self, table: SpanTable) -> None:
        super().__init__(table, None)  # type: ignore[arg-type]  # nothing here asks a broker
        self.restarted: list[str] = []
        self.called: list[str] = []
        table.performers[TellRestart] = lambda _, told: self.restarted.append(told.why)

    def _call(self, span: Span, _step: Callable[[Span], SpanInput], _holder: str | None = None) -> None:
        self.called.append(span.id.span)


def queries_of(table: SpanTable, lifecycle: SpanLifecycle, scratch: Path) -> Queries:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=scratch))
    settings = ExecutorSettings(bootstrap="nowhere:1", cluster_id="c", now_ms=lambda: NOW_MS)
    return Queries(table, lifecycle, runtime, settings)


def lane_of(queries: Queries, name: str, starts: Mapping[int, int], spec: str = SPEC) -> Lane:
    lane = queries.lanes[name] = Lane(
        name,
        queries.batch_coordinator,
        FeedIncarnation("0-1", 1, spec),
        "group",
        {("t", partition): at for partition, at in starts.items()},
    )
    lane.started = True
    return lane


def is_open(table: SpanTable, positions: Positions, name: str = "s", spec: str = SPEC, **how: Any) -> SpanId:
    """A span that waits for a lane; ``how``: ``primary``, ``topic``, and what else Opened says."""
    primary, topic = how.pop("primary", True), how.pop("topic", "t")
    plan = SpanPlan(span=name, topic=topic, table=f"public.{name}", start=dict.fromkeys(positions, 0))
    task = SpanTask(SpanId("f", name), "0-1", 1, Epoch(1, 1), plan, spec)
    table.add(task, primary=primary)
    table.apply(task.id, Opened(task.epoch, primary, dict(positions), **how))
    return task.id


def is_on(table: SpanTable, lane: Lane, positions: Positions, name: str = "s", spec: str = SPEC, **how: Any) -> SpanId:
    """A span that its lane serves; claimed, unless ``primary`` is False."""
    span = is_open(table, positions, name, spec, **how)
    table.apply(span, Placed(lane.name))
    table.apply(span, Served())
    return span


def now_is(table: SpanTable, span: SpanId) -> Span:
    found = table.get(span)
    assert found is not None
    return found


def ends_of(lane: Lane, end: int = 1_000) -> dict[tuple[str, int], int]:
    """A batch that goes as far in every partition."""
    return dict.fromkeys(lane.delivered, end)


def planned(queries: Queries, lane: Lane) -> list[dict[int, int]]:
    """What a batch is to write, everywhere up to 1 000; none, if it is not run."""
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane))
    return [] if plan is None else [work.expected for work in plan.works]


def ended(queries: Queries, lane: Lane, *results: SpanResult, seen: Mapping[int, int] | None = None) -> bool:
    """The batch that was planned is over; its rows went up to ``seen``."""
    return queries.batch_coordinator.end_batch(lane, [TaskResult({"t": dict(seen or {})}, results)])


def result_of(span: SpanId, **fields: Any) -> SpanResult:
    """One row up to offset 5, but for what ``fields`` say."""
    result = SpanResult(
        id=span,
        positions={0: 5},
        rows=1,
        bytes=1,
        oldest_append_ms=None,
        newest_source_ms=None,
        visible_ms=0,
        error_code=None,
        error=None,
        retryable=False,
        decode_cpu_us=0,
        apply_cpu_us=0,
    )
    return msgspec.structs.replace(result, **fields)


def two_on_a_lane(table: SpanTable, queries: Queries) -> tuple[Lane, SpanId, SpanId]:
    lane = lane_of(queries, "l", {0: 0})
    return lane, is_on(table, lane, {0: 0}, "slow"), is_on(table, lane, {0: 0}, "quick")
