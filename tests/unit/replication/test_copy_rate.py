"""The rate of a whole table's copy is limited, and a turn that is over or cancelled does not wait for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from headgate.databases.key_ranges import Chunk
from headgate.replication import row_copy
from headgate.replication.row_copy import RANGE_ROWS, RANGE_ROWS_MAX, RANGE_SECONDS, next_range_rows
from headgate.replication.row_transfer import Transfer, TransferAnswer, TransferRange
from headgate.sinks.row_copying import CopyMark
from support import build

TABLE_ROWS = 1_000


class Time:
    """A clock that only sleeping, and the copy of a range, move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


class Source:
    """A table of TABLE_ROWS rows with the keys 1, 2, 3…, or of more of them."""

    def __init__(self) -> None:
        self.rows = TABLE_ROWS

    def next_bound(
        self,
        _table: str,
        _key: object,
        above: tuple[str, ...] | None,
        rows: int,
        last: tuple[str, ...] | None,
    ) -> tuple[str, ...] | None:
        upto = (0 if above is None else int(above[0])) + rows
        return (str(upto),) if upto <= min(self.rows, self.rows if last is None else int(last[0])) else None

    def last_key(self, _table: str, _key: object) -> tuple[str, ...] | None:
        return (str(self.rows),) if self.rows else None

    def rows_about(self, _table: str) -> int:
        return TABLE_ROWS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(row_copy, "time", clock)
    return clock


def turn(
    clock: Time,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    *,
    range_seconds: float = 0.0,
    is_over: Callable[[], bool] = lambda: False,
    reached: Callable[[row_copy.CopyReached], None] = lambda _: None,
    is_first: bool = False,
    source: Source | None = None,
    delete: bool = False,
    mark: CopyMark | None = None,
) -> tuple[row_copy._Turn, list[Chunk]]:
    """A turn whose ranges take so long to copy, and the ranges that it has copied."""
    chunks: list[Chunk] = []

    def transferred(_numbers: object, work: Transfer, **_: object) -> TransferAnswer:
        assert isinstance(work.rows, TransferRange)
        clock.now += range_seconds
        chunk, before = work.rows.chunk, work.rows.mark
        chunks.append(chunk)
        rows = TABLE_ROWS if chunk.upto is None else int(chunk.upto[0])
        is_done = chunk.upto in (None, before.end)
        mark = msgspec.structs.replace(before, upto=chunk.upto or before.upto, rows=rows, is_done=is_done)
        return TransferAnswer(rows - before.rows, 0, mark)

    monkeypatch.setattr(row_copy, "_transferred", transferred)
    mark = mark or CopyMark(request="r1", upto=None)
    work = Transfer(
        spec="{}",
        table="shop.t",
        among=None,
        claim=build.claim(),
        positions={0: 3},
        columns=("id",),
        key=("id",),
        source_key=("id",),
        forms=(),
        rows=TransferRange(Chunk(None, None), mark),
        delete=delete,
        semantics={},
    )
    rows = cast("Any", source or Source())
    return row_copy._Turn(work, rows, mark, limit, is_over, reached=reached, is_first=is_first), chunks


def serve(made: row_copy._Turn) -> bool:
    return made.serve(cast("Any", SimpleNamespace()))


