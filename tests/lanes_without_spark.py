"""Lanes, their spans and their fleet without Spark, broker or sink, for tests of who is where and what is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.fleet import (
    ExecutorSettings,
    Fleet,
)
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.plan import SpanResult, TaskResult
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.spark import SparkOptions, SparkRuntime
from headgate.records.control import Epoch, Positions, SpanPlan, TaskState

SPEC = '{"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "postgresql", "dsn": ""}}'

NOON = 1_795_262_400_000 << 18


class Restarts(SpanKeeper):
    """A keeper that only remembers who was sent back."""

    def __init__(self, board: Board) -> None:
        super().__init__(board, None)  # type: ignore[arg-type]  # nothing here asks a broker
        self.restarted: list[str] = []

    def restart(self, run: SpanRun, why: str) -> None:
        self.restarted.append(why)
        self.leave(run)


def fleet_of(board: Board, keeper: SpanKeeper, scratch: Path) -> Fleet:
    runtime = SparkRuntime(SparkOptions(jars=(), scratch=scratch))
    return Fleet(board, keeper, runtime, ExecutorSettings(bootstrap="nowhere:1", cluster_id="c"))


def lane_of(fleet: Fleet, name: str, starts: Mapping[int, int]) -> Lane:
    lane = fleet.lanes[name] = Lane(name, fleet.crew, SPEC, {("t", partition): at for partition, at in starts.items()})
    lane.started = True
    return lane


def run_on(lane: Lane, positions: Positions, spec: str = SPEC) -> SpanRun:
    plan = SpanPlan(span="s", topic="t", table="public.t", start=dict.fromkeys(positions, 0))
    run = SpanRun(SpanTask(SpanId("f", "s"), "0-1", 1, Epoch(1, 1), plan, spec), "c", primary=True)
    run.state, run.claimed, run.positions, run.lane = TaskState.REPLICATING, True, dict(positions), lane
    lane.take_on(run)
    return run


def ends_of(lane: Lane, end: int = 1_000) -> dict[tuple[str, int], int]:
    """A batch that goes as far in every partition."""
    return dict.fromkeys(lane.delivered, end)


def planned(fleet: Fleet, lane: Lane) -> list[dict[int, int]]:
    """What a batch is to write, everywhere up to 1 000; none, if it is not run."""
    plan = fleet.crew.begin_batch(lane, ends_of(lane))
    return [] if plan is None else [work.expected for work in plan.works]


def ended(fleet: Fleet, lane: Lane, *results: SpanResult, seen: Mapping[int, int] | None = None) -> bool:
    """The batch that was planned is over; its rows went up to ``seen``."""
    return fleet.crew.end_batch(lane, ends_of(lane), [TaskResult({"t": dict(seen or {})}, results)])


def result_of(run: SpanRun, **fields: Any) -> SpanResult:
    """One row up to offset 5, but for what ``fields`` say."""
    result = SpanResult(
        id=run.task.id,
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


def two_on_a_lane(board: Board, fleet: Fleet) -> tuple[Lane, SpanRun, SpanRun]:
    lane = lane_of(fleet, "l", {0: 0})
    slow, quick = run_on(lane, {0: 0}), run_on(lane, {0: 0})
    quick.task = msgspec.structs.replace(quick.task, id=SpanId("f", "quick"))
    for run in (slow, quick):
        board.runs[run.task.id] = run
    return lane, slow, quick
