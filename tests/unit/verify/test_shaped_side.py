"""A source that is compared under the sink's names, without columns that are excluded or masked."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.config.columns import ColumnOptions
from headgate.databases.key_ranges import Chunk
from headgate.verify.contract import ComparedShape, KeyKind, KeyRange, KeySet, UncomparableError
from headgate.verify.forms import Nature
from headgate.verify.shaped import ShapedSide

OPTIONS = ColumnOptions.model_validate(
    {"exclude": ["gone"], "rename": {"id": "number", "a": "b", "b": "a"}, "mask": {"mail": None}}
)


class Source:
    kind, name = "postgresql", "database x"

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.found: list[tuple[str | None, ...]] = []
        self.types = {"id": "int8", "gone": "numeric", "mail": "text"}

    def shape(self, table: str) -> ComparedShape | None:
        if table != "t":
            return None
        names = ("id", "a", "b", "mail", "gone")
        kinds = {"id": KeyKind.INTEGER, "mail": KeyKind.TEXT}
        return ComparedShape(dict.fromkeys(names, Nature.OTHER), ("id",), kinds, self.types)

    def rows(self, *asked: Any) -> Iterator[Any]:
        self.asked.append(asked)
        return iter(self.found)

    checksum = next_bound = rows


@pytest.fixture
def source() -> Source:
    return Source()


def test_columns_have_the_names_that_the_sink_has(source: Source) -> None:
    side = ShapedSide(source, OPTIONS)  # type: ignore[arg-type]
    shape = side.shape("t")
    assert shape is not None
    assert (list(shape.columns), shape.key, shape.kinds) == (["number", "b", "a"], ("number",), {"number": "integer"})
    assert side.shape("other") is None


def test_the_database_is_asked_by_its_own_names(source: Source) -> None:
    side = ShapedSide(source, OPTIONS)  # type: ignore[arg-type]
    chunk = Chunk(None, (5,))
    keys = KeySet((("1",),), (True,))
    side.rows("t", ["number"], ["a"], KeyRange(("number",), chunk))
    side.rows("t", ["number"], ["b"], keys)
    side.checksum("t", ["number", "a"], KeyRange(("number",), chunk))
    side.next_bound("t", ["number"], None, 7)
    assert source.asked == [
        ("t", ("id",), ("b",), KeyRange(("id",), chunk)),
        ("t", ("id",), ("a",), keys),
        ("t", ("id", "b"), KeyRange(("id",), chunk)),
        ("t", ("id",), None, 7),
    ]


WHERE = "gone > 1.5 AND mail <> 'x'"


def test_rows_that_the_filter_leaves_out_do_not_exist(source: Source) -> None:
    side = ShapedSide(source, OPTIONS, WHERE)  # type: ignore[arg-type]
    side.shape("t")
    source.found = [("1", "b1", "2", "y"), ("2", "b2", "1.5", "y"), ("3", "b3", "2", None), ("4", "b4", "3", "")]
    assert list(side.rows("t", ["number"], ["a"])) == [("1", "b1"), ("4", "b4")]
    assert source.asked == [("t", ("id",), ("b", "gone", "mail"), None)]
    source.found = [("1", "2", "y"), ("2", "2", "x")]
    assert list(side.rows("t", ["number"], ["gone"])) == [("1", "2")]
    assert source.asked[1:] == [("t", ("id",), ("gone", "mail"), None)]


def test_a_filtered_table_is_read_whole_because_the_database_does_not_filter_as_we_do(source: Source) -> None:
    side = ShapedSide(source, OPTIONS, WHERE)  # type: ignore[arg-type]
    assert side.checksum("t", ["number"], KeyRange(("number",), Chunk(None, None))) is None
    assert source.asked == []


def test_a_table_that_the_filter_does_not_fit_is_not_compared(source: Source) -> None:
    with pytest.raises(UncomparableError, match=r"where: the source's table does not have the columns zz"):
        ShapedSide(source, OPTIONS, "zz = 1").shape("t")  # type: ignore[arg-type]
    side = ShapedSide(source, OPTIONS, WHERE)  # type: ignore[arg-type]
    side.shape("t")
    source.found = [("1", "b1", "Infinity", "y")]
    with pytest.raises(UncomparableError, match=r"where: column gone has a value that expressions cannot read"):
        list(side.rows("t", ["number"], ["a"]))


def test_computed_columns_are_read_as_what_they_are_computed_from(source: Source) -> None:
    options = ColumnOptions.model_validate(
        {"exclude": ["gone"], "rename": {"id": "number"}, "set": {"a": "a || mail", "big": "gone > 1", "n": "id + 1"}}
    )
    source.types = {"id": "int8", "gone": "numeric", "mail": "text", "a": "text"}
    side = ShapedSide(source, options)  # type: ignore[arg-type]
    shape = side.shape("t")
    assert shape is not None
    assert list(shape.columns.items()) == [
        ("number", Nature.OTHER), ("b", Nature.OTHER), ("mail", Nature.OTHER), ("a", Nature.OTHER),
        ("big", Nature.NUMBER), ("n", Nature.NUMBER),
    ]  # fmt: skip
    source.found = [("7", "m", "x", "1.5"), ("8", None, "y", "0.5"), ("9", "m", "z", None)]
    assert list(side.rows("t", ["number"], ["n", "mail", "a", "big"])) == [
        ("7", "8", "m", "xm", "1"), ("8", "9", None, None, "0"), ("9", "10", "m", "zm", None),
    ]  # fmt: skip
    assert source.asked == [("t", ("id",), ("mail", "a", "gone"), None)]
    assert side.checksum("t", ["number", "n"], KeyRange(("number",), Chunk(None, None))) is None
    side.checksum("t", ["number", "mail"], KeyRange(("number",), Chunk(None, None)))
    source.found = [("7", "m", "x", "1e")]
    with pytest.raises(UncomparableError, match="column gone has a value that expressions cannot read"):
        list(side.rows("t", ["number"], ["big"]))
    with pytest.raises(UncomparableError, match="column n of the target's key is computed"):
        list(side.rows("t", ["n"], ["mail"]))


def test_a_column_that_include_names_and_the_source_lacks_is_not_taken_for_equal(source: Source) -> None:
    options = ColumnOptions.model_validate({"include": ["id", "old", "b"], "rename": {"old": "label"}})
    target = ComparedShape({"id": Nature.OTHER, "label": Nature.OTHER}, ("id",))
    with pytest.raises(
        UncomparableError, match=r"columns\.include names old, which the source's table t does not have"
    ):
        ShapedSide(source, options, target=target).shape("t")  # type: ignore[arg-type]
    without = ComparedShape({"id": Nature.OTHER}, ("id",))
    shape = ShapedSide(source, options, target=without).shape("t")  # type: ignore[arg-type]
    assert shape is not None
    assert list(shape.columns) == ["id", "b"]
