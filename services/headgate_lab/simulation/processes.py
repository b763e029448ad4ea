"""The processes of the world, what they see of it, and coordinators with their roles (agents: agents.py).

Role, Term and machine are the real ones. Between any two steps that others
could tell apart there is a crash point, where the world may freeze the process for a while, in which all others
continue, or end it.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.agent.core.messages import AgentInput
from headgate.agent.core.state import AgentState
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.log import (
    FencedError,
    LevelTooLowError,
    NewerSchemaError,
    Partition,
    Placed,
    SchemaLevel,
)
from headgate.runtime.machine import Decision, Machine, Now
from headgate.runtime.presence import Presence
from headgate.runtime.role import Role, RoleEndedError, TermEffect
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog, MemoryTransactionalWriter
from headgate_lab.simulation.executor import Surroundings
from headgate_lab.simulation.profile import Profile
from headgate_lab.worlds.kernel import role_settings

TURNS_MAX: Final = 4
"""Turns that a role takes at a time while it reports more to do."""


class KilledError(BaseException):
    """SIGKILL, at the place where it is raised; nothing in a process can catch it."""


class ProcessSurroundings(Surroundings, Protocol):
    """What processes see of the world."""

    broker: MemoryBroker
    profile: Profile

    def now(self) -> Now:
        """The time."""
        ...

    def decide_for_agent(self, state: AgentState, given: AgentInput, now: Now) -> Decision:
        """The agent's machine, counted."""
        ...

    def crash_point(self, process: "Process", where: str) -> None:
        """Something may happen to the process here. Raises KilledError."""
        ...

    def block(self, process: "Process", seconds: float) -> None:
        """The process's main thread waits; its other threads, and all other processes, continue."""
        ...

    def mark(self, name: str) -> None:
        """A rare state was reached."""
        ...

    def reads(self, name: str) -> int:
        """Up to which schema level a process of that name reads."""
        ...

    def ended_by_newer(self, process: "Process") -> None:
        """The process has met a record that it cannot read."""
        ...

    def run_effect(self, process: "CoordinatorProcess", role: "Role[Any]", effect: TermEffect) -> None:
        """An effect of a coordinator was submitted."""
        ...


def transactional_id(shard: int) -> str:
    """The fixed id of a shard's role."""
    return f"headgate.coordinator-{shard}"


class Process:
    """What can be frozen, blocked, cut off and killed. ``busy`` counts waits inside its main thread."""

    def __init__(self, stage: ProcessSurroundings, name: str) -> None:
        self.stage = stage
        self.name = name
        self.reads = stage.reads(name)
        self.born = stage.monotonic()
        self.log = ProcessLog(stage.broker, self)
        self.frozen_until = float("-inf")
        self.is_frozen_inside = False
        self.is_blocked = False
        self.is_over = False

    def act(self) -> None:
        """Do what is due now."""
        raise NotImplementedError

    def leave(self) -> None:
        """SIGTERM."""
        raise NotImplementedError

    def read_of(self, partition: Partition) -> list[int]:
        """How far its readers of a partition are."""
        raise NotImplementedError

    def die(self) -> None:
        """SIGKILL: what its connections hold is let go of, without a word."""
        self.is_over = True


class ProcessLog(MemoryLog):
    """A process's connection, with crash points around every commit and every write."""

    def __init__(self, broker: MemoryBroker, process: Process) -> None:
        super().__init__(broker, SchemaLevel(process.reads))
        self.process = process

    def transactional_writer(self, transactional_id: str) -> "_OwnersLogWriter":
        """See Log."""
        return _OwnersLogWriter(self, transactional_id)


class _OwnersLogWriter(MemoryTransactionalWriter):
    def __init__(self, log: ProcessLog, transactional_id: str) -> None:
        super().__init__(log, transactional_id)
        self._process = log.process

    def init(self) -> None:
        self._process.stage.crash_point(self._process, "before init")
        super().init()
        self._process.stage.crash_point(self._process, "after init")

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        self._process.stage.crash_point(self._process, "before commit")
        try:
            offsets = super().commit(placed)
        except FencedError:
            self._process.stage.mark("fenced after deciding, at the commit")
            raise
        except LevelTooLowError as error:
            # The loop would fall and retry without end; the machine must know before what it may write.
            raise AssertionError(f"decided what the log's level cannot express: {error}") from error
        self._process.stage.crash_point(self._process, "after commit")
        return offsets


class CoordinatorProcess(Process):
    """A role per shard."""

    def __init__(self, stage: ProcessSurroundings, name: str, machine: Machine[Any]) -> None:
        super().__init__(stage, name)
        profile = stage.profile
        settings = {
            shard: role_settings(
                COORDINATOR_KIND,
                name,
                shard,
                transactional_id=transactional_id(shard),
                version="sim",
                schema_version=self.reads,
                lease_seconds=profile.lease_seconds,
                holder_lease_seconds=profile.lease_guess_seconds or profile.agent_lease_seconds,
            )
            for shard in range(profile.shards)
        }
        self.roles = {
            shard: Role(each, machine, self.log, run_effect=self._submitter(shard)) for shard, each in settings.items()
        }
        self._presence = Presence(self.log, settings[0], self._standing, lambda: stage.now().wall_ms)
        self._beat_at = float("-inf")

    def act(self) -> None:
        """Announce it; turn every role, while it has more to do."""
        now = self.stage.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + self._presence.pause
            self._presence.beat()
        for role in self.roles.values():
            try:
                for _ in range(TURNS_MAX):
                    if role.turn(self.stage.now()) > 0:
                        break
            except RoleEndedError as ended:
                if isinstance(ended.__cause__, NewerSchemaError):
                    self.stage.ended_by_newer(self)
                else:
                    self.stage.mark("a role resigned")
                self.is_over = True
        if self.is_over:
            self.die()

    def read_of(self, partition: Partition) -> list[int]:
        """See Process."""
        read = [role.positions for role in self.roles.values()]
        return [at[partition] for at in read if at is not None and partition in at]

    def leave(self) -> None:
        """See Process."""
        self._presence.leave()
        self._beat_at = float("inf")
        for role in self.roles.values():
            role.resign()

    def die(self) -> None:
        """See Process."""
        super().die()
        for role in self.roles.values():
            role.close()

    def _standing(self) -> list[int]:
        return [shard for shard, role in sorted(self.roles.items()) if role.stands]

    def _submitter(self, shard: int) -> Any:
        def submit(effect: TermEffect) -> None:
            self.stage.crash_point(self, "before effect")
            self.stage.run_effect(self, self.roles[shard], effect)

        return submit
