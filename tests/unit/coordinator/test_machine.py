"""The facade's own edges, and the two machines against each other: a coordinator and agents as they really decide."""

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.agent.core.machine import decide as decide_of_agent
from headgate.agent.core.messages import AddTable, CloseTable, RemoveTable, SessionStarted, TaskObserved
from headgate.agent.core.state import evolve
from headgate.agent.core.state import new_state as new_session
from headgate.coordinator.core.feeds.explain import UnknownFeedError, explain
from headgate.coordinator.core.machine import decide
from headgate.coordinator.core.state import new_state
from headgate.eventlog.log import Delivery
from headgate.records.base import Fact
from headgate.records.control import Epoch, ReplicationState, TaskState
from headgate.runtime.machine import Arrived, Decision, NoTermError, Now, TermBegan, TimerFired
from scenarios.runner import World

NOW = Now(1.0, 1000)


def test_nothing_is_decided_before_the_term_begins() -> None:
    with pytest.raises(NoTermError, match="TimerFired before TermBegan"):
        decide(new_state(0), TimerFired("x"), NOW)


def test_an_input_of_no_kind_is_a_typed_error_and_a_timer_of_another_term_is_none() -> None:
    state = new_state(0)
    decide(state, TermBegan(3), NOW)
    with pytest.raises(TypeError, match="knows no input int"):
        decide(state, 7, NOW)
    assert decide(state, TimerFired("prepare/f/t"), NOW) == Decision()


def test_explaining_a_feed_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UnknownFeedError, match="feed 'x' does not exist; existing feeds: none"):
        explain(new_state(0), "x")


def test_a_table_is_held_since_its_holders_last_word_and_not_since_one_of_another_role() -> None:
    world = World()
    for line in ("owner start o1", "agent join a1", "request create r1 shop", "advance 3s"):
        world.run(line)

    def since() -> float:
        state = world.state()
        state.feed_progress.clear()  # the owner has said nothing of it yet
        return explain(state, "shop").reasons[0].since_ms / 1000 - 100

    assert since() == 0.0, "since the feed was made: the agent has said nothing"
    world.run("status a1 shop/t1 preparing")
    assert since() == 3.0
    world.run("advance 2s")
    world.run("status a1 shop/t1 preparing epoch=0.7")
    assert since() == 0.0, "of the role that it has, it has said nothing"


def test_a_table_is_held_since_the_checkpoint_says_so_if_it_means_the_same_table_at_the_same_stage() -> None:
    world = World()
    for line in ("owner start o1", "agent join a1", "request create r1 shop", "advance 3s"):
        world.run(line)
    state = world.state()
    said = state.feed_progress["shop"]
    assert said.held_by is not None

    def since(span: str, stage: str) -> int:
        held_by = replace(said.held_by, span=span, stage=stage, since_ms=77)
        state.feed_progress["shop"] = replace(said, held_by=held_by)
        return explain(state, "shop").reasons[0].since_ms

    (reason,) = explain(state, "shop").reasons[:1]
    assert since(reason.span, reason.stage) == 77
    assert since("another", reason.stage) != 77
    assert since(reason.span, "another") != 77


def test_advice_on_a_failed_table_says_resume_only_where_resume_helps() -> None:
    world = World()
    for line in ("owner start o1", "agent join a1", "request create r1 shop"):
        world.run(line)

    def advice() -> str:
        state = world.state()
        return explain(state, "shop").reasons[0].advice

    world.run("status a1 shop/t1 failed error=sink_unavailable:away")
    assert advice().endswith("`headgate feed resume shop` tries again at once")
    world.run("request pause p1 shop")
    world.run("status a1 shop/t1 failed error=sink_unavailable:away")
    assert advice().endswith("; it is retried"), "it is only to be sealed: the feed is to stand still"


class RealAgent:
    """An agent's machine with an executor that does at once what it is asked."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.session = world, name, f"{name}s1"
        world.run(f"agent join {name} mute")
        self.state = new_session(name, self.session, 1)
        self.reader = world.broker.client().reader(dict.fromkeys(world.broker.partitions(), 0))
        self.epochs: dict[SpanId, tuple[str, Epoch]] = {}
        self.has_started = False

    def turn(self) -> None:
        while batch := self.reader.poll(100, 0.0):
            for item in batch:
                assert isinstance(item, Delivery)
                evolve(self.state, item.key, item.value, item.offset)
                if self.has_started:
                    self.follow(decide_of_agent(self.state, Arrived(item), NOW))
        if not self.has_started:
            self.has_started = True
            self.follow(decide_of_agent(self.state, SessionStarted(), NOW))

    def follow(self, decision: Decision) -> None:
        for fact in decision.facts:
            self.write(fact)
        for effect in decision.effects:
            match effect:
                case AddTable(task=task, prepare=prepare):
                    self.epochs[task.id] = (task.feed_id, task.epoch)
                    self.observe(task.id, TaskState.PREPARED if prepare else TaskState.REPLICATING)
                case CloseTable(task=task):
                    self.epochs[task.id] = (task.feed_id, task.epoch)
                    self.observe(task.id, TaskState.STOPPED)
                case RemoveTable(span=span):
                    self.observe(span, TaskState.STOPPED)

    def observe(self, span: SpanId, state: TaskState) -> None:
        feed_id, epoch = self.epochs[span]
        status = TaskStatus(span, feed_id, epoch, state, {0: 1}, None, 0, 0, 0, None, None, False)
        self.follow(decide_of_agent(self.state, TaskObserved(status), NOW))

    def write(self, fact: Fact) -> None:
        evolve(self.state, fact.key, fact.value, -1)
        self.world.write(fact.key, fact.value)


def test_coordinator_and_agents_as_they_are_move_pause_resume_and_remove_a_feed() -> None:
    world = World()
    world.run("owner start o1")
    agents = [RealAgent(world, "a1"), RealAgent(world, "a2")]

    def run(line: str) -> None:
        world.run(line)
        for _ in range(8):
            for each in agents:
                each.turn()
            world.settle()

    def standing() -> dict[str, tuple[ReplicationState, str | None]]:
        state = world.state()
        return {k.span: (r.state, r.primary.agent if r.primary else None) for k, r in sorted(state.spans.items())}

    run("advance 1s")
    run("request create r1 shop tables=t1,t2")
    assert standing() == {"t1": (ReplicationState.REPLICATING, "a1"), "t2": (ReplicationState.REPLICATING, "a2")}
    run("request move m1 shop t1 a2")
    assert standing() == {"t1": (ReplicationState.REPLICATING, "a2"), "t2": (ReplicationState.REPLICATING, "a2")}
    run("request pause p1 shop")
    assert standing() == {"t1": (ReplicationState.ABSENT, None), "t2": (ReplicationState.ABSENT, None)}
    run("request resume p2 shop")
    assert standing() == {"t1": (ReplicationState.REPLICATING, "a1"), "t2": (ReplicationState.REPLICATING, "a2")}
    run("owner switch o1 o2")
    run("request remove p3 shop")
    assert standing() == {}
    world.check()
