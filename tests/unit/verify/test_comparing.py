"""Tables in memory, compared: with a key, without one, and which of two databases may not be read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest

from headgate.verify import comparing
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.contract import (
    WHOLE,
    Checksum,
    ComparedShape,
    KeyKind,
    KeyRange,
    KeySet,
    Part,
    Row,
    UncomparableError,
)
from headgate.verify.forms import Nature
from headgate.verify.settling import Settling
from support.quiet_connector import QuietConnector


class Memory:
    """A side with one table, whose rows are (a, n), however it calls its columns."""

    def __init__(
        self,
        rows: Sequence[Row],
        key: tuple[str, ...] = (),
        kind: str = "x",
        *,
        names: str = "an",
        ranged: bool = False,
        number: Nature = Nature.NUMBER,
    ) -> None:
        self.kind, self.name = kind, "database d at h:1, user u"
        self.table = list(rows)
        self._key = key
        self._columns = dict(zip(names, (Nature.OTHER, number), strict=True))
        self._kinds = {names[0]: KeyKind.INTEGER} if ranged else {}
        self.read: list[Part] = []
        self.has_checksums = True

    def shape(self, table: str) -> ComparedShape | None:
        types = dict.fromkeys(self._columns, "type")
        return ComparedShape(self._columns, self._key, self._kinds, types) if table == "t" else None

    def snapshot(self) -> AbstractContextManager[object]:
        return nullcontext()

    def rows(self, _table: str, key: Sequence[str], values: Sequence[str], part: Part = WHOLE) -> Iterator[Row]:
        self.read.append(part)
        places = [list(self._columns).index(column) for column in (*key, *values)]
        rows = [tuple(row[place] for place in places) for row in self.table if _is_in(row, part)]
        return iter(sorted(rows, key=lambda row: [part or "" for part in row[: len(key)]]))

    def checksum(self, _table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        places = [list(self._columns).index(column) for column in columns]
        rows = [tuple(row[place] for place in places) for row in self.table if _is_in(row, part)]
        return Checksum(len(rows), sum(map(hash, rows))) if self.has_checksums else None

    def next_bound(
        self, _table: str, _columns: Sequence[str], above: tuple[Any, ...] | None, rows: int
    ) -> tuple[Any, ...] | None:
        left = sorted(int(row[0] or 0) for row in self.table if above is None or int(row[0] or 0) > above[0])
        return (left[rows - 1],) if len(left) >= rows else None

    def applied(self, _feed_id: str, _table: str) -> dict[int, int]:
        return {}

    def clock_ms(self) -> int:
        return 0

    def why_log_unread(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""


def _is_in(row: Row, part: Part) -> bool:
    if isinstance(part, KeyRange):
        number, (above, upto) = int(row[0] or 0), (part.chunk.above, part.chunk.upto)
        return (above is None or number > above[0]) and (upto is None or number <= upto[0])
    return part is None or (row[0] or "",) in part.keys


class Clock(QuietConnector):
    """A feed that has applied everything, and time that passes by pauses only."""

    def __init__(self, *changes: Callable[[], object]) -> None:
        """Each change happens in one of the first pauses."""
        self.seconds = 0.0
        self.changes = list(changes)

    def ends(self) -> dict[int, int]:
        return {0: 7}

    def why_behind(self, _ends: Mapping[int, int]) -> str:
        return ""

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        if self.changes:
            self.changes.pop(0)()

    def settling(self) -> Settling:
        return Settling(self, seconds=1, timeout_seconds=9, now=lambda: self.seconds, pause=self.pause)


def compared(here: Sequence[Row], there: Sequence[Row], key: tuple[str, ...] = ()) -> TableCompared:
    return compare_table(Memory(here, key), Memory(there, key), "t", "t")


def test_a_table_without_key_is_compared_as_a_multiset() -> None:
    rows = [("x", "1"), ("x", "1"), (None, "2"), ("", "2"), ("y", None)]
    found = compared(rows, list(reversed(rows)))
    assert (found.rows, found.differences, found.keyless) == (5, 0, True)


def test_rows_that_are_there_more_often_on_one_side_are_found() -> None:
    found = compared([("x", "1"), ("x", "1"), ("y", "2")], [("x", "1"), ("z", "2"), ("z", "2")])
    assert found.differences == 4
    assert sorted((each.kind, each.key["a"]) for each in found.examples) == [
        ("missing", "x"),
        ("missing", "y"),
        ("surplus", "z"),
        ("surplus", "z"),
    ]


@pytest.mark.parametrize(("kind", "missing", "surplus"), [("mysql", (), ()), ("postgresql", ("A", "N"), ("a", "n"))])
def test_columns_of_mysql_are_found_whatever_their_case(
    kind: str, missing: tuple[str, ...], surplus: tuple[str, ...]
) -> None:
    """As the sink finds them; at PostgreSQL they are other columns."""
    found = compare_table(Memory([("x", "1")], names="AN"), Memory([("x", "2")], kind=kind), "t", "t")
    assert (found.columns_missing, found.columns_surplus) == (missing, surplus)
    assert found.differences == (0 if missing else 2)


@pytest.mark.parametrize("ranged", [True, False])
def test_bits_are_compared_with_a_number_as_the_number_that_they_are(ranged: bool) -> None:
    bits = Memory([("1", "0101"), ("2", "10"), ("3", None)], ("a",), ranged=ranged, number=Nature.BITS)
    numbers = Memory([("1", "5"), ("2", "10"), ("3", None)], ("a",), ranged=ranged)
    found = compare_table(bits, numbers, "t", "t")
    assert [(each.key, each.columns) for each in found.examples] == [({"a": "2"}, ("n",))]
    assert compare_table(numbers, bits, "t", "t").differences == 1


def test_bits_and_numbers_find_no_rows() -> None:
    bits = Memory([("1", "0101")], ("n",), number=Nature.BITS)
    with pytest.raises(UncomparableError, match=r"key column n is .* whose values cannot be compared as texts"):
        compare_table(bits, Memory([("1", "5")], ("n",)), "t", "t")
    without_key = compare_table(Memory([("1", "10")], number=Nature.BITS), Memory([("1", "10")]), "t", "t")
    assert (without_key.columns, list(without_key.columns_unlike)) == (("a",), ["n"])


def test_null_is_not_the_empty_text() -> None:
    found = compared([(None, "1")], [("", "1")])
    assert sorted(each.kind for each in found.examples) == ["missing", "surplus"]


def test_rows_without_key_are_equal_by_value() -> None:
    assert compared([("x", "22.0000"), ("x", "10")], [("x", "22"), ("x", "10.0")]).differences == 0
    assert compared([("x", "22.0000")], [("x", "22.0001")]).differences == 2


def test_more_rows_without_partner_than_are_kept_are_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "UNMATCHED_ROWS_MAX", 2)
    found = compared([(f"x{n}", "1") for n in range(9)], [])
    assert (found.rows, found.differences) == (9, 9)


def test_a_key_of_either_side_will_do() -> None:
    found = compare_table(Memory([("x", "1")], ("a",)), Memory([("x", "2")]), "t", "t")
    assert ([(each.kind, each.columns) for each in found.examples], found.keyless) == ([("differs", ("n",))], False)


def test_a_table_that_cannot_be_seen_names_database_and_user() -> None:
    with pytest.raises(UncomparableError, match=r"the source \(database d at h:1, user u\)"):
        compare_table(Memory([]), Memory([]), "u", "t")


def test_ranges_of_the_key_have_every_row_of_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of the target below, between and above all rows of the source."""
    monkeypatch.setattr(comparing, "ROWS_PER_RANGE", 2)
    here = Memory([(str(n), "1") for n in (3, 5, 7, 10, 12)], ("a",), ranged=True)
    there = Memory([(str(n), "1") for n in (-1, 3, 5, 6, 7, 10, 99)], ("a",), ranged=True)
    found = compare_table(here, there, "t", "t")
    assert len(here.read) == 3, "each differs somewhere"
    assert [(each.kind, each.key["a"]) for each in found.examples] == [
        ("surplus", "-1"),
        ("surplus", "6"),
        ("missing", "12"),
        ("surplus", "99"),
    ]
    assert found.rows == 8


