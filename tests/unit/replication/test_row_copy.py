"""What a task reads and another writes: nothing that is missing is taken for a row that the source does not have."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from headgate.config.columns import ColumnOptions
from headgate.databases.row_source import KeyForm, RowSourceError, Value
from headgate.replication import row_copy
from headgate.sinks.contract import Applied
from headgate.sinks.row_copying import CopiedRows
from support import build

Rows = list[tuple[Value, ...]]


class Source:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def rows(self, *_: object) -> Iterator[tuple[Value, ...]]:
        yield from self._rows


class Writer:
    feed: SimpleNamespace

    def __init__(self) -> None:
        self.copied: list[CopiedRows] = []

    def copy(self, rows: CopiedRows) -> Applied:
        self.copied.append(rows)
        return Applied(dict(rows.positions), len(rows.upserts), 0, len(rows.deletes))

    def close(self) -> None:
        pass


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    made = Writer()
    sink = SimpleNamespace(writer=lambda: made, close=lambda: None)
    made.feed = SimpleNamespace(sink=None, columns=ColumnOptions())
    monkeypatch.setattr(row_copy, "feed_of", lambda _spec: SimpleNamespace(for_table=lambda *_: made.feed))
    monkeypatch.setattr(row_copy, "open_sink", lambda _spec: sink)
    return made


def work(*keys: str, delete: bool = True, form: KeyForm = KeyForm.INTEGER) -> row_copy._Work:
    return row_copy._Work(
        spec="{}",
        table="shop.t",
        among=None,
        claim=build.claim(),
        positions={0: 3},
        columns=("id", "v"),
        key=("id",),
        source_key=("id",),
        forms=(form,),
        keys=tuple((key,) for key in keys),
        delete=delete,
        semantics={},
    )


def read(given: row_copy._Work, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    @contextmanager
    def opened(_target: object) -> Iterator[Source]:
        yield Source(rows)

    monkeypatch.setattr(row_copy, "_source", lambda _feed: None)
    monkeypatch.setattr(row_copy, "open_row_source", opened)
    return row_copy._lines_of_source(given)


@pytest.mark.parametrize(("delete", "deleted"), [(True, [{"id": "2"}]), (False, [])])
def test_rows_of_the_source_are_written_and_those_that_it_lacks_deleted_if_asked(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, delete: bool, deleted: Sequence[object]
) -> None:
    given = work("1", "2", delete=delete)
    answer = row_copy._written(given, read(given, [("001", 1, b"\x00\xff")], monkeypatch))
    assert answer.failure is None
    (copied,) = writer.copied
    assert (copied.upserts, copied.deletes) == ([{"id": 1, "v": b"\x00\xff"}], deleted)
    assert (copied.positions, copied.key) == ({0: 3}, ("id",))


def test_a_read_without_its_end_deletes_nothing(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = work("1", "2")
    lines = read(given, [("1", 1, "a"), ("2", 2, "b")], monkeypatch)
    for some in ([], lines[:-1], lines[1:], lines[:1]):
        failure = row_copy._written(given, some).failure
        assert failure is not None
        assert "not all rows came" in failure.text
    assert writer.copied == []


def test_a_row_under_another_spelling_of_its_key_is_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RowSourceError, match="another spelling of its key"):
        read(work("A", form=KeyForm.TEXT), [("a", "a", "x")], monkeypatch)


def test_several_rows_of_one_key_are_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = work("1")
    failure = row_copy._written(given, read(given, [("1", 1, "a"), ("1", 1, "b")], monkeypatch)).failure
    assert failure is not None
    assert "several rows" in failure.text
    assert writer.copied == []


def test_rows_that_would_fill_the_memory_are_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copy, "BYTES_MAX", 100)
    with pytest.raises(RowSourceError, match="larger than"):
        read(work("1"), [("1", 1, "x" * 200)], monkeypatch)


def test_rows_are_shaped_as_changes_are(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(work("1", "2"), key=("number",))
    writer.feed.columns = ColumnOptions.model_validate({"rename": {"id": "number"}, "mask": {"v": {"keep_last": 1}}})
    answer = row_copy._written(given, read(given, [("1", 1, "abc")], monkeypatch))
    assert answer.failure is None
    (copied,) = writer.copied
    assert (copied.upserts, copied.deletes) == ([{"number": 1, "v": "**c"}], [{"number": "2"}])
    assert (copied.key, copied.semantics) == (("number",), {"v": "string"})


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        ({"keep_last": 1}, "column v has a value of type int, and mask keep_last takes texts only"),
        ({"sha256": "no-such-salt"}, "cannot read no-such-salt"),
    ],
)
def test_rows_that_cannot_be_masked_are_not_written(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, mask: object, why: str
) -> None:
    given = work("1")
    writer.feed.columns = ColumnOptions.model_validate({"mask": {"v": mask}})
    failure = row_copy._written(given, read(given, [("1", 1, 12345)], monkeypatch)).failure
    assert failure is not None
    assert why in failure.text
    assert "12345" not in failure.text
    assert writer.copied == []


def test_columns_are_paired_under_the_names_of_the_sink() -> None:
    shape = ColumnOptions.model_validate({"exclude": ["d"], "rename": {"a": "b", "b": "x"}, "mask": {"c": None}})
    source = {"a": "int4", "b": "text", "c": "date", "d": "text"}
    sink = {"b": "int8", "x": "varchar", "c": "text", "d": "text"}
    assert row_copy._common("t", source, sink, shape) == {"a": "int4", "b": "text", "c": "date"}
    with pytest.raises(RowSourceError, match="column a of t is of type int4 at the source and text at the sink"):
        row_copy._common("t", source, sink | {"b": "text"}, shape)