def test_a_limited_copy_waits_until_its_rows_fit_the_rate(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    made, chunks = turn(clock, monkeypatch, 100)
    for second in range(1, 10):
        assert serve(made)
        assert (made.mark.rows, clock.now) == (100 * second, pytest.approx(second))
    sizes = {int(chunk.upto[0]) - int((chunk.above or ("0",))[0]) for chunk in chunks if chunk.upto}
    assert sizes == {100}, "a range is what one second may have"
    assert not serve(made), "the table is copied"
    assert clock.now == pytest.approx(9), "nothing follows that would have to wait"


@pytest.mark.parametrize("delete", [False, True])
def test_rows_that_join_behind_the_last_key_are_left_to_the_log(
    clock: Time, monkeypatch: pytest.MonkeyPatch, *, delete: bool
) -> None:
    """Otherwise the copy of a table that grows as fast as it is copied would never end."""
    source = Source()
    made, chunks = turn(clock, monkeypatch, 100, source=source, delete=delete)
    ranges = 0
    while ranges < 50 and serve(made):
        source.rows += 100
        ranges += 1
    assert made.mark.is_done
    assert chunks[-1].upto == (str(TABLE_ROWS),)


def test_a_table_without_rows_is_copied_at_once(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    source.rows = 0
    made, chunks = turn(clock, monkeypatch, 100, source=source)
    assert not serve(made)
    assert (made.mark.is_done, chunks) == (True, [Chunk(None, None)])


def test_the_time_that_a_range_takes_counts(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = turn(clock, monkeypatch, 100, range_seconds=0.75)
    serve(made)
    assert (clock.now, clock.slept) == (pytest.approx(1.0), pytest.approx(0.25))
    slow, _ = turn(clock, monkeypatch, 100, range_seconds=1.5)
    serve(slow)
    assert clock.slept == pytest.approx(0.25), "a range that is slower than the limit is not slowed down"


def test_a_copy_without_a_limit_does_not_wait(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copy, "RANGE_ROWS", 100)
    monkeypatch.setattr(row_copy, "RANGE_ROWS_MAX", 100)
    made, _ = turn(clock, monkeypatch, None)
    while serve(made):
        pass
    assert (made.mark.is_done, clock.slept) == (True, 0)


def test_a_copy_that_is_over_waits_no_longer(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = turn(clock, monkeypatch, 1, is_over=lambda: clock.now >= 0.25)
    serve(made)
    assert 0.25 <= clock.now <= 0.25 + row_copy.POLL_SECONDS


def test_waiting_is_part_of_the_turn(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table stands still while it waits."""
    made, chunks = turn(clock, monkeypatch, 10)
    while serve(made):
        pass
    assert not made.mark.is_done
    assert len(chunks) in (row_copy.TURN_SECONDS, row_copy.TURN_SECONDS + 1)


def test_a_turn_reports_now_and_then_how_far_it_is(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[row_copy.CopyReached] = []
    made, _ = turn(clock, monkeypatch, 100, reached=said.append)
    for _ in range(5):
        assert serve(made)
    assert [each.mark.rows for each in said] == [100, 300, 500], "every REACHED_SECONDS"
    assert said[0].rows_about == TABLE_ROWS


def test_the_first_turn_is_short(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner waits until the span replicates, and other spans wait for a place."""
    monkeypatch.setattr(row_copy, "RANGE_ROWS", 10)
    monkeypatch.setattr(row_copy, "RANGE_ROWS_MAX", 10)
    first, _ = turn(clock, monkeypatch, None, range_seconds=0.4, is_first=True)
    assert [serve(first) for _ in range(3)] == [True, True, False]
    later, _ = turn(clock, monkeypatch, None, range_seconds=0.4)
    assert [serve(later) for _ in range(3)] == [True, True, True]


@pytest.mark.parametrize(
    ("rows", "seconds", "wanted"),
    [
        (RANGE_ROWS, 0.3, 4 * RANGE_ROWS),
        (RANGE_ROWS_MAX, 0.3, RANGE_ROWS_MAX),
        (4 * RANGE_ROWS, RANGE_SECONDS, 4 * RANGE_ROWS),
        (4 * RANGE_ROWS, 2 * RANGE_SECONDS, 2 * RANGE_ROWS),
        (RANGE_ROWS, 20.0, RANGE_ROWS),
        (0, 0.0, RANGE_ROWS),
    ],
    ids=["fast", "largest", "right", "slow", "smallest", "filtered"],
)
def test_ranges_take_as_long_as_they_should(rows: int, seconds: float, wanted: int) -> None:
    assert next_range_rows(rows, seconds) == wanted


def test_a_range_that_ended_early_is_the_measure_of_the_next_one(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copy, "RANGE_ROWS", 10)
    made, _ = turn(clock, monkeypatch, None)
    made.range_rows = 400

    def ended_early(_numbers: object, work: Transfer, **_: object) -> TransferAnswer:
        assert isinstance(work.rows, TransferRange)
        clock.now += RANGE_SECONDS
        return TransferAnswer(100, 0, msgspec.structs.replace(work.rows.mark, upto=("100",), rows=100))

    monkeypatch.setattr(row_copy, "_transferred", ended_early)
    assert serve(made)
    assert made.range_rows == 100


def test_a_copy_that_continues_reports_at_once_how_far_it_was(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[row_copy.CopyReached] = []
    turn(clock, monkeypatch, None, reached=said.append, mark=CopyMark(request="r1", upto=("7",), rows=7))
    turn(clock, monkeypatch, None, reached=said.append)
    assert [each.mark.rows for each in said] == [7], "nothing is known of one that begins"
