"""A source that is compared under the sink's names, without columns that are excluded or masked."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.config.columns import ColumnOptions
from headgate.databases.key_ranges import Chunk
from headgate.verify.contract import KeyKind, KeyRange, KeySet, Shape
from headgate.verify.forms import Nature
from headgate.verify.shaped import ShapedSide

OPTIONS = ColumnOptions.model_validate(
    {"exclude": ["gone"], "rename": {"id": "number", "a": "b", "b": "a"}, "mask": {"mail": None}}
)


class Source:
    kind, name = "postgresql", "database x"

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def shape(self, table: str) -> Shape | None:
        if table != "t":
            return None
        names = ("id", "a", "b", "mail", "gone")
        return Shape(dict.fromkeys(names, Nature.OTHER), ("id",), {"id": KeyKind.INTEGER, "mail": KeyKind.TEXT})

    def rows(self, *asked: Any) -> Iterator[Any]:
        self.asked.append(asked)
        return iter(())

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
