"""Which lane a span is on, and how lanes are joined.

A query reads the same partitions for as long as it runs. So a span that arrives starts in a small lane; once nothing
has come for a while, one lane for all spans of a feed starts beside the old ones, and takes them over (crew.py).
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from headgate.agent.executor import SpanId
from headgate.agent.lane.keeper import Board, SpanKeeper
from headgate.agent.lane.lane import Lane
from headgate.agent.lane.span import SpanRun
from headgate.records.control import TaskState

__all__ = ["ARRIVAL_SECONDS", "JOIN_SECONDS", "Placement"]

ARRIVAL_SECONDS: Final = 0.2
ARRIVAL_SECONDS_MAX: Final = 2.0
"""Spans that become ready within this time share a lane; a lane of its own for each would cost its fixed work. Longer
while others of the feed are being opened: a whole feed comes at a time."""

JOIN_SECONDS: Final = 5.0
"""Lanes of a feed are joined once none has started, and no span has come or left, for so long: a start costs half a
second of a core."""

LOSSES_BORNE: Final = 1
"""So often in a row spans whose lane was lost come together again (a worker was killed). After that they come in parts,
until whoever cannot be read has a lane to itself."""

PARTS: Final = 4

_Group: TypeAlias = tuple[str, bool, SpanId | None, int]


class Placement:
    """Finds lanes for spans among ``lanes``, by name; ``launch`` starts another one. With the board's lock held."""

    def __init__(
        self,
        board: Board,
        keeper: SpanKeeper,
        lanes: dict[str, Lane],
        launch: Callable[[Sequence[SpanRun], float], Lane],
    ) -> None:
        self._board = board
        self._keeper = keeper
        self._lanes = lanes
        self._launch = launch

    def place_ready(self, now: float) -> None:
        """One lane per feed and kind (written, warm, slow, suspect) for what is ready, the first having waited."""
        groups: dict[_Group, list[SpanRun]] = {}
        for _, run in sorted(self._board.runs.items()):
            if run.ready_at is not None and not (run.busy or run.stop or run.over):
                alone = run.task.id if run.alone_until > now else None
                groups.setdefault((run.task.spec, run.claimed, alone, _part_of(run)), []).append(run)
        coming = {run.task.spec for run in self._board.runs.values() if run.busy and run.lane is None and not run.stop}
        for (spec, *_), runs in groups.items():
            waited = now - min(run.ready_at or now for run in runs)
            if waited >= (ARRIVAL_SECONDS_MAX if spec in coming else ARRIVAL_SECONDS):
                lane = self._launch(runs, now)
                for run in runs:
                    run.lane, run.ready_at = lane, None
                    lane.take_on(run)

    def join(self, now: float) -> None:
        """One lane for all spans of a feed that have caught up, if they are on several, or on one with strangers."""
        feeds: dict[str, list[Lane]] = {}
        for _, lane in sorted(self._lanes.items()):
            if all(_is_quiet(run, now) for run in lane.members) and lane.has_caught_up() and not lane.failed:
                feeds.setdefault(lane.spec, []).append(lane)
        for _, lanes in sorted(feeds.items()):
            if any(lane.heirs or now - lane.changed_at < JOIN_SECONDS for lane in lanes):
                continue
            members = [run for lane in lanes for run in lane.members]
            if members and (len(lanes) > 1 or lanes[0].strangers):
                joined = self._launch(members, now)
                joined.heirs = members
                for run in members:
                    run.heir = joined

    def settle(self, run: SpanRun) -> None:
        """Its lane serves."""
        if run.state is TaskState.PREPARING and not run.stop:
            run.state = TaskState.REPLICATING if run.claimed else TaskState.PREPARED
        if run.primary and not run.claimed and not run.busy and not run.stop:
            self._keeper.submit(run, self._keeper.open)


def _is_quiet(run: SpanRun, now: float) -> bool:
    is_written = (run.writable or run.is_at_target) and run.state is TaskState.REPLICATING
    return is_written and run.heir is None and run.alone_until <= now


def _part_of(run: SpanRun) -> int:
    if run.losses <= LOSSES_BORNE:
        return 0
    parts: int = PARTS ** (run.losses - LOSSES_BORNE)
    return 1 + zlib.crc32(str(run.task.id).encode()) % parts