@pytest.mark.parametrize("ranged", [True, False])
def test_a_row_on_its_way_is_equal_when_it_is_read_again(ranged: bool) -> None:
    here = Memory([("1", "1"), ("2", "5"), ("3", "1")], ("a",), ranged=ranged)
    there = Memory([("1", "1"), ("2", "4"), ("4", "1")], ("a",), ranged=ranged)
    clock = Clock(lambda: there.table.remove(("2", "4")), lambda: there.table.append(("2", "5")))
    found = compare_table(here, there, "t", "t", settling=clock.settling())
    assert (found.differences, found.unsettled) == (2, 0)
    assert [(each.kind, each.key["a"]) for each in found.examples] == [("missing", "3"), ("surplus", "4")]


def test_a_row_that_keeps_changing_is_not_settled() -> None:
    here, there = Memory([("1", "0"), ("2", "0")], ("a",)), Memory([("1", "x"), ("2", "x")], ("a",))
    changes = [partial(here.table.__setitem__, 0, ("1", str(n))) for n in range(1, 99)]
    found = compare_table(here, there, "t", "t", settling=Clock(*changes).settling())
    assert (found.differences, found.unsettled) == (1, 1)
    assert [each.key for each in found.examples] == [{"a": "2"}]
    assert [(each.kind, each.columns) for each in found.unsettled_examples] == [("differs", ("n",))]
    assert found.unsettled_reason == "they kept changing"


