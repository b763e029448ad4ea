"""Random histories of the real machine in the real loop: agents that obey, die, hang and fail; owners that come and go.

Checked all the way: no epoch is given twice, the epochs of a span's primaries only grow, checkpoints never go back,
and three ways to a state agree. Then the faults stop, and every table must be replicating.
"""

import random
from typing import Any

import pytest

from headgate.coordinator.core.machine import State
from headgate.coordinator.core.state import digest, evolve, new_state
from headgate.records.control import (
    Assignment,
    FeedProgressed,
    FeedState,
    ReplicationState,
    SpanDispatched,
    TaskReported,
    TaskState,
    WantedState,
)
from headgate.records.keys import SpanKey, TaskKey
from scenarios.derived import derived, indexed
from scenarios.runner import Agent, World
from support import build

SEEDS = 20
STEPS = 70
TABLES = "t1,t2,t3,t4"


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.world = World()
        self.requests = 0
        self.owners = 0
        self.world.run("agent join a1")
        self.start_owner()
        self.world.run(f"request create r0 shop tables={TABLES}")
        self.world.run("request create r00 other tables=u1,u2")

    def start_owner(self) -> None:
        self.owners += 1
        self.world.run(f"owner start o{self.owners}")

    def read(self) -> State:
        return self.world.state()

    def step(self) -> None:
        draw = self.chance.random()
        agents = self.world.agents
        if draw < 0.08 and len(agents) < 4:
            self.world.run(f"agent join a{self.chance.randint(1, 4)}")
        elif draw < 0.12 and agents:
            self.world.run(f"kill {self.chance.choice(sorted(agents))}")
        elif draw < 0.15:
            self.world.run(f"owner kill o{self.owners}")
            self.start_owner()
        elif draw < 0.17:
            self.owners += 1
            self.world.run(f"owner switch o{self.owners - 1} o{self.owners}")
        elif draw < 0.19 and agents:
            self.world.run(f"stop {self.chance.choice(sorted(agents))}")
        elif draw < 0.22 and agents:
            agent = agents[self.chance.choice(sorted(agents))]
            agent.is_mute = not agent.is_mute
        elif draw < 0.36:
            self.requests += 1
            kind = self.chance.choice(("pause", "resume", "move", "move", "move"))
            more = f"t{self.chance.randint(1, 4)} a{self.chance.randint(1, 4)}" if kind == "move" else ""
            self.world.run(f"request {kind} q{self.requests} shop {more}")
        elif draw < 0.5:
            self.world.run(f"advance {self.chance.choice((0.5, 1, 3, 7))}s")
        self.obey(diligence=0.5, failing=0.1)
        if self.chance.random() < 0.1:
            self.world.broker.compact_all(drop_tombstones=True)

    def obey(self, *, diligence: float, failing: float) -> None:
        """Agents read the log and say what they have done, each about some spans only."""
        state = self.read()
        for _, agent in sorted(self.world.agents.items()):
            session = (agent.name, agent.session)
            if not agent.is_alive or session in state.ended:
                continue
            for key, record in sorted(state.spans.items()):
                said = state.tasks.get(key, {}).get(session)
                if self.chance.random() < diligence:
                    self.speak(agent, key, record, said, failing)
        self.world.settle()

    def speak(
        self, agent: Agent, key: SpanKey, record: SpanDispatched, said: TaskReported | None, failing: float
    ) -> None:
        role, doing = doing_of(agent, record)
        fails = self.chance.random() < failing
        if role is None:
            if said is not None and said.state not in (TaskState.STOPPED, TaskState.FAILED):
                self.report(agent, key, record, said.epoch, TaskState.STOPPED)
            return
        now = said.state if said is not None and said.epoch == role.epoch else None
        if now in (TaskState.FAILED, TaskState.STOPPED):
            return
        self.report(agent, key, record, role.epoch, TaskState.FAILED if fails else following(doing, now))

    def report(self, agent: Agent, key: SpanKey, record: SpanDispatched, epoch: Any, state: TaskState) -> None:
        has_failed = state is TaskState.FAILED
        said = build.task_reported(
            feed_id=record.feed_id,
            epoch=epoch,
            state=state,
            positions={0: epoch.n},
            error_code="sink_unavailable" if has_failed else None,
            retryable=has_failed,
        )
        self.world.write(TaskKey(key.feed, key.span, agent.name, agent.session), said)

    def calm_down(self) -> None:
        """No more faults: whoever hangs wakes up, a fresh agent comes, and there is time."""
        for agent in self.world.agents.values():
            agent.is_mute = False
        self.world.run("agent join fresh")
        self.world.run("request resume last shop")
        for _ in range(60):
            self.world.run("advance 2s")
            self.obey(diligence=1.0, failing=0.0)


