"""Tables in memory, compared: with a key, without one, and which of two databases may not be read."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from headgate.verify import comparing
from headgate.verify.comparing import Row, Shape, TableCompared, UncomparableError, compare_table
from headgate.verify.forms import Nature

COLUMNS = {"a": Nature.OTHER, "n": Nature.NUMBER}


class Memory:
    """A side with one table, whose rows are (a, n), however it calls its columns."""

    def __init__(self, rows: Sequence[Row], key: tuple[str, ...] = (), kind: str = "x", names: str = "an") -> None:
        self.kind, self.name = kind, "database d at h:1, user u"
        self._rows, self._key = rows, key
        self._columns = dict(zip(names, COLUMNS.values(), strict=True))

    def shape(self, table: str) -> Shape | None:
        return Shape(self._columns, self._key) if table == "t" else None

    def snapshot(self) -> AbstractContextManager[object]:
        return nullcontext()

    def rows(self, _table: str, key: Sequence[str], values: Sequence[str]) -> Iterator[Row]:
        places = [list(self._columns).index(column) for column in (*key, *values)]
        rows = [tuple(row[place] for place in places) for row in self._rows]
        return iter(sorted(rows, key=lambda row: [part or "" for part in row[: len(key)]]))

    def close(self) -> None:
        """Nothing is open."""


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
