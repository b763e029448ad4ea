"""The processes of the world: coordinators with their roles, agents with their sessions, and what happens to each.

Role and Term, the machines, Lease, Heartbeat, IdWatch and Turns are the real ones. Between any two steps that others
could tell apart there is a crash point, where the world may freeze the process for a while, in which everybody else
goes on, or end it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from headgate.agent.machine import AgentInput, AgentState, SessionStarted, evolve, new_state, task_count
from headgate.agent.session import Heartbeat, IdInUseError, IdWatch, Lease, SessionLostError
from headgate.agent.turns import Turns, place_word
from headgate.eventlog.log import Delivery, FencedError, LogError, Partition, Placed
from headgate.eventlog.machine import Arrived, Decision, Machine, Now
from headgate.eventlog.memory import MemoryBroker, MemoryLog, MemoryTransactionalWriter
from headgate.eventlog.role import Role, RoleEndedError, TermEffect
from headgate.eventlog.settings import RoleSettings
from headgate.eventlog.sharding import ANNOUNCE
from headgate.records.control import AgentAnnounced, Liveness
from headgate.records.keys import AgentKey, Fact
from headgate.simulation.executor import SimulatedExecutor, Surroundings
from headgate.simulation.profile import Profile

__all__ = ["AgentProcess", "CoordinatorProcess", "KilledError", "Process", "Sessions", "Stage", "transactional_id"]

WRITE_SECONDS: Final = 2.0
"""As in agent/service.py."""

TURN_RECORDS_MAX: Final = 5_000
TURNS_MAX: Final = 4
"""Turns that a role takes at a time while it says that there is more to do."""

DRAIN_SECONDS: Final = 10.0
SESSION_PAUSE_SECONDS: Final = 1.0


class KilledError(BaseException):
    """SIGKILL, at the place where it is raised; nothing in a process can catch it."""


class Stage(Surroundings, Protocol):
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
        """The process's main thread waits; its other threads, and everybody else, go on."""
        ...

    def mark(self, name: str) -> None:
        """A rare state was reached."""
        ...

    def run_effect(self, process: "CoordinatorProcess", role: "Role[Any]", effect: TermEffect) -> None:
        """An effect of a coordinator was submitted."""
        ...


def transactional_id(shard: int) -> str:
    """The fixed id of a shard's role."""
    return f"headgate.coordinator-{shard}"


