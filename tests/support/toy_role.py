"""A toy machine that settles requests, and a world of roles on an in-memory log: what tests of the role loop drive.

The toy answers each request by its kind: PAUSE_FEED at once, CREATE_FEED after an effect, RESUME_FEED after a timer
(REMOVE_FEED cancels the timers). A silent session is ended and its announcement deleted.
"""

import hashlib

import msgspec

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.records.base import Fact, Key, Record
from headgate.records.control import (
    SESSION_LEFT,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    OwnerAnnounced,
    RequestSettled,
    SessionEnded,
)
from headgate.records.keys import AgentKey, OutcomeKey, OwnerKey, RequestKey, SessionKey
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    Decision,
    EffectFinished,
    HolderSilent,
    Input,
    Machine,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)
from headgate.runtime.role import RoleState
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.worlds.kernel import OwnerProcess, replayed, role_settings
from support import build

ANNOUNCE = Partition("announce", 0)
LEASE = 5.0
AGENT_LEASE = 10.0
TIMER_SECONDS = 3.0


class Resolve(msgspec.Struct, frozen=True):
    """The toy's one effect."""

    request: str


class ToyState:
    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.owner_rev = -1
        self.records: dict[Key, Record] = {}
        self.request_offsets: dict[str, int] = {}
        self.inputs: list[Input] = []
        """What the machine was asked to decide: for the tests, not part of the digest."""


def evolve(state: ToyState, key: Key, value: Record | None, offset: int) -> None:
    if value is None:
        state.records.pop(key, None)
    else:
        state.records[key] = value
    if isinstance(key, OwnerKey) and key.shard == state.shard and isinstance(value, OwnerAnnounced):
        state.owner_rev = offset if value.owner_rev is None else value.owner_rev
    if isinstance(key, RequestKey) and value is not None:
        state.request_offsets[key.request] = offset


def settled(state: ToyState, request: str, reason: str, now: Now) -> Fact:
    record = RequestSettled(owner_rev=state.owner_rev, status=OutcomeStatus.DONE, reason=reason, settled_ms=now.wall_ms)
    return Fact(OutcomeKey(request), record)


def answer(state: ToyState, request: str, record: OperationRequested, now: Now) -> Decision:
    if record.kind is OperationKind.CREATE_FEED:
        return Decision(effects=(Resolve(request),))
    if record.kind is OperationKind.RESUME_FEED:
        return Decision(effects=(SetTimer(request, TIMER_SECONDS),))
    if record.kind is OperationKind.REMOVE_FEED:
        timers = [key.request for key in sorted(k for k in state.records if isinstance(k, RequestKey))]
        return Decision(effects=tuple(CancelTimer(name) for name in timers))
    count = sum(isinstance(key, OutcomeKey) for key in state.records)
    return Decision(facts=(settled(state, request, f"number {count}", now),))


def ended(state: ToyState, agent: str, session: str, reason: str, now: Now) -> Decision:
    record = SessionEnded(owner_rev=state.owner_rev, reason=reason, ended_ms=now.wall_ms)
    return Decision(facts=(Fact(SessionKey(agent, session), record), Fact(AgentKey(agent, session), None)))


def decide(state: ToyState, given: Input, now: Now) -> Decision:  # noqa: PLR0911 - a case for each input
    state.inputs.append(given)
    match given:
        case TermBegan():
            requests = sorted(key.request for key in state.records if isinstance(key, RequestKey))
            open_ones = [request for request in requests if OutcomeKey(request) not in state.records]
            return Decision(facts=tuple(settled(state, request, "found open", now) for request in open_ones))
        case Arrived(delivery):
            if isinstance(delivery.key, AgentKey) and delivery.value is None:
                agent, session = delivery.key.agent, delivery.key.session
                is_known = SessionKey(agent, session) in state.records
                return Decision() if is_known else ended(state, agent, session, f"{SESSION_LEFT}bye", now)
            if isinstance(delivery.key, RequestKey) and isinstance(delivery.value, OperationRequested):
                return answer(state, delivery.key.request, delivery.value, now)
        case TimerFired(name):
            return Decision(facts=(settled(state, name, "timer", now),))
        case EffectFinished(effect, result):
            return Decision(facts=(settled(state, effect.request, f"result {result}", now),))
        case HolderSilent(holder=(agent, session)):
            return ended(state, agent, session, "silent", now)
    return Decision()


