"""What deciding costs: the real coordinator in the real role loop, with up to 131 072 spans on 8 agents.

With more than one shard each has its own coordinator and its part of the spans, measured one after the other.

Nothing waits: the log is in memory (control_log.py, with the real codec at both ends), agents report
"replicating" as soon as they are assigned, and the loop's clock is the processor time that its turns use. So every
figure is processor time of the coordinator alone, decoding and encoding included, and another process on the machine
hardly disturbs it; a broker adds its round trip per commit, of which a turn makes one.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.coordinator.core.effects import DiscoverTables, FeedResolved, ResolveFeed, TablesDiscovered
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import COORDINATOR
from headgate.coordinator.core.state import CoordinatorState
from headgate.eventlog.collector import collect_rarely
from headgate.eventlog.log import Placed
from headgate.eventlog.sharding import place
from headgate.records.base import Fact, Key
from headgate.records.control import (
    AgentAnnounced,
    Assignment,
    Liveness,
    OperationKind,
    OperationRequested,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
    TaskState,
)
from headgate.records.keys import AgentKey, AnswerKey, ProgressKey, RequestKey, SpanKey, TaskKey
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleState, TermEffect
from headgate_lab.benchmarks.control_log import PARTITIONS, MeasuredCluster
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.worlds.kernel import role_settings

AGENTS: Final = 8
FEED_SPANS: Final = 512
"""Tables of one feed: a plan is one record, which must stay far below Kafka's 1 MiB."""

IDLE_SECONDS: Final = 30.0
IDLE_TURN_SECONDS: Final = 0.25
EVENTS: Final = 16_384
"""Status events that are measured, at most one per span."""

TURNS_MAX: Final = 200_000
REPLAY_SECONDS_MAX: Final = 300.0

SUMS: Final = (("first_dispatch_of_all", "s", 1), ("replay_of_all", "s", 1), ("memory_of_all", "mib", 0))

GOALS: Final = {"idle_tick": 1.0, "first_dispatch": 20.0, "replay": 10.0, "status_event": 100.0, "memory": 1024.0}
"""What was aimed at, for 131 072 spans, in each figure's own unit."""


class ControlOptions(msgspec.Struct, frozen=True):
    """Sizes of a cluster, over how many shards its feeds are spread, and how often each is run."""

    spans: tuple[int, ...] = (1_024, 16_384, 131_072)
    rounds: int = 1
    shards: int = 1


def bench_control(options: ControlOptions, say: Callable[[str], None]) -> BenchReport:
    """Every size, ``rounds`` times. Raises BenchError when the coordinator does not do what is measured."""
    collect_rarely()  # as a coordinator's process does
    figures: dict[str, Figure] = {}
    for spans in options.spans:
        runs = [_measure_shards(spans, options.shards, number, say) for number in range(options.rounds)]
        for name, unit, digits in (
            ("first_dispatch", "s", 2),
            ("status_event", "us", 1),
            ("reassign_event", "us", 1),
            ("idle_tick", "ms", 3),
            ("agent_lost", "s", 2),
            ("longest_turn", "ms", 0),
            ("take_over", "s", 2),
            ("replay", "s", 2),
            ("memory", "mib", 0),
            *(SUMS if options.shards > 1 else ()),
        ):
            values = [run[name] for run in runs]
            figures[f"{name}_{spans}_{unit}"] = median_of(values, unit, GOALS.get(name), digits)
    return BenchReport("control", figures)


def _measure_shards(spans: int, shards: int, number: int, say: Callable[[str], None]) -> dict[str, float]:
    """The slowest of the shards, one after the other: they share nothing but agents; and what all cost together."""
    size, rest = divmod(spans, shards)
    runs = [_measure(size + (shard < rest), number, say) for shard in range(shards)]
    slowest = {name: max(run[name] for run in runs) for name in runs[0]}
    return slowest | {
        f"{name}_of_all": sum(run[name] for run in runs) for name in ("first_dispatch", "replay", "memory")
    }


def _measure(spans: int, number: int, say: Callable[[str], None]) -> dict[str, float]:
    world = _World(spans)
    measured = {"first_dispatch": world.first_dispatch()}
    say(f"{spans} spans, run {number + 1}: dispatched in {measured['first_dispatch']:.2f} s")
    measured["status_event"] = world.status_events()
    measured["idle_tick"] = world.idle()
    measured["reassign_event"] = world.reassign_events()
    measured["take_over"] = world.take_over()
    measured["agent_lost"] = world.lose_agent()
    measured["longest_turn"] = world.longest_turn * 1e3
    say(f"one event {measured['status_event']:.0f} µs, an agent lost {measured['agent_lost']:.2f} s")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path = Path(folder) / "log"
        world.dump(path)
        del world
        measured |= _replay(path, spans)
    say(f"replay {measured['replay']:.2f} s in {measured['memory']:.0f} MiB")
    return measured


