"""Events that records tell, each from its own key alone."""

from msgspec.structs import replace

from headgate.eventlog.log import Delivery, Garbage, Partition
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    Liveness,
    ReplicationState,
    SessionEnded,
    SpanProgressed,
)
from headgate.records.keys import AgentKey, OwnerKey, ProgressKey, SessionKey, SpanKey
from headgate.views.history import EVENTS_OF_A_SUBJECT_MAX, History, HistoryEvent, events_of
from headgate.views.model import ViewsModel
from support import build

A, B = Assignment("a", "s1", Epoch(5, 1)), Assignment("b", "s2", Epoch(5, 2))
DISPATCHED = build.span_dispatched(incarnation=0, owner_rev=5, primary=A)
OWNER = build.owner_announced(owner_id="o1", version="0")
SPAN = SpanKey("f", "t")


def told(key: Key, before: Record | None, now: Record | None) -> list[HistoryEvent]:
    return events_of(before, Delivery(Partition(key.topic, 0), 7, key, now), 1_000)


def kinds(key: Key, before: Record | None, now: Record | None) -> list[str]:
    return [event.kind for event in told(key, before, now)]


def test_a_move_is_told_in_its_phases() -> None:
    coming = replace(DISPATCHED, state=ReplicationState.PREPARE, secondary=B)
    (begun,) = [event for event in told(SPAN, DISPATCHED, coming) if event.kind == "move_begun"]
    assert (begun.agent, begun.from_agent, begun.epoch) == ("b", "a", "5.2")
    (moved,) = told(SPAN, coming, replace(DISPATCHED, primary=replace(B, epoch=Epoch(5, 3))))
    assert (moved.kind, moved.agent, moved.from_agent, moved.epoch) == ("moved", "b", "a", "5.3")
    assert "move_given_up" in kinds(SPAN, coming, DISPATCHED)
    assert kinds(SPAN, DISPATCHED, DISPATCHED) == [], "the same again is no event"


def test_a_span_that_is_lost_and_given_to_another() -> None:
    absent = replace(DISPATCHED, state=ReplicationState.ABSENT, primary=None, failures=1, last_error="gone")
    assert kinds(SPAN, None, DISPATCHED) == ["assigned"]
    assert kinds(SPAN, DISPATCHED, absent) == ["unassigned", "failed"]
    assert kinds(SPAN, absent, replace(DISPATCHED, primary=B)) == ["assigned"]
    again = replace(DISPATCHED, feed_id="0-9")
    assert kinds(SPAN, DISPATCHED, again) == ["assigned"], "a feed made again under an old name is another feed"
    assert kinds(SPAN, DISPATCHED, None) == []


def test_only_who_went_without_a_word_is_a_failover() -> None:
    lost = SessionEnded(owner_rev=5, reason="silent for 5 s", ended_ms=0)
    left = SessionEnded(owner_rev=5, reason="left: stopped", ended_ms=0)
    key = SessionKey("a", "s1")
    assert [(event.kind, event.is_failover) for event in told(key, None, lost)] == [("session_lost", True)]
    assert [(event.kind, event.is_failover) for event in told(key, None, left)] == [("session_left", False)]
    assert told(key, lost, lost) == []
    owner = OwnerKey(0)
    assert [(e.kind, e.is_failover) for e in told(owner, OWNER, replace(OWNER, owner_id="o2"))] == [
        ("owner_took_over", True)
    ]
    resigned = replace(OWNER, lease_seconds=0.0)
    assert kinds(owner, OWNER, resigned) == ["owner_resigned"]
    assert [(e.kind, e.is_failover) for e in told(owner, resigned, replace(OWNER, owner_id="o2"))] == [
        ("owner_followed", False)
    ]
    assert kinds(owner, OWNER, replace(OWNER, owner_rev=7)) == [], "a heartbeat"


def test_what_began_before_the_oldest_record_that_is_left_is_found() -> None:
    for first in (OWNER, replace(OWNER, owner_rev=7)):
        (found,) = told(OwnerKey(0), None, first)
        assert (found.kind, found.is_failover) == ("owner_found", False), "nobody knows whom it followed, and how"
    assert kinds(OwnerKey(0), None, replace(OWNER, lease_seconds=0.0)) == ["owner_resigned"]


def test_histories_are_bounded_and_in_the_order_of_time() -> None:
    history = History()
    for number in range(EVENTS_OF_A_SUBJECT_MAX + 5):
        facts = {"topic": "dispatch", "partition": 0, "offset": number, "feed": "f", "span": "t", "agent": "a"}
        history.add(HistoryEvent(at_ms=1_000 - number, kind="assigned", **facts))
    events = history.span("f", "t")
    assert len(events) == EVENTS_OF_A_SUBJECT_MAX
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    assert history.span("f", "other") == []
    assert history.agent("a") == events


class _Lags:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int | None, int, bool]] = []

    def add(self, feed: str, table: str, before: SpanProgressed | None, now: SpanProgressed, *, is_first: bool) -> None:
        self.seen.append((feed, table, None if before is None else before.rows, now.rows, is_first))


def _progressed(rows: int) -> SpanProgressed:
    return build.span_progressed(epoch=A.epoch, positions={0: rows}, rows=rows, bytes=rows, lag_ms=1)


def test_the_model_is_rebuilt_when_the_last_record_was_read_and_takes_none_twice() -> None:
    lags, at, dispatch = _Lags(), Partition("checkpoint", 0), Partition("dispatch", 1)
    model = ViewsModel(lags, {at: 9, dispatch: 3})
    key = ProgressKey("f", "t~0-1", "a", "s1")
    first, second = Delivery(at, 4, key, _progressed(10)), Delivery(at, 9, key, _progressed(30))
    for read in (first, second, first, second):
        model.take(read, 0)
    assert lags.seen == [("f", "t", None, 10, False), ("f", "t", 10, 30, False)], "others may have been before"
    model.take(Delivery(at, 12, ProgressKey("f", "t", "a", "s2"), _progressed(5)), 0)
    assert lags.seen[2:] == [("f", "t", None, 5, True)], "written since: it is the session's first"
    assert model.behind == ["dispatch/1"]
    model.take(Garbage(dispatch, 12, "what is this"), 0)
    assert model.behind == []
    assert model.records == 4


def test_an_agent_announces_itself_once() -> None:
    alive = build.agent_announced(capacity_spans=1)
    key = AgentKey("a", "s1")
    assert kinds(key, None, alive) == ["session_announced"]
    assert kinds(key, None, replace(alive, heartbeat=7)) == ["session_found"]
    assert kinds(key, alive, replace(alive, heartbeat=2)) == []
    assert kinds(key, alive, replace(alive, liveness=Liveness.STOPPING)) == ["session_stopping"]
