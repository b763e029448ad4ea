"""One history: processes, log, sink and operator under one clock that only steps, and one source of chance, the seed.

    safety     faults as the profile has them; every guarantee is checked at every step
    liveness   everything is healed; within a bounded time every desired state must be reached, and stay so

The same seed gives the same history, byte for byte: ``digest`` is of all that ever became visible, in order.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headgate.agent.core.machine import decide
from headgate.agent.core.messages import AgentInput
from headgate.agent.core.state import AgentState
from headgate.coordinator.core.machine import COORDINATOR
from headgate.eventlog.log import Partition
from headgate.records.control import Positions
from headgate.records.keys import AgentKey, SpanKey
from headgate.runtime.machine import Decision, Machine, Now
from headgate.runtime.role import Role, RoleState, TermEffect
from headgate.sinks.contract import Claim
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.memory_log.partition import LogEntry
from headgate_lab.simulation.agents import AgentProcess, Sessions
from headgate_lab.simulation.convergence import what_is_missing
from headgate_lab.simulation.executor import Request, SpanRun
from headgate_lab.simulation.faults import Faults
from headgate_lab.simulation.log_audit import LogAudit
from headgate_lab.simulation.operator import SimulatedOperator
from headgate_lab.simulation.processes import CoordinatorProcess, KilledError, Process
from headgate_lab.simulation.profile import Profile
from headgate_lab.simulation.sink import SimulatedSink
from headgate_lab.simulation.sink_audit import SinkAudit, Violation
from headgate_lab.simulation.source import SimulatedSource
from headgate_lab.simulation.upgrades import Upgrades
from headgate_lab.simulation.wire import Wire
from headgate_lab.worlds.kernel import replayed

__all__ = ["World"]

DIGEST_EVERY_STEPS: Final = 1_000
"""How often the three ways to a state are compared: replay of the compacted log costs as much as many steps."""

LIVENESS_SECONDS_MAX: Final = 400.0
"""Once faults have stopped: leases, a barrier, the longest back-off (60 s) and a prepare's deadline (60 s), twice."""

QUIET_SECONDS: Final = 12.0
"""How long what was reached must stay: longer than a lease, so that nothing is about to flap."""

DELETING_RATE: Final = 0.01
"""Per tick: some seconds for a session that would write for a feed that is gone without its sink."""

RARE_POINTS: Final = frozenset({"before init", "after init", "before effect"})
"""Crash points that are passed so seldom that they would hardly ever be struck."""

RARE_WEIGHT: Final = 10.0


