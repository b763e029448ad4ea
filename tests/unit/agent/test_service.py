"""Sessions on a log in memory with an executor that only remembers: reports, retries, end of session, a clean stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate import SCHEMA_VERSION
from headgate.agent.shell.service import AgentCounters, AgentOptions, run_agent
from headgate.agent.shell.session import IdInUseError
from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.eventlog.sharding import place, shard_of
from headgate.observability.probes import Probes
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact, Key, Record
from headgate.records.control import (
    AgentAnnounced,
    Assignment,
    Epoch,
    Liveness,
    ReplicationState,
    SessionEnded,
    SpanPlan,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
    TaskState,
)
from headgate.records.keys import AgentKey, FeedKey, SessionKey, SpanKey
from headgate_lab.memory_log.log import MemoryBroker
from support import build
from support.remembering_executor import RememberingExecutor
from support.waiting import eventually

DEADLINE_SECONDS = scaled_seconds(30)
SHARDS = 2
LEASE_SECONDS = 5.0
"""The default. On a busy machine a shorter one runs out although nobody has cut the log off."""
PLAN = SpanPlan(span="public.goods", topic="shop.public.goods", table="public.goods", start={0: 3})


class ColdError(Exception):
    """What an executor would run on does not come up."""


class Stage:
    """One agent process in a thread, and the log as others see it."""

    def __init__(self, lease_seconds: float) -> None:
        self.broker = MemoryBroker(shards=SHARDS)
        self.log = self.broker.client()
        self.others = self.broker.client()
        self.log_writer = self.others.writer("test")
        self.options = AgentOptions(agent="a1", address="here:1", lease_seconds=lease_seconds, drain_seconds=20)
        self.counters = AgentCounters()
        self.probes = Probes(lease_seconds)
        self.stop = threading.Event()
        self.executors: list[RememberingExecutor] = []
        self.warm = threading.Event()
        self.warm.set()
        self.warmed = 0
        self.fails: Exception | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            run_agent(
                self.options,
                self.log,
                self._executor,
                self.stop,
                probes=self.probes,
                counters=self.counters,
                warm=self._warm,
            )
        except (IdInUseError, ColdError) as error:
            self.error = error

    def _warm(self) -> None:
        self.warmed += 1
        if self.fails is not None:
            raise self.fails
        self.warm.wait(DEADLINE_SECONDS)

    def _executor(self) -> RememberingExecutor:
        self.executors.append(RememberingExecutor())
        return self.executors[-1]

    def write(self, key: Key, value: Record | None) -> None:
        shard = shard_of(getattr(key, "feed", "shop"), SHARDS)
        self.log_writer.write([place(Fact(key, value), shard)], 1)

    def read(self, kind: type[Any]) -> list[tuple[Any, Any]]:
        topics = ("announce", "sync", "checkpoint")
        start = {Partition(t, n): 0 for t in topics for n in range(1 if t == "announce" else SHARDS)}
        found = self.others.reader(start).poll(100_000, 0)
        return [(d.key, d.value) for d in found if isinstance(d, Delivery) and isinstance(d.value, kind)]

    def sessions(self) -> list[str]:
        keys = [key.session for key, _ in self.read(AgentAnnounced) if key.agent == "a1"]
        return list(dict.fromkeys(keys))

    def deleted(self) -> list[str]:
        found = self.others.reader({Partition("announce", 0): 0}).poll(100_000, 0)
        words = [d for d in found if isinstance(d, Delivery) and isinstance(d.key, AgentKey)]
        return [d.key.session for d in words if isinstance(d.key, AgentKey) and d.value is None]

    def dispatch(self, state: ReplicationState, session: str, n: int, *, follower: bool = False) -> None:
        record = build.span_dispatched(
            feed_id="0-7",
            state=state,
            primary=Assignment("a1", session, Epoch(1, n)),
            secondary=Assignment("a2", "x", Epoch(1, n + 1)) if follower else None,
        )
        self.write(SpanKey("shop", PLAN.span), record)

    def feed(self) -> None:
        record = build.feed_recorded(feed_id="0-7", spans=(PLAN,))
        self.write(FeedKey("shop"), record)


@contextmanager
def started(*, cold: bool = False, fails: Exception | None = None) -> Iterator[Stage]:
    made = Stage(lease_seconds=LEASE_SECONDS)
    made.fails = fails
    if cold:
        made.warm.clear()
    made.thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        made.warm.set()
        made.thread.join(DEADLINE_SECONDS)
        assert not made.thread.is_alive()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with started() as made:
        yield made


def test_a_session_introduces_itself_runs_what_it_is_given_and_reports(stage: Stage) -> None:
    eventually(lambda: len(stage.read(SyncAnswered)) == SHARDS, "an unasked answer to every shard")
    (session,) = stage.sessions()
    stage.dispatch(ReplicationState.COMMIT, session, 1)
    stage.feed()
    reports = eventually(lambda: stage.read(TaskReported), "a report")
    assert [(r.state, r.epoch) for _, r in reports] == [(TaskState.REPLICATING, Epoch(1, 1))]
    assert eventually(lambda: stage.read(SpanProgressed), "progress")[0][1].positions == {0: 5}

    stage.dispatch(ReplicationState.COMMIT, session, 1, follower=True)
    eventually(lambda: stage.read(TaskReported)[-1][1].state is TaskState.STOPPED, "the drain is reported")


def test_an_agent_says_that_it_reads_what_its_build_reads(stage: Stage) -> None:
    """Else no log that it stands on ever rises above what it says (docs/adr/0008)."""
    ((_, announced), *_) = eventually(lambda: stage.read(AgentAnnounced), "a session")
    answers = eventually(lambda: stage.read(SyncAnswered), "an answer")
    assert {announced.schema_version, *(answer.schema_version for _, answer in answers)} == {SCHEMA_VERSION}


def test_a_lost_lease_kills_every_writer_and_a_new_session_begins(stage: Stage) -> None:
    eventually(lambda: stage.read(SyncAnswered), "the first session serves")
    stage.log.cut()
    eventually(stage.executors[0].killed.is_set, "end of session")
    stage.log.heal()
    eventually(lambda: len(stage.sessions()) >= 2, "the next session")
    assert stage.counters.sessions_lost >= 1


def test_a_broker_that_is_away_is_told_once_and_not_at_every_look(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    eventually(lambda: stage.read(SyncAnswered), "the first session serves")
    stage.log.cut()
    eventually(stage.executors[0].killed.is_set, "its lease is over")
    stage.log.heal()
    eventually(lambda: len(stage.sessions()) >= 2, "the next session")
    told = [record.getMessage() for record in caplog.records if "cannot read" in record.getMessage()]
    assert 1 <= len(told) <= stage.counters.sessions, told


def test_an_agent_that_does_not_see_what_is_decided_is_not_ready_until_it_has_read_it(stage: Stage) -> None:
    partition = Partition("dispatch", 1)
    eventually(lambda: not stage.probes.waiting(), "ready")
    stage.log.hold(partition)
    stage.broker.append(Placed(partition, Fact(SessionKey("a9", "s9"), SessionEnded(1, "over", 0))))
    stage.log.stop_reading(partition, told=True)
    (reason,) = eventually(stage.probes.waiting, "not ready")
    assert "the control topics cannot be read" in reason
    assert "dispatch/1: looking up where to begin failed" in reason
    assert stage.counters.sessions == 1, "its session goes on: it is only blind"
    stage.log.release(partition)
    eventually(lambda: not stage.probes.waiting(), "ready again")


def test_an_agent_that_starts_says_that_it_is_there_and_answers_nobody_until_it_is_warm() -> None:
    """No owner gives anything to a session that has answered nobody: tables are not given to a cold agent."""
    with started(cold=True) as stage:
        eventually(lambda: stage.warmed, "its Spark begins to start")
        beats = len(stage.read(AgentAnnounced))
        eventually(lambda: len(stage.read(AgentAnnounced)) > beats + 5, "it goes on announcing itself for a lease")
        assert not stage.read(SyncAnswered)
        assert not stage.executors
        assert stage.counters.sessions == 1
        stage.warm.set()
        eventually(lambda: len(stage.read(SyncAnswered)) == SHARDS, "its answer")
        assert len(stage.sessions()) == 1


def test_a_session_that_ends_while_it_starts_leaves_the_warming_to_the_next() -> None:
    with started(cold=True) as stage:
        eventually(lambda: stage.warmed, "its Spark begins to start")
        stage.write(SessionKey("a1", stage.sessions()[0]), SessionEnded(1, "silent", 0))
        eventually(lambda: len(stage.sessions()) == 2, "the next session")
        assert not stage.read(SyncAnswered)
        stage.warm.set()
        eventually(lambda: {key.session for key, _ in stage.read(SyncAnswered)} == {stage.sessions()[1]}, "its answer")
        assert stage.warmed == 1


def test_an_agent_asked_to_stop_while_it_starts_goes_at_once_and_is_not_missed() -> None:
    with started(cold=True) as stage:
        eventually(lambda: stage.warmed, "its Spark begins to start")
        stage.stop.set()
        eventually(lambda: not stage.thread.is_alive(), "it ends")
        assert stage.deleted() == stage.sessions()


def test_an_agent_that_cannot_start_ends_with_the_reason_and_is_not_missed() -> None:
    with started(cold=True, fails=ColdError("no Java")) as stage:
        eventually(lambda: not stage.thread.is_alive(), "it ends")
        assert isinstance(stage.error, ColdError)
        assert stage.deleted() == stage.sessions()


def test_a_session_that_was_written_dead_ends_at_once(stage: Stage) -> None:
    eventually(lambda: stage.read(SyncAnswered), "the first session")
    (session,) = stage.sessions()
    stage.write(SessionKey("a1", session), SessionEnded(1, "silent", 0))
    eventually(stage.executors[0].killed.is_set, "end of session")
    eventually(lambda: len(stage.sessions()) == 2, "the next session")


def test_a_stopping_agent_says_so_and_waits_until_its_tables_are_gone(stage: Stage) -> None:
    eventually(lambda: stage.read(SyncAnswered), "the session")
    (session,) = stage.sessions()
    stage.feed()
    stage.dispatch(ReplicationState.COMMIT, session, 1)
    eventually(lambda: stage.read(TaskReported), "it runs a table")
    stage.stop.set()
    eventually(lambda: stage.read(AgentAnnounced)[-1][1].liveness is Liveness.STOPPING, "it says so")
    assert stage.thread.is_alive()
    assert not stage.executors[0].killed.is_set()
    stage.dispatch(ReplicationState.COMMIT, session, 1, follower=True)
    eventually(lambda: not stage.thread.is_alive(), "it ends when the table is drained")
    assert stage.read(TaskReported)[-1][1].state is TaskState.STOPPED
    assert stage.counters.sessions_lost == 0


def test_an_agent_whose_name_is_taken_ends_with_the_reason_before_it_starts_anything(stage: Stage) -> None:
    other = Stage(lease_seconds=LEASE_SECONDS)
    other.broker, other.log = stage.broker, stage.broker.client()
    eventually(stage.sessions, "the elder")
    other.thread.start()
    eventually(lambda: not other.thread.is_alive(), "the younger one goes")
    assert isinstance(other.error, IdInUseError)
    assert not other.warmed
    assert not other.executors
    assert stage.thread.is_alive()
    elder, younger = stage.sessions()
    assert AgentKey("a1", elder).session in str(other.error)
    assert stage.deleted() == [younger]


def test_of_agents_of_one_name_that_start_at_the_same_moment_exactly_one_stays() -> None:
    first = Stage(lease_seconds=LEASE_SECONDS)
    stages = [first, Stage(lease_seconds=LEASE_SECONDS), Stage(lease_seconds=LEASE_SECONDS)]
    for stage in stages[1:]:
        stage.log = first.broker.client()
    for stage in stages:
        stage.thread.start()
    try:
        eventually(lambda: sum(stage.thread.is_alive() for stage in stages) == 1, "all but one go")
        (left,) = [stage for stage in stages if stage.thread.is_alive()]
        eventually(lambda: first.read(SyncAnswered), "the one that stays serves")
        assert [stage.warmed for stage in stages if stage is not left] == [0, 0]
        beats = len(first.read(AgentAnnounced))
        eventually(lambda: len(first.read(AgentAnnounced)) > beats + 5, "and goes on for a lease")
        assert left.thread.is_alive()
    finally:
        for stage in stages:
            stage.stop.set()
            stage.thread.join(DEADLINE_SECONDS)
