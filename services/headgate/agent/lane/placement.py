"""Which lane a span is on, and how it gets from one to another.

A span changes lanes between two batches, and nobody waits for it. Each feed has a home lane, its largest. A span that
arrives with little to catch up goes there at once; one with a backlog, or one that is slow, has a lane beside it until
it has caught up.
"""

import time
from collections.abc import Callable
from typing import Final

from headgate.agent.executor import SpanId, SpanTask
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.span import SpanRun
from headgate.records.control import TaskState

__all__ = ["ARRIVAL_SECONDS", "JOIN_SECONDS", "Placement"]

ARRIVAL_SECONDS: Final = 0.2
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work."""

ARRIVAL_ROWS_MAX: Final = 20_000
"""A span with so much to catch up joins the home lane at once: it is less than half a second of a batch of all."""

JOIN_SECONDS: Final = 5.0
"""Spans go over to their feed's home lane once no lane has started for so long: several arrive at a time."""

JOIN_LAG_MS: Final = 2_000
"""A span that lags more has better things to do than to share batches."""


class Placement:
    """Finds lanes for spans among ``lanes``, by name; ``launch`` starts another one. With the board's lock held."""

    def __init__(
        self,
        board: Board,
        keeper: SpanKeeper,
        lanes: dict[str, Lane],
        launch: Callable[[SpanTask, float], Lane],
    ) -> None:
        self._board = board
        self._keeper = keeper
        self._lanes = lanes
        self._launch = launch

    def place_ready(self, now: float) -> None:
        """The home lane for those that may share it, if there is one; else one lane per kind (written, warm, slow)."""
        groups: dict[tuple[str, bool, SpanId | None], list[SpanRun]] = {}
        for _, run in sorted(self._board.runs.items()):
            if run.ready_at is None or run.busy or run.stop or run.over:
                continue
            alone = run.task.id if run.alone_until > now else None
            home = self._home(run.task.spec) if alone is None and run.backlog <= ARRIVAL_ROWS_MAX else None
            if home is not None:
                self._enter(home, run)
            else:
                groups.setdefault((run.task.spec, run.claimed, alone), []).append(run)
        for runs in groups.values():
            if now - min(run.ready_at or now for run in runs) >= ARRIVAL_SECONDS:
                lane = self._launch(runs[0].task, now)
                for run in runs:
                    self._enter(lane, run)

    def join(self, now: float) -> None:
        """Spans that have caught up beside their feed's home lane go over to it."""
        for spec in sorted({lane.spec for lane in self._lanes.values()}):
            for run in [run for lane in self._lanes.values() if lane.spec == spec for run in lane.members]:
                if run.has_caught_up(JOIN_LAG_MS):
                    run.backlog = 0
            home = self._home(spec)
            if home is None or not home.started:
                continue
            for lane in [lane for _, lane in sorted(self._lanes.items()) if lane.spec == spec and lane is not home]:
                for run in list(lane.members):
                    quiet = run.writable and run.state is TaskState.REPLICATING and run.alone_until <= now
                    if quiet and run.has_caught_up(JOIN_LAG_MS):
                        run.heir = home
                        self.go_over(run)

    def go_over(self, run: SpanRun) -> None:
        """To the lane that it is to be on, if no batch has it."""
        home = run.heir
        if home is None or run.in_batch or run.lane is None:
            return
        run.heir = None
        if home.name in self._lanes and not home.failed:
            run.lane.part_with(run)
            self._enter(home, run)

    def settle(self, run: SpanRun) -> None:
        """Its lane serves."""
        if run.state is TaskState.PREPARING and not run.stop:
            run.state = TaskState.REPLICATING if run.claimed else TaskState.PREPARED
        if run.primary and not run.claimed and not run.busy and not run.stop:
            self._keeper.submit(run, self._keeper.open)

    def _home(self, spec: str) -> Lane | None:
        """Where a feed's spans belong together: its lane with the most of them, none of which is slow."""
        now = time.monotonic()
        lanes = [
            lane
            for _, lane in sorted(self._lanes.items())
            if lane.spec == spec
            and not lane.failed
            and not lane.stopping.is_set()
            and not any(run.alone_until > now or run.backlog > ARRIVAL_ROWS_MAX for run in lane.members)
        ]
        return max(lanes, key=lambda lane: len(lane.members), default=None)

    def _enter(self, lane: Lane, run: SpanRun) -> None:
        run.lane, run.heir, run.ready_at = lane, None, None
        lane.take_on(run)
        if lane.started:
            self.settle(run)
            lane.wake()