def doing_of(agent: Agent, record: SpanDispatched) -> tuple[Assignment | None, str]:
    for role, doing in ((record.primary, "run"), (record.secondary, "prepare")):
        if role is not None and (role.agent, role.session) == (agent.name, agent.session):
            ends = record.state is ReplicationState.REMOVING or (
                record.state is ReplicationState.COMMIT and record.secondary
            )
            return role, "end" if ends and doing == "run" else doing
    return None, ""


def following(doing: str, now: TaskState | None) -> TaskState:
    if doing == "end":
        return TaskState.STOPPED if now is TaskState.STOPPING else TaskState.STOPPING
    if now is None:
        return TaskState.PREPARING
    return TaskState.PREPARED if doing == "prepare" else TaskState.REPLICATING


class Auditor:
    """Follows the whole log, record by record, with what must never happen."""

    def __init__(self) -> None:
        self.given: dict[Any, tuple[str, str, SpanKey]] = {}
        self.primary: dict[SpanKey, Any] = {}
        self.checkpoints: dict[str, tuple[str, int | None, dict[str, dict[int, int]]]] = {}

    def watch(self, history: History) -> None:
        committed = history.world.facts
        while committed:
            for fact in committed.pop(0):
                if isinstance(fact.value, SpanDispatched):
                    self.check_roles(fact.key, fact.value)
                elif isinstance(fact.value, FeedProgressed):
                    self.check_checkpoint(fact.key.feed, fact.value)

    def check_roles(self, key: SpanKey, record: SpanDispatched) -> None:
        for role in (record.primary, record.secondary):
            if role is not None:
                holder = (role.agent, role.session, key)
                assert self.given.setdefault(role.epoch, holder) == holder, f"epoch {role.epoch} was given twice"
        if record.primary is not None:
            before = self.primary.get(key)
            assert before is None or record.primary.epoch >= before, f"{key}: the primary's epoch went back"
            self.primary[key] = record.primary.epoch

    def check_checkpoint(self, feed: str, said: FeedProgressed) -> None:
        feed_id, ts, positions = self.checkpoints.get(feed, (said.feed_id, None, {}))
        if feed_id == said.feed_id:
            assert ts is None or (said.checkpoint_ts is not None and said.checkpoint_ts >= ts)
            for span, merged in positions.items():
                assert all(said.positions[span][p] >= offset for p, offset in merged.items()), f"{span} went back"
        self.checkpoints[feed] = (said.feed_id, said.checkpoint_ts, said.positions)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_history(seed: int) -> None:
    history, auditor = History(seed), Auditor()
    for _ in range(STEPS):
        history.step()
        auditor.watch(history)
    history.calm_down()
    auditor.watch(history)
    state = history.read()
    assert {feed.wanted for feed in state.feeds.values()} == {WantedState.RUNNING}
    assert {str(key.span): record.state for key, record in state.spans.items()} == dict.fromkeys(
        ["t1", "t2", "t3", "t4", "u1", "u2"], ReplicationState.REPLICATING
    )
    assert {feed.state for feed in state.feeds.values()} == {FeedState.NORMAL}
    history.world.check()


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 5))
def test_topics_in_any_order_give_the_same_state(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS // 2):
        history.step()
    live = history.read()
    backwards = new_state(0)
    for partition in sorted(history.world.broker.partitions(), reverse=True):
        reader = history.world.broker.client().reader({partition: 0})
        while batch := reader.poll(1_000, 0.0):
            for delivery in batch:
                evolve(backwards, delivery.key, delivery.value, delivery.offset)
    assert digest(backwards) == digest(live)
    assert indexed(backwards.index) == derived(backwards) == derived(live)
