"""Agents of the world: a process with one session after the other, as agent/shell/service.py and life.py run them.

The machine, Turns, Lease, Heartbeat and IdWatch are the real ones. Only what reads a clock or waits in the service is
written again here: reading, the replay to an end, the retry of a write that was not acknowledged.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from headgate.agent.core.announcements import announced
from headgate.agent.core.messages import AgentInput, SessionStarted
from headgate.agent.core.state import evolve, new_state, task_count
from headgate.agent.shell.session import Heartbeat, IdInUseError, IdWatch, Lease, SessionLostError
from headgate.agent.shell.turns import Turns, place_word
from headgate.eventlog.log import Delivery, LogError, NewerSchemaError, Partition
from headgate.eventlog.sharding import ANNOUNCE
from headgate.records.base import Fact
from headgate.records.control import AgentAnnounced, Liveness
from headgate.records.keys import AgentKey
from headgate.runtime.machine import Arrived
from headgate_lab.simulation.executor import SimulatedExecutor
from headgate_lab.simulation.processes import Process, ProcessSurroundings

WRITE_SECONDS: Final = 2.0
"""As in agent/shell/service.py, like the next three."""

TURN_RECORDS_MAX: Final = 5_000
DRAIN_SECONDS: Final = 10.0
SESSION_PAUSE_SECONDS: Final = 1.0

EARLY_WORK_WEIGHT: Final = 50.0
"""How much oftener than freezes the data plane gets a turn before the heartbeat."""


class AgentProcess(Process):
    """An agent: sessions one after the other, as agent/shell/service.py runs them."""

    def __init__(self, stage: ProcessSurroundings, name: str, sessions: "Sessions") -> None:
        super().__init__(stage, name)
        self._sessions = sessions
        self.session: _Session | None = None
        self._start_at = float("-inf")
        self.is_leaving = False
        self.hangs_until = float("-inf")
        """The main thread does nothing before; heartbeats and data plane continue."""

    def act(self) -> None:
        """Heartbeat and data plane always, the main thread unless it waits."""
        if self.session is None:
            if self.is_leaving:
                self.is_over = True
            elif self.stage.monotonic() >= self._start_at:
                self.session = self._sessions.begin(self)
            return
        session = self.session
        # After a freeze any thread may be the first to run: the data plane too, which has no lease of its own.
        if self.stage.strikes("freeze", EARLY_WORK_WEIGHT):
            session.executor.work()
        session.beat()
        session.executor.work()
        if self.is_blocked or self.stage.monotonic() < self.hangs_until:
            return
        try:
            session.turn()
            if self.is_over:
                self._end_session()
        except SessionLostError as lost:
            self.stage.mark(
                "end of session: written dead"
                if "written" in str(lost) or "wrote" in str(lost)
                else "end of session: lease"
            )
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
        """See Process."""
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

    def __init__(self, *, is_known: bool = True) -> None:
        """``is_known``: coordinators have the agents' lease in their settings, too."""
        self.is_known = is_known
        self.leases: dict[tuple[str, str], Lease] = {}
        self.told: set[tuple[str, str]] = set()
        """Sessions whose lease is on the log."""

    def begin(self, process: AgentProcess) -> "_Session":
        """The next session of an agent."""
        return _Session(process, f"s{len(self.leases) + 1}", self)

    def committed(self, key: object, value: object) -> None:
        """A record has become a fact: it may be the one with the length of a session's lease."""
        if isinstance(key, AgentKey) and isinstance(value, AgentAnnounced) and value.lease_seconds is not None:
            self.told.add((key.agent, key.session))

    def is_lost(self, session: tuple[str, str]) -> bool:
        """Whether the session itself knows that it is over, or has not announced its lease."""
        return self.leases[session].lost() or (not self.is_known and session not in self.told)


class _Session:
    def __init__(self, process: AgentProcess, name: str, sessions: Sessions) -> None:
        stage = process.stage
        self._process, self._stage, self._log = process, stage, process.log
        self.key = AgentKey(process.name, name)
        self.lease = sessions.leases[process.name, name] = Lease(stage.profile.agent_lease_seconds, stage.monotonic)
        self.executor = SimulatedExecutor(stage, self._log.cluster_id, self.key)
        self.heartbeat = Heartbeat(
            self._log, self.key, self.lease, self._announcement, on_lost=self.executor.kill, clock=stage.monotonic
        )
        self.state = new_state(process.name, name, self._log.shards)
        self._watch = IdWatch(self.key)
        shards = range(self._log.shards)
        self._partitions = [ANNOUNCE, *(Partition(t, s) for t in ("changefeed", "dispatch") for s in shards)]
        self._reader = self._log.reader(dict.fromkeys(self._partitions, 0))
        self._writer = self._log.writer(name)
        self._beat_at = float("-inf")
        self._said = (self.heartbeat.liveness, 0)
        self._ends: dict[Partition, int] | None = None
        self._wait_until = stage.monotonic() + self.lease.seconds
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
        said = (self.heartbeat.liveness, self._log.level.writes)
        if now < self._beat_at and self._said == said:
            return
        self._said = said
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
        if reached or self._stage.monotonic() > self._wait_until:
            if not reached:
                self._stage.mark("session began before the end of the log")
            self.is_serving = True
            self.turns.turn(deque([SessionStarted()]))

    def _read(self) -> list[Delivery]:
        try:
            items = self._reader.poll(TURN_RECORDS_MAX, 0.0)
        except NewerSchemaError:
            self._stage.ended_by_newer(self._process)
            return []
        except LogError:
            return []
        deliveries = [item for item in items if isinstance(item, Delivery)]
        for item in deliveries:
            self._watch.read(item.key, item.value)
        return deliveries

    def _write(self, facts: list[Fact]) -> None:
        placed = [place_word(fact, self._log.shards) for fact in facts]
        while True:
            self.lease.check()
            # Beyond this line the client library sends by itself, even if the process sleeps through its lease here.
            self._stage.crash_point(self._process, "before report")
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
        return announced(
            liveness,
            count,
            self._stage.now().wall_ms,
            capacity_spans=self._stage.profile.capacity,
            address="sim",
            lease_seconds=self.lease.seconds,
            level=self._log.level.writes,
            reads=self._process.reads,
        )
