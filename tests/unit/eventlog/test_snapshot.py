"""What the list commands derive from the current records."""

from collections.abc import Iterator

import pytest

from headgate.agent.core.announcements import answered
from headgate.eventlog.log import Delivery, Garbage, Partition
from headgate.eventlog.snapshot import GARBAGE_KEPT_MAX, Snapshot
from headgate.records.base import Key, Record
from headgate.records.control import (
    AgentAnnounced,
    Assignment,
    Epoch,
    OwnerAnnounced,
    ReplicationState,
    SessionEnded,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
)
from headgate.records.keys import AgentKey, AnswerKey, FeedKey, OwnerKey, ProgressKey, SessionKey, SpanKey
from headgate.views.rows import agent_rows, table_rows
from support import build


def _snapshot(*facts: tuple[Key, Record | None, int]) -> Snapshot:
    snapshot = Snapshot()
    for offset, (key, value, shard) in enumerate(facts):
        snapshot.take(Delivery(Partition(key.topic, shard), offset, key, value))
    return snapshot


def _owner(lease_seconds: float) -> OwnerAnnounced:
    return build.owner_announced(owner_rev=1, version="0", lease_seconds=lease_seconds)


def _agent(announced_ms: int = 0) -> AgentAnnounced:
    return build.agent_announced(version="0", heartbeat=3, announced_ms=announced_ms)


def _dispatched(epoch: Epoch, state: ReplicationState = ReplicationState.REPLICATING) -> SpanDispatched:
    return build.span_dispatched(incarnation=0, state=state, primary=Assignment("a", "s", epoch))


def _progressed(epoch: Epoch, rows: int) -> SpanProgressed:
    return build.span_progressed(epoch=epoch, positions={0: 7}, rows=rows, bytes=1, lag_ms=20)


FEED = build.feed_recorded(incarnation=0, spans=(SpanPlan("b", "t.b", "b", {0: 0}), SpanPlan("a", "t.a", "a", {0: 0})))


def test_a_tombstone_removes_and_a_later_record_replaces() -> None:
    snapshot = _snapshot((OwnerKey(0), _owner(5), 0), (OwnerKey(1), _owner(5), 0), (OwnerKey(0), None, 0))
    assert snapshot.owner(0) is None
    assert snapshot.owner(1) is not None


def test_a_resigned_owner_is_none() -> None:
    assert _snapshot((OwnerKey(0), _owner(5), 0), (OwnerKey(0), _owner(0), 0)).owner(0) is None


def test_progress_of_an_earlier_epoch_does_not_count() -> None:
    key = ProgressKey("f", "a", "a", "s")
    facts = [(FeedKey("f"), FEED, 0), (SpanKey("f", "a"), _dispatched(Epoch(5, 2)), 0)]
    stale = _snapshot(*facts, (key, _progressed(Epoch(5, 1), 99), 0))
    assert [(row.table, row.state, row.rows) for row in table_rows(stale, "f")] == [
        ("a", "replicating", None),
        ("b", "absent", None),
    ]
    good = _snapshot(*facts, (key, _progressed(Epoch(5, 2), 42), 0))
    assert table_rows(good, "f")[0].rows == 42
    assert table_rows(good, "f")[0].positions == {"0": 7}


def test_a_session_is_dead_as_soon_as_any_shard_says_so_and_starting_until_it_answers_one() -> None:
    ended = SessionEnded(owner_rev=1, reason="silent", ended_ms=0)
    snapshot = _snapshot(
        (AgentKey("a", "s"), _agent(), 0),
        (AgentKey("a", "t"), _agent(), 0),
        (AgentKey("b", "u"), _agent(), 0),
        (AnswerKey("a", "t", 3), answered(None, 0, 0), 3),
        (SessionKey("a", "s"), ended, 0),
        (SessionKey("a", "s"), ended, 3),
        (SessionKey("a", "s"), None, 0),
        (SpanKey("f", "a"), _dispatched(Epoch(1, 1)), 3),
    )
    rows = agent_rows(snapshot)
    assert [(row.session, row.state, row.tables) for row in rows] == [
        ("s", "dead", 1),
        ("t", "alive", 0),
        ("u", "starting", 0),
    ]


def test_garbage_is_kept_apart() -> None:
    snapshot = Snapshot()
    snapshot.take(Garbage(Partition("sync", 0), 3, "no schema"))
    assert snapshot.standing() == []
    assert len(snapshot.garbage) == 1


def test_deleted_keys_leave_nothing_behind() -> None:
    snapshot = Snapshot()
    partition = Partition("announce", 0)
    for offset in range(1_000):
        key = AgentKey(f"a{offset}", "s")
        snapshot.take(Delivery(partition, 2 * offset, key, _agent()))
        snapshot.take(Delivery(partition, 2 * offset + 1, key, None))
    assert not snapshot.current
    assert not list(snapshot.keys(AgentKey))
    snapshot.take(Delivery(partition, 9_999, AgentKey("gone", "s"), None))
    assert not snapshot.current, "a tombstone of a key that was never seen adds nothing"


def test_a_key_in_two_partitions_stays_until_the_last_is_deleted() -> None:
    snapshot = Snapshot()
    key = AgentKey("a", "s")
    for number in (0, 1):
        snapshot.take(Delivery(Partition("announce", number), 0, key, _agent(number)))
    snapshot.take(Delivery(Partition("announce", 0), 1, key, None))
    assert list(snapshot.keys(AgentKey)) == [key]
    assert snapshot.get(key, AgentAnnounced) == _agent(1)


def test_garbage_is_counted_and_the_newest_kept() -> None:
    snapshot = Snapshot()
    for offset in range(GARBAGE_KEPT_MAX + 5):
        snapshot.take(Garbage(Partition("dispatch", 0), offset, "no record"))
    assert snapshot.garbage_counts == {"dispatch": GARBAGE_KEPT_MAX + 5}
    assert (len(snapshot.garbage), snapshot.garbage[0].offset) == (GARBAGE_KEPT_MAX, 5)
    assert snapshot.garbage_left_out == 5


class _Unwalked(dict[Key, dict[Partition, Delivery]]):
    """Finds a record by its key and fails when its keys are iterated."""

    def __iter__(self) -> Iterator[Key]:
        pytest.fail("all keys were walked")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_one_kind_of_key_is_found_without_walking_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = _snapshot((AgentKey("a", "s"), _agent(), 0), (OwnerKey(0), _owner(5), 0))
    monkeypatch.setattr(OwnerKey, "text", lambda _key: pytest.fail("an owner's key was asked for"))
    monkeypatch.setattr(snapshot, "current", _Unwalked(snapshot.current))
    assert [key for key, _ in snapshot.each(AgentKey, AgentAnnounced)] == [AgentKey("a", "s")]