class Process:
    """What can be frozen, blocked, cut off and killed. ``busy`` counts waits inside its main thread."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.log = ProcessLog(stage.broker, self)
        self.frozen_until = float("-inf")
        self.is_frozen_inside = False
        self.is_blocked = False
        self.is_over = False

    def act(self) -> None:
        """Do what is due now."""
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
        super().__init__(broker)
        self.process = process

    def transactional_writer(self, transactional_id: str) -> "_OwnersPen":
        """See Log."""
        return _OwnersPen(self, transactional_id)


class _OwnersPen(MemoryTransactionalWriter):
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
        self._process.stage.crash_point(self._process, "after commit")
        return offsets


class CoordinatorProcess(Process):
    """A role per shard."""

    def __init__(self, stage: Stage, name: str, machine: Machine[Any]) -> None:
        super().__init__(stage, name)
        profile = stage.profile
        self.roles = {
            shard: Role(
                RoleSettings(
                    shard=shard,
                    owner_id=name,
                    transactional_id=transactional_id(shard),
                    version="sim",
                    schema_version=1,
                    lease_seconds=profile.lease_seconds,
                    agent_lease_seconds=profile.agent_lease_seconds,
                ),
                machine,
                self.log,
                run_effect=self._submitter(shard),
            )
            for shard in range(profile.shards)
        }

    def act(self) -> None:
        """Turn every role, while it has more to do."""
        for role in self.roles.values():
            try:
                for _ in range(TURNS_MAX):
                    if role.turn(self.stage.now()) > 0:
                        break
            except RoleEndedError:
                self.stage.mark("a role resigned")
                self.is_over = True
        if self.is_over:
            self.die()

    def read_of(self, partition: Partition) -> list[int]:
        """See Process."""
        read = [role.positions for role in self.roles.values()]
        return [at[partition] for at in read if at is not None and partition in at]

    def resign(self) -> None:
        """SIGTERM."""
        for role in self.roles.values():
            role.resign()

    def die(self) -> None:
        """See Process."""
        super().die()
        for role in self.roles.values():
            role.close()

    def _submitter(self, shard: int) -> Any:
        def submit(effect: TermEffect) -> None:
            self.stage.crash_point(self, "before effect")
            self.stage.run_effect(self, self.roles[shard], effect)

        return submit


class AgentProcess(Process):
    """An agent: sessions one after the other, as agent/service.py runs them."""

    def __init__(self, stage: Stage, name: str, sessions: "Sessions") -> None:
        super().__init__(stage, name)
        self._sessions = sessions
        self.session: _Session | None = None
        self._start_at = float("-inf")
        self.is_leaving = False

    def act(self) -> None:
        """Heartbeat and data plane always, the main thread unless it waits."""
        if self.session is None:
            if self.is_leaving:
                self.is_over = True
            elif self.stage.monotonic() >= self._start_at:
                self.session = self._sessions.begin(self)
            return
        session = self.session
        session.beat()
        session.executor.work()
        if self.is_blocked:
            return
        try:
            session.turn()
        except SessionLostError as lost:
            self.stage.mark("suicide: written dead" if "written" in str(lost) or "wrote" in str(lost) else "suicide: lease")
            self._end_session()
        except IdInUseError:
            self.stage.mark("id in use")
            self._end_session()
            self.is_over = True

    def read_of(self, partition: Partition) -> list[int]:
        """See Process."""
        at = {} if self.session is None else self.session.positions()
        return [at[partition]] if partition in at else []

    def leave(self) -> None:
        """SIGTERM."""
        self.is_leaving = True
        if self.session is not None:
            self.session.heartbeat.stopping()

    def die(self) -> None:
        """See Process."""
        super().die()
        self._end_session()

    def _end_session(self) -> None:
        session, self.session = self.session, None
        self._start_at = self.stage.monotonic() + SESSION_PAUSE_SECONDS
        if session is not None:
            session.end()


class Sessions:
    """Every session there has been: names that do not repeat, and the leases that the audit asks about."""

    def __init__(self) -> None:
        self.leases: dict[tuple[str, str], Lease] = {}

    def begin(self, process: AgentProcess) -> "_Session":
        """The next session of an agent."""
        return _Session(process, f"s{len(self.leases) + 1}", self.leases)

    def is_lost(self, session: tuple[str, str]) -> bool:
        """Whether the session itself knows that it is over."""
        return self.leases[session].lost()


class _Session:
    def __init__(self, process: AgentProcess, name: str, leases: dict[tuple[str, str], Lease]) -> None:
        stage = process.stage
        self._process, self._stage, self._log = process, stage, process.log
        self.key = AgentKey(process.name, name)
        self.lease = leases[process.name, name] = Lease(stage.profile.agent_lease_seconds, stage.monotonic)
        self.executor = SimulatedExecutor(stage, self._log.cluster_id, self.key)
        self.heartbeat = Heartbeat(
            self._log, self.key, self.lease, self._announcement, on_lost=self.executor.kill, clock=stage.monotonic
        )
        self.state = new_state(process.name, name, self._log.shards)
        self._watch = IdWatch(self.key, self.lease.seconds, stage.monotonic())
        shards = range(self._log.shards)
        self._partitions = [ANNOUNCE, *(Partition(t, s) for t in ("changefeed", "dispatch") for s in shards)]
        self._reader = self._log.reader(dict.fromkeys(self._partitions, 0))
        self._writer = self._log.writer(name)
        self._beat_at = float("-inf")
        self._said = self.heartbeat.liveness
        self._ends: dict[Partition, int] | None = None
        self._patience = stage.monotonic() + self.lease.seconds
        self._leave_at: float | None = None
        self.turns = Turns(
            self.state,
            self.executor,
            self.lease,
            self._write,
            clock=stage.monotonic,
            wall_ms=lambda: stage.now().wall_ms,
            on_progress=lambda _statuses: None,
            decide=stage.decide_for_agent,
        )
        self.is_serving = False

    def beat(self) -> None:
        """What the heartbeat's thread does."""
        now = self._stage.monotonic()
        if now < self._beat_at and self._said is self.heartbeat.liveness:
            return
        self._said = self.heartbeat.liveness
        self._beat_at = now + self.heartbeat.pause
        if not self.heartbeat.beat():
            self.executor.kill()

    def turn(self) -> None:
        """What the main thread does."""
        self.lease.check()
        deliveries = self._read()
        if not self.is_serving:
            self._replay(deliveries)
            return
        self.lease.check()
        inputs: deque[AgentInput] = deque(Arrived(delivery) for delivery in deliveries)
        inputs.extend(self.turns.changes())
        inputs.extend(self.turns.due())
        self.turns.turn(inputs)
        if self._process.is_leaving:
            now = self._stage.monotonic()
            if self._leave_at is None:
                self._leave_at = now + DRAIN_SECONDS
            if not task_count(self.state) or now >= self._leave_at:
                self._stage.mark("agent left empty" if not task_count(self.state) else "agent left with tables")
                self._process.die()

    def positions(self) -> Mapping[Partition, int]:
        """How far it has read."""
        return self._reader.positions()

    def end(self) -> None:
        """Nothing of this session writes beyond this, but for what is on the wire."""
        self.heartbeat.mute()
        self.lease.give_up()
        self.executor.kill()
        self._reader.close()
        self._writer.close()

    def _replay(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            evolve(self.state, delivery.key, delivery.value, delivery.offset)
        if self._ends is None:
            if not self.heartbeat.acknowledged.is_set():
                return
            try:
                self._ends = self._log.end_offsets(self._partitions)
            except LogError:
                return
        at = self._reader.positions()
        reached = all(at[partition] >= end for partition, end in self._ends.items())
        if reached or self._stage.monotonic() > self._patience:
            if not reached:
                self._stage.mark("session began before the end of the log")
            self.is_serving = True
            self.turns.turn(deque([SessionStarted()]))

    def _read(self) -> list[Delivery]:
        try:
            items = self._reader.poll(TURN_RECORDS_MAX, 0.0)
        except LogError:
            return []
        now = self._stage.monotonic()
        deliveries = [item for item in items if isinstance(item, Delivery)]
        for item in deliveries:
            self._watch.read(item.key, item.value, now)
        return deliveries

    def _write(self, facts: list[Fact]) -> None:
        placed = [place_word(fact, self._log.shards) for fact in facts]
        self._stage.crash_point(self._process, "before report")
        while True:
            self.lease.check()
            if self._stage.strikes("write_unacknowledged"):
                self._log.fail_write(applied=self._stage.gets_on())
            try:
                self._writer.write(placed, WRITE_SECONDS)
            except LogError:
                self._stage.mark("report not acknowledged")
                self._stage.block(self._process, WRITE_SECONDS)
            else:
                break
        self._stage.crash_point(self._process, "after report")

    def _announcement(self, liveness: Liveness, count: int) -> AgentAnnounced:
        capacity, now = self._stage.profile.capacity, self._stage.now().wall_ms
        return AgentAnnounced("sim", 1, capacity, 0.0, liveness, "sim", count, now)