def test_rows_of_one_key_are_settled_together() -> None:
    """The target has no unique index, and one row too many: the other one is equal."""
    here, there = Memory([("1", "0")], ("a",)), Memory([("1", "0"), ("1", "0")])
    found = compare_table(here, there, "t", "t", settling=Clock().settling())
    assert [each.kind for each in found.examples] == ["surplus"]


def test_a_null_in_a_key_is_read_again_as_it_was_read_first() -> None:
    here, there = Memory([("1", "0")], ("a",), ranged=True), Memory([("1", "0"), (None, "0")], ranged=True)
    found = compare_table(here, there, "t", "t", settling=Clock().settling())
    assert [(each.kind, each.key) for each in found.examples] == [("surplus", {"a": ""})]
    assert there.read[-1] == KeySet((("",),), (False,)), "no index is asked for the empty text"


def test_rows_without_key_are_settled_by_value() -> None:
    here = Memory([("x", "1"), ("x", "1.0"), ("y", "2")])
    there = Memory([("x", "1"), ("z", "2")])
    clock = Clock(lambda: there.table.append(("y", "2.0")))
    found = compare_table(here, there, "t", "t", settling=clock.settling())
    assert sorted((each.kind, each.key["a"]) for each in found.examples) == [("missing", "x"), ("surplus", "z")]
    assert (found.differences, found.unsettled) == (2, 0)


@pytest.mark.parametrize("key", [("a",), ()])
def test_more_rows_than_can_be_read_again_are_not_settled(
    key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "UNMATCHED_ROWS_MAX", 3)
    here, there = Memory([(str(n), "1") for n in range(9)], key), Memory([], key)
    found = compare_table(here, there, "t", "t", settling=Clock().settling())
    assert (found.differences, found.unsettled) == (3, 6)


def test_many_rows_of_several_ranges_are_settled_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "UNMATCHED_ROWS_MAX", 3)
    monkeypatch.setattr(comparing, "ROWS_PER_RANGE", 2)
    here, there = Memory([(str(n), "1") for n in range(8)], ("a",), ranged=True), Memory([], ("a",), ranged=True)
    found = compare_table(here, there, "t", "t", settling=Clock().settling())
    assert (found.differences, found.unsettled) == (8, 0)


def ranges_read(here: Memory, there: Memory) -> int:
    assert compare_table(here, there, "t", "t").differences == 0
    return len(here.read)


@pytest.mark.parametrize(
    ("text", "read"), [("1", 0), ("1.0", comparing.CHECKSUMS_WASTED_MAX)], ids=["same texts", "same values"]
)
def test_ranges_with_equal_checksums_are_not_read(text: str, read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none are made any more where they are of no use."""
    monkeypatch.setattr(comparing, "ROWS_PER_RANGE", 2)
    made: list[Part] = []
    here, there = (Memory([(str(n), value) for n in range(20)], ("a",), ranged=True) for value in ("1", text))
    checksum = here.checksum

    def counted(table: str, columns: Sequence[str], part: KeyRange) -> Checksum | None:
        made.append(part)
        return checksum(table, columns, part)

    monkeypatch.setattr(here, "checksum", counted)
    assert ranges_read(here, there) == (0 if read == 0 else 11)
    assert len(made) == (11 if read == 0 else read)


def test_rows_without_a_checksum_are_read() -> None:
    here, there = (Memory([("1", "1")], ("a",), ranged=True) for _ in range(2))
    there.has_checksums = False
    assert ranges_read(here, there) == 1
