"""The chronicle of the control topics, and what the demo derives from it: take-overs, false losses, the end."""

import threading
from typing import NamedTuple, cast

import pytest

from headgate.agent.core.announcements import answered
from headgate.eventlog.log import Delivery, Log, LogError, Partition
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    Liveness,
    ReplicationState,
    SessionEnded,
    SpanPlan,
    TaskState,
)
from headgate.records.keys import (
    AgentKey,
    AnswerKey,
    FeedKey,
    FeedProgressKey,
    OwnerKey,
    ProgressKey,
    SessionKey,
    SpanKey,
    TaskKey,
)
from headgate_lab.demo.faults import Faults
from headgate_lab.demo.services import Services
from headgate_lab.demo.stack import FEED
from headgate_lab.demo.tables import all_replicate, busiest_agent, holders, passed, views
from headgate_lab.demo.watch import Chronicle, Watch, WatchError
from support import build

SPANS = ("shop.orders", "shop.stock")


class Story:
    """Tells a chronicle records, one offset after the other, a second apart."""

    def __init__(self) -> None:
        self.seen = Chronicle()
        self.offset = 0

    def tell(self, key: Key, value: Record) -> None:
        self.seen.take(Delivery(Partition(key.topic, 0), self.offset, key, value), now=float(self.offset))
        self.offset += 1

    def owner(self, owner_id: str, owner_rev: int | None = None) -> None:
        self.tell(OwnerKey(0), build.owner_announced(owner_id=owner_id, owner_rev=owner_rev, version="1"))

    def agent(self, agent: str, session: str) -> None:
        self.tell(AgentKey(agent, session), build.agent_announced())

    def feed(self) -> None:
        plans = tuple(SpanPlan(span, f"shop.{span}", span, {0: 0}) for span in SPANS)
        self.tell(
            FeedKey(FEED),
            build.feed_recorded(spans=plans),
        )

    def dispatch(self, span: str, role: Assignment, state: ReplicationState = ReplicationState.REPLICATING) -> None:
        self.tell(SpanKey(FEED, span), build.span_dispatched(owner_rev=role.epoch.owner_rev, state=state, primary=role))

    def report(self, span: str, role: Assignment, state: TaskState = TaskState.REPLICATING) -> None:
        key = TaskKey(FEED, span, role.agent, role.session)
        self.tell(key, build.task_reported(epoch=role.epoch, state=state, positions={0: 0}))

    def progress(self, span: str, role: Assignment, rows: int, lag_ms: int = 10) -> None:
        key = ProgressKey(FEED, span, role.agent, role.session)
        self.tell(key, build.span_progressed(epoch=role.epoch, positions={0: rows}, rows=rows, lag_ms=lag_ms))


def role(agent: str, session: str, n: int) -> Assignment:
    return Assignment(agent, session, Epoch(1, n))


def test_a_table_replicates_only_when_owner_and_holder_say_so_under_one_epoch() -> None:
    story = Story()
    story.feed()
    first, second = role("a", "s1", 1), role("a", "s1", 2)
    story.dispatch(SPANS[0], second)
    story.report(SPANS[0], first)
    assert holders(story.seen.snapshot) == {}
    story.report(SPANS[0], second, TaskState.PREPARING)
    assert holders(story.seen.snapshot) == {}
    story.report(SPANS[0], second)
    assert holders(story.seen.snapshot) == {SPANS[0]: second}
    assert not all_replicate(story.seen.snapshot)
    story.dispatch(SPANS[1], first)
    story.report(SPANS[1], first)
    assert all_replicate(story.seen.snapshot)
    story.dispatch(SPANS[1], first, ReplicationState.COMMIT)
    assert not all_replicate(story.seen.snapshot)
    assert [view.span for view in views(story.seen.snapshot)] == list(SPANS)


def test_no_table_replicates_before_there_is_a_feed() -> None:
    assert not all_replicate(Chronicle().snapshot)
    assert busiest_agent(Chronicle().snapshot) is None


def test_the_busiest_agent_is_the_one_with_most_tables_then_the_first_by_name() -> None:
    story = Story()
    story.feed()
    for n, (span, agent) in enumerate(zip(SPANS, ("b", "a"), strict=True)):
        story.dispatch(span, role(agent, "s", n))
        story.report(span, role(agent, "s", n))
    assert busiest_agent(story.seen.snapshot) == "a"
    story.dispatch(SPANS[1], role("b", "s", 9))
    story.report(SPANS[1], role("b", "s", 9))
    assert busiest_agent(story.seen.snapshot) == "b"


def test_the_end_is_passed_only_when_every_topic_is() -> None:
    story = Story()
    story.feed()
    ends = {f"shop.{span}": {0: 5} for span in SPANS}
    assert not passed(story.seen.snapshot, ends)
    for positions, expected in (({SPANS[0]: {0: 5}}, False), ({SPANS[0]: {0: 5}, SPANS[1]: {0: 4}}, False)):
        story.tell(FeedProgressKey(FEED), build.feed_progressed(positions=positions))
        assert passed(story.seen.snapshot, ends) is expected
    story.tell(FeedProgressKey(FEED), build.feed_progressed(positions={span: {0: 6} for span in SPANS}))
    assert passed(story.seen.snapshot, ends)


def test_rows_are_counted_over_assignments_and_the_highest_lag_is_kept() -> None:
    story = Story()
    story.progress(SPANS[0], role("a", "s1", 1), rows=10)
    story.progress(SPANS[0], role("a", "s1", 1), rows=15, lag_ms=900)
    story.progress(SPANS[0], role("a", "s1", 2), rows=4)
    story.progress(SPANS[0], role("b", "s2", 3), rows=1)
    assert story.seen.rows_applied() == 20
    assert story.seen.lag_ms_max == 900