def digest(state: ToyState) -> str:
    body = (
        state.owner_rev,
        sorted((key.topic, key.text(), msgspec.json.encode(value)) for key, value in state.records.items()),
        sorted((name, at) for name, at in state.request_offsets.items() if RequestKey(name) in state.records),
    )
    return hashlib.sha256(msgspec.json.encode(body)).hexdigest()


TOY: Machine[ToyState] = Machine(new_state=ToyState, evolve=evolve, decide=decide, digest=digest)


class Member(OwnerProcess[ToyState]):
    """A process with a role, and the facts that it has committed."""

    def __init__(self, world: "World", owner_id: str, shard: int) -> None:
        self.world = world
        self.committed: list[tuple[Fact, ...]] = []
        settings = role_settings(
            COORDINATOR_KIND,
            owner_id,
            shard,
            transactional_id=transactional_id(shard),
            version="0.1.0",
            lease_seconds=LEASE,
            holder_lease_seconds=AGENT_LEASE,
        )
        super().__init__(settings, TOY, world.broker, on_commit=lambda _, facts: self.committed.append(tuple(facts)))

    @property
    def state(self) -> RoleState:
        return self.role.status.state

    @property
    def outcomes(self) -> dict[str, str]:
        records = self.role.view.records
        return {
            key.request: value.reason
            for key, value in records.items()
            if isinstance(key, OutcomeKey) and isinstance(value, RequestSettled)
        }

    def inputs(self, kind: type) -> list[Input]:
        return [given for given in self.role.view.inputs if isinstance(given, kind)]

    def turn(self) -> float:
        return self.role.turn(self.world.now())

    def serve(self) -> "Member":
        """Turn until it serves, at standing time."""
        for _ in range(20):
            if self.state is RoleState.SERVING:
                return self
            self.turn()
        raise AssertionError(f"does not serve: {self.role.status}")


def transactional_id(shard: int = 0) -> str:
    return f"toy-{shard}"


class World:
    """A broker, a clock, and members that take their turns."""

    def __init__(self, shards: int = 1) -> None:
        self.broker = MemoryBroker(shards=shards)
        self.broker.monotonic = lambda: self.clock
        self.clock = 1000.0
        self.client = self.broker.client()
        self.beats = 0

    def now(self) -> Now:
        return Now(monotonic=self.clock, wall_ms=int(self.clock * 1000))

    def member(self, owner_id: str, shard: int = 0) -> Member:
        return Member(self, owner_id, shard)

    def run(self, seconds: float, *members: Member, step: float = 0.25, beat: tuple[str, ...] = ()) -> None:
        """Let time pass in steps; in each, the agents in ``beat`` announce themselves and every member has a turn."""
        until = self.clock + seconds
        while self.clock < until - 1e-9:
            self.clock += step
            for agent in beat:
                self.beat(agent)
            for member in members:
                member.turn()

    def request(self, name: str, kind: OperationKind = OperationKind.PAUSE_FEED, shard: int = 0) -> None:
        record = build.operation_requested(kind=kind)
        self.write(Partition("changefeed", shard), Fact(RequestKey(name), record))

    def beat(self, agent: str, session: str = "s1") -> None:
        self.beats += 1
        record = build.agent_announced(version="0.1.0", capacity_spans=1, heartbeat=self.beats)
        self.write(ANNOUNCE, Fact(AgentKey(agent, session), record))

    def write(self, partition: Partition, fact: Fact) -> None:
        self.client.writer("tester").write([Placed(partition, fact)], 1.0)

    def announced(self, shard: int = 0) -> list[tuple[int, OwnerAnnounced]]:
        """(offset, record) of every committed announcement of a shard's owners."""
        reader = self.broker.client().reader({ANNOUNCE: 0})
        found = []
        while batch := reader.poll(1000, 0.0):
            found += [
                (each.offset, each.value)
                for each in batch
                if isinstance(each, Delivery) and each.key == OwnerKey(shard) and isinstance(each.value, OwnerAnnounced)
            ]
        return found

    def replayed_digest(self, shard: int = 0) -> str:
        """The digest of a fresh state after all that a reader sees now."""
        own = {Partition(topic, shard) for topic in ("sync", "dispatch", "checkpoint", "changefeed")}
        return digest(replayed(self.broker, TOY, {ANNOUNCE, *own}, shard))