def _replay(path: Path, spans: int) -> dict[str, float]:
    command = [sys.executable, "-m", "headgate_lab.benchmarks.control_replay", str(path), str(spans)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_SECONDS_MAX, check=False)
    if done.returncode:
        raise BenchError(f"the replay ended with {done.returncode}: {done.stderr[-500:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


class _World:
    """One coordinator, eight agents that are never slow, and a clock that only the coordinator's work moves."""

    def __init__(self, spans: int) -> None:
        self.spans = spans
        self.wire = MeasuredCluster()
        self.clock = 100.0
        self.longest_turn = 0.0
        self.sessions = [(f"agent-{number}", f"session-{number}") for number in range(AGENTS)]
        self.held: dict[SpanKey, Assignment] = {}
        """The latest assignment of each span."""
        self._told: dict[SpanKey, tuple[SpanDispatched, Assignment]] = {}
        self._asked: list[TermEffect] = []
        self._beat_at = 0.0
        self._beats = 0
        self._chance = random.Random(spans)  # noqa: S311 - which spans are measured, nothing secret
        self.role = self._coordinator("first")

    def _coordinator(self, name: str) -> Role[CoordinatorState]:
        return Role(
            role_settings(COORDINATOR_KIND, name),
            COORDINATOR,
            self.wire.client(),
            run_effect=self._asked.append,
            on_commit=self._told_by,
        )

    # --- what is measured -------------------------------------------------------------------------------------

    def first_dispatch(self) -> float:
        """Seconds from the first feed's request to the last span that is committed as replicating."""
        self._until(lambda: self.role.status.state is RoleState.SERVING, "served")
        for session in self.sessions:
            self._write(AnswerKey(*session, 0), SyncAnswered(None, 1, 0, 0))
        for number, first in enumerate(range(0, self.spans, FEED_SPANS)):
            name = f"feed-{number:05}"
            spec = f"{name} {min(FEED_SPANS, self.spans - first)}"
            requested = OperationRequested(OperationKind.CREATE_FEED, name, spec, None, None, "bench", 0)
            self._write(RequestKey(f"create-{name}"), requested)
        used = self._until(lambda: len(self.held) == self.spans, "dispatched every span")
        return used + self._until(self._all_replicate, "seen every span replicate")

    def status_events(self) -> float:
        """Microseconds per event: progress of every span, and of some a report that changes nothing."""
        keys = sorted(self.held)
        for key in keys:
            self._write_progress(key)
        used = self._until_read()
        events = len(keys)
        for key in self._some(keys):
            role = self.held[key]
            self._report(key, role, TaskState.REPLICATING, feed_id=self.role.view.spans[key].feed_id, offset=2)
            events += 1
        return (used + self._until_read()) / events * 1e6

    def reassign_events(self) -> float:
        """Microseconds per report that costs a span its agent: it is given to another and seen to replicate."""
        chosen = self._some(sorted(self.held))[: EVENTS // 8]
        for key in chosen:
            record = self.role.view.spans[key]
            self._report(key, self.held[key], TaskState.STOPPED, feed_id=record.feed_id, offset=2)
        used = self._until_read() + self._until(self._all_replicate, "given every span away")
        return used / len(chosen) * 1e6

    def idle(self) -> float:
        """Milliseconds of a turn while nothing happens but heartbeats."""
        self._until_read()
        end, used, turns = self.clock + IDLE_SECONDS, 0.0, 0
        while self.clock < end:
            used += self._turn()
            self.clock += IDLE_TURN_SECONDS
            turns += 1
        return used / turns * 1e3

    def take_over(self) -> float:
        """Seconds from a resignation until the standby, which had tailed the topics, has looked at everything."""
        standby = self._coordinator("second")
        first, self.role = self.role, standby
        # The standby's reading is not the take-over: it was done while the owner served.
        while not standby.status.replayed:
            standby.turn(self._now())
        first.resign()
        first.turn(self._now())
        first.close()
        used = self._until(lambda: standby.status.state is RoleState.SERVING, "followed the owner")
        for session in self.sessions:
            self._write(AnswerKey(*session, 0), SyncAnswered(standby.status.owner_rev, 1, 0, 0))
        return used + self._until_read()

    def lose_agent(self) -> float:
        """Seconds of work from an agent's farewell until the last of its spans is seen to replicate elsewhere."""
        lost = self.sessions.pop()
        fact = Fact(AgentKey(*lost), None)
        self.wire.append(place(fact, 0))
        used = self._until(lambda: lost in self.role.view.ended, "written the agent dead")
        if any((role.agent, role.session) == lost for role in self.held.values()):
            used += self._until(
                lambda: not any((r.agent, r.session) == lost for r in self.held.values()), "given every span away"
            )
        return used + self._until(self._all_replicate, "seen every span replicate")

    def dump(self, path: Path) -> None:
        """The log, with an owner that has resigned."""
        self._until_read()
        self.role.resign()
        self.role.turn(self._now())
        self.wire.dump(path)

    # --- how --------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now(self.clock, round(self.clock * 1000))

    def _turn(self) -> float:
        """One turn and what the others make of it; its processor seconds."""
        if self.clock >= self._beat_at:
            self._beat_at = self.clock + 1.0
            self._beats += 1
            for agent, session in self.sessions:
                value = AgentAnnounced("bench", 1, 10**6, 0.0, Liveness.ALIVE, "here", self._beats, 0)
                self._write(AgentKey(agent, session), value)
        begun = time.process_time()
        self.role.turn(self._now())
        used = time.process_time() - begun
        self.longest_turn = max(self.longest_turn, used)
        self.clock += used
        asked, self._asked[:] = list(self._asked), []
        for effect in asked:
            self.role.finish(effect, _resolved(effect.effect))
        told, self._told = self._told, {}
        for key, (record, role) in sorted(told.items()):
            self.held[key] = role
            self._report(key, role, TaskState.REPLICATING, feed_id=record.feed_id, offset=1)
        return used

    def _until(self, reached: Callable[[], bool], what: str) -> float:
        used = 0.0
        for _ in range(TURNS_MAX):
            used += self._turn()
            if reached():
                return used
        raise BenchError(f"the coordinator has not {what} after {TURNS_MAX} turns: {self.role.status}")

    def _until_read(self) -> float:
        return self._until(self._has_read, "read to the end")

    def _has_read(self) -> bool:
        positions = self.role.positions or {}
        return all(positions.get(p) == self.wire.broker.end_offset(p) for p in PARTITIONS)

    def _all_replicate(self) -> bool:
        return self._has_read() and all(
            feed.open_count and not feed.waiting for feed in self.role.view.index.feeds.values()
        )

    def _some(self, keys: Sequence[SpanKey]) -> list[SpanKey]:
        return self._chance.sample(keys, min(len(keys), EVENTS))

    def _told_by(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            record = fact.value
            if isinstance(fact.key, SpanKey) and isinstance(record, SpanDispatched):
                role = record.primary
                if role is not None and record.state is ReplicationState.COMMIT and role != self.held.get(fact.key):
                    self._told[fact.key] = record, role

    def _report(self, key: SpanKey, role: Assignment, state: TaskState, *, feed_id: str, offset: int) -> None:
        value = TaskReported(feed_id, role.epoch, state, {0: offset}, None, None, retryable=False, reported_ms=0)
        self._write(TaskKey(key.feed, key.span, role.agent, role.session), value)

    def _write_progress(self, key: SpanKey) -> None:
        role = self.held[key]
        feed_id = self.role.view.spans[key].feed_id
        value = SpanProgressed(feed_id, role.epoch, {0: 2}, 1_700_000_000_000 << 18, None, 1, 100, 20, 0)
        self._write(ProgressKey(key.feed, key.span, role.agent, role.session), value)

    def _write(self, key: Key, value: Any) -> None:
        placed: Placed = place(Fact(key, value), 0)
        self.wire.append(placed)


def _resolved(effect: Any) -> FeedResolved | TablesDiscovered:
    if isinstance(effect, DiscoverTables):
        return TablesDiscovered()
    if not isinstance(effect, ResolveFeed):
        raise BenchError(f"the coordinator asked for {type(effect).__name__}, which no scenario requests")
    name, _, tables = effect.spec.partition(" ")
    plans = tuple(
        SpanPlan(f"shop.{name}.t{i:04}", f"db.shop.{name}.t{i:04}", f"public.{name}_t{i:04}", {0: 0})
        for i in range(int(tables))
    )
    return FeedResolved('{"sink": {"type": "postgresql", "dsn": "target"}}', plans)