def test_it_is_kept_when_a_session_and_a_term_were_last_heard() -> None:
    story = Story()
    story.owner("host-1")  # its owner_rev is its offset, 0
    story.agent("agent-1", "s1")
    story.owner("host-1", 0)
    story.agent("agent-2", "s2")
    story.agent("agent-1", "s1")
    assert story.seen.heard_at == {0: 2.0, "s1": 4.0, "s2": 3.0}


def test_a_term_is_known_by_its_first_record_and_decides_with_its_next() -> None:
    story = Story()
    story.offset = 40
    story.owner("c-1")
    story.owner("c-1", owner_rev=40)
    assert [(term.owner_id, term.owner_rev) for term in story.seen.terms] == [("c-1", 40)]
    assert story.seen.decided_at == {}
    story.tell(SessionKey("a", "s1"), SessionEnded(40, "silent", 0))
    assert story.seen.decided_at == {40: 42.0}


class FakeProcess(NamedTuple):
    ended: tuple[str, ...] = ()

    def ended_by_themselves(self) -> list[str]:
        return list(self.ended)


class Told:
    """A watch that is told its story."""

    def __init__(self, seen: Chronicle) -> None:
        self.watch = Watch.__new__(Watch)
        from threading import Condition

        self.watch.seen, self.watch.condition = seen, Condition()


@pytest.mark.parametrize(
    ("caused", "terms_caused", "ended", "expected"),
    [
        ({"s1"}, 1, (), 0),
        (set(), 1, (), 1),
        ({"s1"}, 0, (), 1),
        ({"s1"}, 1, ("agent-2",), 1),
    ],
)
def test_a_loss_is_false_unless_the_demo_has_caused_it(
    caused: set[str], terms_caused: int, ended: tuple[str, ...], expected: int
) -> None:
    story = Story()
    story.owner("c-1")
    story.agent("a", "s1")
    story.agent("b", "s9")
    story.tell(SessionKey("a", "s1"), SessionEnded(0, "silent", 0))
    story.agent("a", "s2")
    story.owner("c-2")
    faults = Faults(cast("Services", FakeProcess(ended)), Told(story.seen).watch, "", lambda _: None)
    faults._caused_sessions |= caused
    faults._explained_terms += terms_caused
    assert len(faults.false_losses()) == expected


def test_a_session_given_up_without_a_word_of_the_owner_is_a_false_loss_too() -> None:
    story = Story()
    story.agent("a", "s1")
    story.agent("a", "s2")
    losses = Faults(cast("Services", FakeProcess()), Told(story.seen).watch, "", lambda _: None).false_losses()
    assert losses == ["session s1 of a gave up its session by itself"]


class FailingReader:
    """Says what it is told to, then that the broker is silent, or nothing more."""

    def __init__(self, *reads: Delivery | None, fails: bool) -> None:
        """None among the reads is one failure."""
        self.reads = list(reads)
        self.fails = fails
        self.closed = False

    def poll(self, _records_max: int, timeout_seconds: float) -> list[Delivery]:
        read = self.reads.pop(0) if self.reads else None
        if read is not None:
            return [read]
        if self.fails or self.reads:
            raise LogError("the broker does not answer")
        threading.Event().wait(timeout_seconds)
        return []

    def close(self) -> None:
        self.closed = True


class LogOf:
    """A log whose reader is given."""

    shards = 1

    def __init__(self, reader: FailingReader) -> None:
        self._reader = reader

    def reader(self, _start: dict[Partition, int]) -> FailingReader:
        return self._reader


def owner_announced(owner_id: str, offset: int) -> Delivery:
    return Delivery(
        Partition("announce", 0), offset, OwnerKey(0), build.owner_announced(owner_id=owner_id, version="1")
    )


def test_a_patient_watch_reads_on_where_it_was_when_the_broker_is_back() -> None:
    reader = FailingReader(owner_announced("a", 6), None, owner_announced("b", 7), fails=False)
    watch = Watch(cast("Log", LogOf(reader)), silence_seconds_max=60)
    try:
        watch.wait_for("both owners", lambda seen: [t.owner_id for t in seen.terms] == ["a", "b"], 20, lambda: None)
    finally:
        watch.close()
    assert reader.closed


def test_what_was_read_before_the_broker_fell_silent_is_not_taken_for_true() -> None:
    watch = Watch(cast("Log", LogOf(FailingReader(owner_announced("a", 0), fails=True))))
    watch._thread.join(20)
    with pytest.raises(WatchError, match="does not answer"):
        watch.wait_for("an owner", lambda seen: bool(seen.terms), 20, lambda: None)
    watch.close()


def test_an_agent_is_ready_when_its_newest_session_has_answered_and_stays() -> None:
    story = Story()
    assert not story.seen.is_ready("a1")
    story.agent("a1", "s1")
    assert not story.seen.is_ready("a1"), "it starts"
    story.tell(AnswerKey("a1", "s1", 0), answered(None, 0, 0))
    assert story.seen.is_ready("a1")
    story.tell(AgentKey("a1", "s1"), build.agent_announced(liveness=Liveness.STOPPING, address="here", heartbeat=2))
    assert not story.seen.is_ready("a1")
    story.agent("a1", "s2")
    assert not story.seen.is_ready("a1")
    story.tell(AnswerKey("a1", "s2", 0), answered(None, 0, 0))
    assert story.seen.is_ready("a1")
    story.tell(SessionKey("a1", "s2"), SessionEnded(1, "silent", 0))
    assert not story.seen.is_ready("a1")
