"""Change logs on lanes: what is planned, what tasks pass and refuse, what becomes of a span whose limits change."""

import threading
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Limited, SettleDue
from headgate.agent.core.span.states import TaskPhase
from headgate.generation.changelog.core.bounds import OffsetBounds
from headgate.replication.change_logs import UNKNOWN, ChangeLogFollower
from headgate.replication.frames import Chunk, Mark
from headgate.replication.lane import Lane
from headgate.replication.plan import SpanWork
from headgate.replication.queries import Queries, positions_of
from headgate.replication.span_table import SpanTable
from support.lanes_without_spark import Restarts, ended, ends_of, is_on, lane_of, now_is, result_of

from .conftest import RecordingParts, chunk, run, work

SPEC = '{"feed": "f", "source": {"change_log": "orders"}, "sink": {"type": "postgresql", "dsn": "dbname=x"}}'


LOCK_SECONDS_MAX: Final = 30.0


def limited(table: SpanTable, span: SpanId, limits: dict[int, int], firsts: dict[int, int] | None = None) -> None:
    table.apply(span, Limited(now_is(table, span).progress.opening, firsts or {}, limits, 7))


@pytest.fixture
def known(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What a lane is told when it catches up."""
    told = {"orders": 7}
    monkeypatch.setattr(queries.batch_coordinator._change_logs, "catch_up", lambda name: told[name])
    return told


def on_a_lane(table: SpanTable, queries: Queries, at: dict[int, int], **how: Any) -> tuple[Lane, SpanId]:
    lane = lane_of(queries, "l", at, SPEC)
    return lane, is_on(table, lane, at, "s", SPEC, limits_at=7, **how)


def works(queries: Queries, lane: Lane, end: int = 1_000) -> tuple[SpanWork, ...]:
    plan = queries.batch_coordinator.begin_batch(lane, ends_of(lane, end))
    return () if plan is None else plan.works


# --- what is planned --------------------------------------------------------------------------------------------------


def test_a_partition_is_planned_up_to_its_limit_and_not_behind_it(
    table: SpanTable, queries: Queries, known: dict[str, int]
) -> None:
    assert known
    lane, span = on_a_lane(table, queries, {0: 5, 1: 0, 2: 9}, limits={0: 50, 2: 9})
    (planned,) = works(queries, lane)
    assert (planned.expected, planned.limits) == ({0: 5, 1: 0}, {0: 50, 2: 9})
    ended(queries, lane, result_of(span, positions={0: 48, 1: 990}), seen={0: 1_000, 1: 990, 2: 1_000})
    reached = {partition: now_is(table, span).reached(partition) for partition in range(3)}
    assert reached == {0: 50, 1: 1_000, 2: 9}, "what stands behind a limit has not been read, though it came"


def test_limits_that_are_raised_meanwhile_are_not_those_of_the_batch(
    table: SpanTable, queries: Queries, known: dict[str, int]
) -> None:
    assert known
    lane, span = on_a_lane(table, queries, {0: 5, 1: 0}, limits={0: 50, 1: 0})
    (planned,) = works(queries, lane)
    assert planned.expected == {0: 5}
    limited(table, span, {0: 70})
    ended(queries, lane, result_of(span, positions={0: 50}), seen={0: 1_000, 1: 1_000})
    assert {partition: now_is(table, span).reached(partition) for partition in (0, 1)} == {0: 50, 1: 0}


def test_so_it_is_for_a_batch_that_has_no_rows_of_it(table: SpanTable, queries: Queries, known: dict[str, int]) -> None:
    assert known
    lane, span = on_a_lane(table, queries, {0: 50, 1: 0}, limits={0: 50, 1: 0})
    other = is_on(table, lane, {0: 50}, "other", SPEC, limits_at=7)
    assert [planned.id for planned in works(queries, lane)] == [other]
    limited(table, span, {})
    ended(queries, lane, result_of(other, positions={0: 1_000}), seen={0: 1_000, 1: 1_000})
    assert {partition: now_is(table, span).reached(partition) for partition in (0, 1)} == {0: 50, 1: 0}


def test_a_lane_that_has_passed_what_may_be_read_now_gives_its_span_back(
    table: SpanTable, queries: Queries, known: dict[str, int], lifecycle: Restarts
) -> None:
    assert known
    lane, span = on_a_lane(table, queries, {0: 5, 1: 0}, limits={1: 0})
    works(queries, lane)
    ended(queries, lane, result_of(span, positions={0: 1_000}), seen={0: 1_000, 1: 1_000})
    queries.turn(0.0)
    assert lifecycle.restarted == []
    limited(table, span, {})
    queries.turn(0.0)
    assert lifecycle.restarted == ["another stream of its change log may be read"]


def test_a_span_that_was_not_told_of_the_batchs_generations_is_not_planned(
    table: SpanTable, queries: Queries, known: dict[str, int], lifecycle: Restarts
) -> None:
    lane, span = on_a_lane(table, queries, {0: 5})
    known["orders"] = UNKNOWN
    assert works(queries, lane) == ()
    assert lifecycle.restarted == ["what its change log's generations are is not known"]
    assert now_is(table, span).phase is TaskPhase.OPENING


def test_a_lane_begins_with_what_may_be_read(table: SpanTable, queries: Queries) -> None:
    _, span = on_a_lane(table, queries, {0: 5, 1: 0, 2: 9}, limits={0: 50, 2: 9}, firsts={1: 20})
    assert positions_of([now_is(table, span)]) == {("t", 0): 5, ("t", 1): 20}
    limited(table, span, {0: 5, 1: 0, 2: 9})
    assert positions_of([now_is(table, span)]).keys() == {("t", 0), ("t", 1), ("t", 2)}, "a query needs a partition"


# --- a span's limits --------------------------------------------------------------------------------------------------


def test_the_end_of_a_stream_is_settled_at_once(
    table: SpanTable, queries: Queries, known: dict[str, int], lifecycle: Restarts
) -> None:
    assert known
    lane, span = on_a_lane(table, queries, {0: 5}, limits={0: 50})
    works(queries, lane)
    ended(queries, lane, result_of(span, positions={0: 48}), seen={0: 48})
    assert now_is(table, span).owes(0.0), "a transaction's marker stands between; others may wait for the sink"
    lifecycle.called.clear()
    table.apply(span, SettleDue())
    assert lifecycle.called == ["s"]


def test_what_is_older_or_of_another_opening_changes_nothing(table: SpanTable, queries: Queries) -> None:
    _, span = on_a_lane(table, queries, {0: 5}, limits={0: 9})
    opening = now_is(table, span).progress.opening
    for told in (Limited(opening, {}, {}, 6), Limited(opening - 1, {}, {}, 99)):
        table.apply(span, told)
        assert now_is(table, span).progress.limits == {0: 9}


def test_limits_are_computed_outside_the_lock_that_every_batch_needs(
    table: SpanTable, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take milliseconds for a change log with thousands of streams."""
    _, span = on_a_lane(table, queries, {0: 5, 1: 0}, limits={0: 50})
    taken: list[bool] = []

    def take() -> None:
        taken.append(table.changed.acquire(timeout=LOCK_SECONDS_MAX))
        table.changed.release()

    def computed(*_given: object, **_how: object) -> dict[int, OffsetBounds]:
        other = threading.Thread(target=take)
        other.start()
        other.join()
        return {0: OffsetBounds(0, 60), 1: OffsetBounds(0, None)}

    monkeypatch.setattr("headgate.replication.change_logs.bounds_of", computed)
    follower = ChangeLogFollower(table, None, lambda _span, _unread: None)
    follower._tell("orders", SimpleNamespace(state=None, position=8))  # type: ignore[arg-type]
    assert taken == [True]
    assert (now_is(table, span).progress.limits, now_is(table, span).progress.limits_at) == ({0: 60}, 8)


# --- tasks ------------------------------------------------------------------------------------------------------------


def marked(offsets: list[int], **marks: Mark) -> Chunk:
    found = {int(name[1:]): mark for name, mark in marks.items()}
    made = chunk("a", 0, offsets)
    blank = [offset for offset in offsets if found.get(offset) is Mark.END]
    keys = [None if offset in blank else key for offset, key in zip(offsets, made.keys, strict=True)]
    values = [None if offset in blank else value for offset, value in zip(offsets, made.values, strict=True)]
    kinds = [int(found.get(offset, Mark.CHANGE)) for offset in offsets]
    return msgspec.structs.replace(made, keys=keys, values=values, marks=kinds)


def applied(parts: RecordingParts) -> list[int]:
    return [change.offset for batch in parts.batches for change in batch.changes]


def test_end_markers_are_passed_and_are_no_rows(parts: RecordingParts) -> None:
    (span,) = run([work("a", {0: 3})], [marked([2, 3, 5, 7, 8], o5=Mark.END, o8=Mark.END)]).spans
    assert (applied(parts), span.positions, span.rows, span.error) == ([3, 7], {0: 9}, 2, None)
    (only,) = run([work("a", {0: 9})], [marked([10, 11], o10=Mark.END, o11=Mark.END)]).spans
    assert (applied(parts), only.positions, only.rows) == ([3, 7], {0: 12}, 0)


def test_what_stands_behind_the_limit_is_not_applied(parts: RecordingParts) -> None:
    limit = msgspec.structs.replace(work("a", {0: 3}), limits={0: 6})
    result = run([limit], [marked([3, 5, 6, 7], o5=Mark.END), marked([8, 9])])
    (span,) = result.spans
    assert (applied(parts), span.positions) == ([3], {0: 6})
    assert result.seen == {"t.a": {0: 10}}, "it came all the same"


def test_nothing_goes_past_what_no_writer_wrote(parts: RecordingParts) -> None:
    (span,) = run([work("a", {0: 3})], [marked([3, 4, 5, 6], o5=Mark.STRANGE), marked([7])]).spans
    assert (applied(parts), span.positions) == ([3, 4], {0: 5})
    assert span.error is not None
    assert "offset 5: no ChangeWriter wrote this record" in span.error
    assert not span.retryable
