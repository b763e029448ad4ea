"""Services of two versions in one world, upgraded one by one (docs/adr/0008).

An old process reads no schema level above the first, and says so on announce. Whatever is written for it is checked
against the schemas of that level. Nobody who was there when the level rose may be ended by it. An old process that
starts too late is: it ends, and its operator upgrades it.
"""

from typing import TYPE_CHECKING, Final

from headgate.eventlog.log import LEVEL_FIRST
from headgate.eventlog.schema_files import schemas
from headgate.simulation.processes import Process
from headgate.simulation.sink_audit import Violation

if TYPE_CHECKING:
    from headgate.simulation.world import World

__all__ = ["Upgrades"]

NEWEST: Final = schemas().level

SEEN_SECONDS: Final = 60.0
"""Who has been there for so long has been seen by every owner: longer than any lag of the world (faults.py)."""

PACE_SECONDS: Final = 5.0
"""Once faults have stopped: one process after the other."""


class Upgrades:
    """Which version each name runs, and when the level rose."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._reads: dict[str, int] = {}
        self._raised_at: float | None = None
        self._next_at = float("-inf")

    def reads(self, name: str) -> int:
        """Up to which level a process of that name reads."""
        return self._reads.get(name, LEVEL_FIRST) if self._world.profile.is_upgraded else NEWEST

    def upgrade_one(self) -> None:
        """The next old process is replaced: stopped as operators do, or killed."""
        world = self._world
        process = next((p for p in world.processes.values() if p.reads < NEWEST and not p.is_frozen_inside), None)
        if process is None:
            return
        self._reads[process.name] = NEWEST
        if world.chance.random() < 0.5 and not world.faults.stopped:
            process.leave()
        else:
            process.die()
            world.bury(process)

    def go_on(self) -> None:
        """After the faults: until nobody is old."""
        if self._world.clock >= self._next_at:
            self._next_at = self._world.clock + PACE_SECONDS
            self.upgrade_one()

    def rose(self, level: int) -> None:
        """An owner has announced a higher level than any before."""
        if self._world.profile.is_upgraded and level > LEVEL_FIRST:
            self._raised_at = self._world.clock
            self._world.mark("the level rose after an upgrade")

    def ended(self, process: Process) -> None:
        """A process has met a record that it cannot read, and is over. Raises Violation if it was there before."""
        if self._raised_at is None:
            raise Violation(f"4: {process.name} met a newer record, though the level never rose")
        if process.born < self._raised_at - SEEN_SECONDS:
            raise Violation(f"4: {process.name} was there since {process.born:.0f}, the level rose over it")
        self._world.mark("an old process came too late")
        self._reads[process.name] = NEWEST
        process.is_over = True

    def missing(self) -> list[str]:
        """What is not upgraded yet."""
        states = sorted(self._world.log_audit.states.items())
        return [f"shard {shard} is written at level {state.level}" for shard, state in states if state.level < NEWEST]