class World:
    """A history of one profile; ``run`` plays it, raising Violation."""

    def __init__(self, profile: Profile, *, remembers_removed: bool = True) -> None:
        self.profile = profile
        self.chance = random.Random(f"history {profile.seed}")  # noqa: S311 - it decides what is tried, nothing secret
        self.clock = 1_000.0
        self.steps = 0
        self.marks: Counter[str] = Counter()
        self.sink_audit = SinkAudit()
        self.sink = SimulatedSink(self.sink_audit, remembers_removed=remembers_removed)
        self.sessions = Sessions(is_known=profile.lease_guess_seconds is None)
        self.log_audit = LogAudit(
            profile.shards,
            self.sink_audit,
            self.sessions.is_lost,
            self.marks,
            on_level=lambda level: self.upgrades.rose(level),  # noqa: PLW0108 - made after this
        )
        self.broker = MemoryBroker(shards=profile.shards)
        self.broker.on_committed = self._committed
        self.broker.monotonic = lambda: self.clock
        self.trace: list[str] | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._encoder = msgspec.msgpack.Encoder()
        self.source = SimulatedSource(self)
        self.upgrades = Upgrades(self)
        self.wall_shift_seconds = 0.0
        """How far the wall clock is off: nothing but records' times for people may show it."""
        self.wire = Wire(self)
        self._machine = Machine(
            new_state=COORDINATOR.new_state, evolve=COORDINATOR.evolve, decide=self._decide, digest=COORDINATOR.digest
        )
        self.processes: dict[str, Process] = {}
        self.operator = SimulatedOperator(
            profile,
            self.chance,
            self.broker,
            states=self.log_audit.states,
            source=self.source,
            wall_ms=lambda: self.now().wall_ms,
        )
        self.faults = Faults(self)
        self._digests_at = DIGEST_EVERY_STEPS
        for number in range(1, profile.coordinators + 1):
            self.start(f"c{number}")
        for number in range(1, profile.agents + 1):
            self.start(f"a{number}")

    # --- phases -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Safety, then liveness. Raises Violation."""
        self.operator.create_all()
        for _ in range(self.profile.ticks):
            self.tick()
        self.faults.stop()
        self._converge()
        self.compare_digests()

    def _converge(self) -> None:
        until = self.clock + LIVENESS_SECONDS_MAX
        settled_at: float | None = None
        missing: list[str] = []
        while self.clock < until:
            for _ in range(round(1.0 / self.profile.tick_seconds)):
                self.tick()
            missing = what_is_missing(self)
            self._delete_abandoned()
            if missing:
                if settled_at is not None:
                    self.marks["unsettled again"] += 1
                settled_at = None
                self.operator.repair()
            elif settled_at is None:
                settled_at = self.clock
            elif self.clock - settled_at >= QUIET_SECONDS:
                return
        raise Violation(f"2: {LIVENESS_SECONDS_MAX:.0f} s after the last fault: {'; '.join(missing) or 'flapping'}")

    def tick(self) -> None:
        """Time passes, and each process that can does what is due, in an order that is drawn."""
        profile, chance = self.profile, self.chance
        self.clock += profile.tick_seconds
        if not self.faults.stopped:
            if chance.random() < profile.request_rate:
                self.operator.ask_something()
            if self.strikes("table_paused"):
                self.operator.pause_or_resume_a_table()
            if self.strikes("rows_copied"):
                self.operator.copy_rows()
            if self.sink_audit.abandoned and chance.random() < DELETING_RATE:
                self._delete_abandoned()
            self.faults.strike()
        else:
            self.faults.mend()
        self.source.grow()
        processes = list(self.processes.values())
        chance.shuffle(processes)
        for process in processes:
            if not (process.is_over or process.is_frozen_inside or process.frozen_until > self.clock):
                self._act(process)
        self.wire.carry()
        self.wire.run_effects()
        if self.steps >= self._digests_at:
            self._digests_at = self.steps + DIGEST_EVERY_STEPS
            self.compare_digests()

    def _delete_abandoned(self) -> None:
        """The operator deletes by hand what feeds have left that were removed without their sink."""
        for feed_id in sorted(self.sink_audit.abandoned):
            self.sink.delete(feed_id)

    def _act(self, process: Process) -> None:
        if process.is_blocked and isinstance(process, CoordinatorProcess):
            return
        try:
            process.act()
        except KilledError:
            process.die()
        if process.is_over:
            self.end(process)

    def end(self, process: Process) -> None:
        """A process is over; its supervisor starts another, unless one is there already."""
        name = next((name for name, other in self.processes.items() if other is process), None)
        if name is not None:
            del self.processes[name]
            if all(other.name != process.name for other in self.processes.values()):
                self.faults.start_again(process.name)

    # --- processes --------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A process begins its life under a name; another one of that name may still be there, frozen."""
        process: Process
        if name.startswith("c"):
            process = CoordinatorProcess(self, name, self._machine)
        else:
            process = AgentProcess(self, name, self.sessions)
        self.processes[name] = process

    def now(self) -> Now:
        """The time."""
        return Now(self.clock, max(0, round((self.clock + self.wall_shift_seconds) * 1000)))

    def monotonic(self) -> float:
        """Seconds."""
        return self.clock

    def mark(self, name: str) -> None:
        """A rare state was reached."""
        self.marks[name] += 1

    def strikes(self, kind: str, weight: float = 1.0) -> bool:
        """Whether a fault of this kind happens now; ``weight`` makes up for occasions that are rare."""
        rate = self.profile.rates.get(kind)
        return rate is not None and not self.faults.stopped and self.chance.random() < rate * weight

    def gets_on(self) -> bool:
        """Whether a task takes its next step now."""
        return self.faults.stopped or self.chance.random() < self.profile.pace

    def how_long(self, choices: Sequence[float]) -> float:
        """See Surroundings."""
        return self.chance.choice(choices)

    def crash_point(self, process: Process, where: str) -> None:
        """See Stage."""
        weight = RARE_WEIGHT if where in RARE_POINTS else 1.0
        if self.strikes("killed_between", weight):
            self.marks[f"killed {where}"] += 1
            raise KilledError(process.name)
        if self.strikes("frozen_between", weight) and not process.is_frozen_inside:
            self.marks[f"frozen {where}"] += 1
            process.is_frozen_inside = True
            self._live_on(self.faults.long_pause())
            process.is_frozen_inside = False
            if process.is_over:
                raise KilledError(process.name)

    def block(self, process: Process, seconds: float) -> None:
        """See Stage."""
        process.is_blocked = True
        self._live_on(seconds)
        process.is_blocked = False
        if process.is_over:
            raise KilledError(process.name)

    def _live_on(self, seconds: float) -> None:
        until = self.clock + seconds
        while self.clock < until:
            self.tick()

    # --- the outside ------------------------------------------------------------------------------------------

    def source_end(self, topic: str, partition: int) -> int:
        """See Surroundings."""
        return self.source.end(topic, partition)

    def source_begin(self, topic: str, partition: int) -> int:
        """See Surroundings."""
        return self.source.begin(topic, partition)

    def is_sick(self, table: str) -> bool:
        """See Surroundings."""
        return table == self.profile.sick_table and not self.faults.stopped

    def reads(self, name: str) -> int:
        """See Stage."""
        return self.upgrades.reads(name)

    def ended_by_newer(self, process: Process) -> None:
        """See Stage."""
        self.upgrades.ended(process)

    def claims(self, session: AgentKey, run: SpanRun) -> None:
        """See Surroundings."""
        key = SpanKey(run.task.id.feed, run.task.id.span)
        self.log_audit.check_claim(key, session.agent, session.session, run.task.epoch)

    def positions(self, claim: Claim) -> Positions:
        """See Surroundings."""
        return self.sink.positions(claim)

    def send(self, request: Request) -> None:
        """See Surroundings."""
        self.wire.send(request)

    def run_effect(self, process: CoordinatorProcess, role: Role[Any], effect: TermEffect) -> None:
        """See Stage."""
        self.wire.run_effect(process, role, effect)

    def saw(self, what: object, line: Callable[[], str]) -> None:
        """Something became visible: it goes into the digest, and as a line into the trace if there is one."""
        self._hash.update(self._encoder.encode(what))
        if self.trace is not None:
            self.trace.append(f"{self.clock:9.2f} {line()}")

    def decide_for_agent(self, state: AgentState, given: AgentInput, now: Now) -> Decision:
        """See Stage."""
        self.steps += 1
        return decide(state, given, now)

    # --- what is seen of it -----------------------------------------------------------------------------------

    def _decide(self, state: Any, given: Any, now: Now) -> Any:
        self.steps += 1
        return COORDINATOR.decide(state, given, now)

    def _committed(self, partition: Partition, entry: LogEntry) -> None:
        self.saw(
            (partition, entry.offset, entry.key, entry.value), lambda: f"{_place(partition, entry)}: {entry.value}"
        )
        self.sessions.committed(entry.key, entry.value)
        self.log_audit.committed(partition, entry)

    def digest(self) -> str:
        """Of everything that became visible so far."""
        return self._hash.hexdigest()

    def compare_digests(self) -> None:
        """Guarantee 5: replay of the full log, of the compacted one, and every live state that has read all, agree."""
        for shard, full in sorted(self.log_audit.states.items()):
            topics = [p for p in self.broker.partitions() if p.topic == "announce" or p.number == shard]
            if any(self.broker.last_stable_offset(p) < self.broker.end_offset(p) for p in topics):
                continue
            wanted = COORDINATOR.digest(full)
            if COORDINATOR.digest(replayed(self.broker, COORDINATOR, topics, shard)) != wanted:
                raise Violation(f"5: shard {shard}: replay of the compacted log is not that of the full one")
            for process in self.processes.values():
                if isinstance(process, CoordinatorProcess):
                    self._compare_live(process, shard, wanted)

    def _compare_live(self, process: CoordinatorProcess, shard: int, wanted: str) -> None:
        role = process.roles[shard]
        positions = role.positions
        if positions is None or process.is_frozen_inside or role.status.state is RoleState.ENDED:
            return
        if all(self.broker.last_stable_offset(p) == self.broker.end_offset(p) <= at for p, at in positions.items()):
            self.marks[f"live digest compared, {role.status.state}"] += 1
            if role.digest() != wanted:
                raise Violation(f"5: shard {shard}: the live state of {process.name} differs from the log")


def _place(partition: Partition, entry: LogEntry) -> str:
    key = entry.key if isinstance(entry.key, str) else entry.key.text()
    return f"{partition.topic}/{partition.number}@{entry.offset} {key}"
