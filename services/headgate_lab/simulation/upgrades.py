"""Services of two versions in one world, upgraded one by one (docs/adr/0008).

An old process reads no schema level above the first, and reports that on announce. What is written for it is checked
against the schemas of that level. A process that was there when the level rose must not end by it. An old process that
starts too late is: it ends, and its operator upgrades it.
"""

from typing import TYPE_CHECKING, Final

from headgate.eventlog.log import LEVEL_FIRST
from headgate.eventlog.schema_files import schemas
from headgate_lab.simulation.processes import Process
from headgate_lab.simulation.sink_audit import Violation

if TYPE_CHECKING:
    from headgate_lab.simulation.world import World

NEWEST: Final = schemas().level

SEEN_SECONDS: Final = 60.0
"""Who has been there for so long has been seen by every owner: longer than any lag of the world (faults.py)."""

PACE_SECONDS: Final = 5.0
"""Once faults have stopped: one process after the other."""

FORGOTTEN_SHARE: Final = 0.3
"""How often an old process is taken away as it is and brought back later, one in a world: a machine under repair."""

FORGOTTEN_SECONDS: Final = 150.0
"""For so long: in the meantime its keys are swept (coordinator/core/sessions/membership.py) and the level rises."""


class Upgrades:
    """Which version each name runs, and when the level rose."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._reads: dict[str, int] = {}
        self._raised_at: float | None = None
        self._next_at = float("-inf")
        self._forgotten: set[str] = set()
        self._taken: set[str] = set()

    def reads(self, name: str) -> int:
        """Up to which level a process of that name reads."""
        return self._reads.get(name, LEVEL_FIRST) if self._world.profile.is_upgraded else NEWEST

    def upgrade_one(self) -> None:
        """The next old process is replaced: stopped as operators do, or killed."""
        world = self._world
        old = [process for process in world.processes.values() if process.reads < NEWEST and not self._is_late(process)]
        process = next((process for process in old if not process.is_frozen_inside), None)
        if process is None:
            return
        if not self._taken and not world.faults.stopped and world.chance.random() < FORGOTTEN_SHARE:
            world.mark("an old process was taken away as it is")
            self._forgotten.add(process.name)
            self._taken.add(process.name)
            process.leave()
            return
        self._reads[process.name] = NEWEST
        if world.chance.random() < 0.5 and not world.faults.stopped:
            process.leave()
        else:
            process.die()
            world.end(process)

    def absence(self, name: str) -> float | None:
        """Seconds for which a process that has ended stays away, if it is one of those that were taken away."""
        if name not in self._forgotten:
            return None
        self._forgotten.remove(name)
        return FORGOTTEN_SECONDS

    def go_on(self) -> None:
        """After the faults: until no process is old."""
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
        low = [f"shard {shard} is written at level {state.level}" for shard, state in states if state.level < NEWEST]
        reads = {process.name: process.reads for process in self._world.processes.values()}
        late = [name for name in sorted(self._taken) if reads.get(name, LEVEL_FIRST) < NEWEST]
        return low + [f"{name}, which was taken away, is not back and upgraded" for name in late]

    def _is_late(self, process: Process) -> bool:
        """Its operator learns from its end that it has to be upgraded."""
        return self._raised_at is not None and process.name in self._taken
