"""What a task reads and another writes: nothing that is missing is taken for a row that the source does not have."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from headgate.config.columns import ColumnOptions
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import KeyForm, RowSourceError, Value
from headgate.formats.change import DECIMALS
from headgate.replication import row_transfer
from headgate.replication.row_lines import ReadFailedError
from headgate.sinks.contract import Applied
from headgate.sinks.row_copying import CopiedRows, CopyMark
from headgate.tables import paired_tables
from support import build

Rows = list[tuple[Value, ...]]

SOURCE = SimpleNamespace(name="source")


class Table:
    """One end. ``within`` is what its server finds in a range, which may be ordered as no other server does."""

    sink_type = "postgresql"

    def __init__(self, rows: Rows, within: Rows | None = None) -> None:
        self._rows, self._within = rows, rows if within is None else within
        self.asked: list[tuple[tuple[str, ...], ...]] = []

    def rows(
        self, _table: str, _columns: Sequence[str], _key: Sequence[str], keys: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[Value, ...]]:
        self.asked.append(tuple(keys))
        yield from self._rows

    def rows_within(
        self, _table: str, columns: Sequence[str], key: Sequence[str], _chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        yield from (row[: len(key) + len(columns)] for row in self._within)

    def declared(self, _table: str) -> dict[str, str]:
        raise NotImplementedError

    def lines_within(self, _table: str, _columns: Sequence[str], _key: Sequence[str], _chunk: Chunk) -> Iterator[bytes]:
        yield from ("\t".join(map(str, row[1:])).encode() + b"\n" for row in self._within)


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
    made.feed = feed = SimpleNamespace(for_table=lambda *_: feed, sink=None, columns=ColumnOptions(), where=None)
    monkeypatch.setattr(row_transfer, "feed_of", lambda _spec: feed)
    monkeypatch.setattr(row_transfer, "open_sink", lambda _: SimpleNamespace(writer=lambda: made, close=lambda: None))
    return made


def work(*keys: str, delete: bool = True, form: KeyForm = KeyForm.INTEGER) -> row_transfer.Transfer:
    return row_transfer.Transfer(
        spec="{}",
        table="shop.t",
        among=None,
        claim=build.claim(),
        positions={0: 3},
        columns=("id", "v"),
        key=("id",),
        source_key=("id",),
        forms=(form,),
        rows=tuple((key,) for key in keys),
        delete=delete,
        semantics={},
    )


def range_work(
    upto: str | None, *, delete: bool = True, form: KeyForm = KeyForm.INTEGER, before: int = 0
) -> row_transfer.Transfer:
    chunk = Chunk(("0",), None if upto is None else (upto,))
    mark = CopyMark(request="r1", upto=("0",), rows=before)
    given = work(delete=delete, form=form)
    return row_transfer.Transfer(
        **{field: getattr(given, field) for field in given.__struct_fields__ if field != "rows"},
        rows=row_transfer.TransferRange(chunk, mark),
    )


def portions(
    given: row_transfer.Transfer, source: Table, monkeypatch: pytest.MonkeyPatch, sink: Table | None = None
) -> list[list[bytes]]:
    @contextmanager
    def opened(_target: SimpleNamespace) -> Iterator[Table]:
        yield source

    @contextmanager
    def opened_sink(_sink: object) -> Iterator[Table | None]:
        yield sink

    monkeypatch.setattr(row_transfer, "source_of", lambda _feed: SOURCE)
    monkeypatch.setattr(row_transfer, "open_target_rows", opened_sink)
    monkeypatch.setattr(row_transfer, "open_row_source", opened)
    return list(row_transfer.portions(given))


def read(given: row_transfer.Transfer, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    return list(itertools.chain.from_iterable(portions(given, Table(rows), monkeypatch)))


@pytest.mark.parametrize(("delete", "deleted"), [(True, [{"id": "2"}]), (False, [])])
def test_rows_of_the_source_are_written_and_those_that_it_lacks_deleted_if_asked(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, delete: bool, deleted: Sequence[object]
) -> None:
    given = work("1", "2", delete=delete)
    answer = row_transfer.written(given, read(given, [("001", 1, b"\x00\xff")], monkeypatch))
    assert answer.failure is None
    (copied,) = writer.copied
    assert (copied.upserts, copied.deletes) == ([{"id": 1, "v": b"\x00\xff"}], deleted)
    assert (copied.positions, copied.key, copied.mark) == ({0: 3}, ("id",), None)


def test_a_read_without_its_end_deletes_nothing(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = work("1", "2")
    lines = read(given, [("1", 1, "a"), ("2", 2, "b")], monkeypatch)
    for some in ([], lines[:-1], lines[:1]):
        failure = row_transfer.written(given, some).failure
        assert failure is not None
        assert "not all rows came" in failure.text
    with pytest.raises(ReadFailedError, match="not all rows came"):
        row_transfer.written(given, lines[1:])
    assert writer.copied == []


def test_a_row_under_another_spelling_of_its_key_is_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RowSourceError, match="another spelling of its key"):
        read(work("A", form=KeyForm.TEXT), [("a", "a", "x")], monkeypatch)


def test_several_rows_of_one_key_are_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RowSourceError, match="several rows"):
        read(work("1"), [("1", 1, "a"), ("1", 1, "b")], monkeypatch)


def test_rows_that_would_fill_the_memory_are_refused(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_transfer, "BYTES_MAX", 100)
    with pytest.raises(RowSourceError, match="larger than"):
        read(work("1"), [("1", 1, "x" * 200)], monkeypatch)


@pytest.mark.parametrize(
    ("upto", "mark"),
    [
        ("9", CopyMark(request="r1", upto=("9",), rows=7)),
        (None, CopyMark(request="r1", upto=("0",), rows=7, is_done=True)),
    ],
)
def test_a_range_ends_with_its_mark_and_the_last_one_with_the_end(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, upto: str | None, mark: CopyMark
) -> None:
    given = range_work(upto, before=5, delete=False)
    lines = read(given, [("1", 1, "a"), ("2", 2, "b")], monkeypatch)
    answer = row_transfer.written(given, lines)
    assert (answer.mark, writer.copied[-1].mark) == (mark, mark)


def test_a_large_range_of_a_sink_that_commits_its_mark_with_its_rows_ends_earlier(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_transfer, "COMMIT_BYTES", 150)
    given = replace(range_work(None, delete=False), is_one_commit=True)
    lines = read(given, [(str(n), n, "x" * 60) for n in (1, 2, 3)], monkeypatch)
    answer = row_transfer.written(given, lines)
    assert [[row["id"] for row in copied.upserts] for copied in writer.copied] == [[1, 2]]
    assert answer.mark == writer.copied[0].mark == CopyMark(request="r1", upto=("2",), rows=2)


def test_a_large_range_is_several_transactions_and_each_has_the_mark_of_its_last_row(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_transfer, "PORTION_BYTES", 100)
    given = range_work("9", delete=False)
    lines = read(given, [(str(n), n, "x" * 60) for n in (1, 2, 3)], monkeypatch)
    row_transfer.written(given, lines)
    assert [[row["id"] for row in copied.upserts] for copied in writer.copied] == [[1], [2], [3]]
    begun = CopyMark(request="r1", upto=("0",))
    marks = [replace(begun, upto=(upto,), rows=rows) for upto, rows in (("1", 1), ("2", 2), ("9", 3))]
    assert [copied.mark for copied in writer.copied] == marks
    cut = Writer()
    monkeypatch.setattr(row_transfer, "open_sink", lambda _: SimpleNamespace(writer=lambda: cut, close=lambda: None))
    failure = row_transfer.written(given, lines[:-1]).failure
    assert failure is not None
    assert [copied.mark for copied in cut.copied] == marks[:2]


def test_a_range_whose_time_is_over_ends_behind_what_was_read(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_transfer, "READ_SECONDS_MAX", 0.0)
    given = range_work("9", delete=False)
    lines = read(given, [(str(n), n, "x") for n in (1, 2, 3)], monkeypatch)
    mark = CopyMark(request="r1", upto=("1",), rows=1)
    assert row_transfer.written(given, lines).mark == mark
    assert [copied.mark for copied in writer.copied] == [mark]


def test_the_last_portion_alone_ends_the_copy(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end may be the key of a row that another one follows in the same range, by the source's order."""
    monkeypatch.setattr(row_transfer, "PORTION_BYTES", 1)
    given = range_work("9", delete=False)
    assert isinstance(given.rows, row_transfer.TransferRange)
    given = replace(given, rows=replace(given.rows, mark=replace(given.rows.mark, end=("9",))))
    row_transfer.written(given, read(given, [("9", 9, "x"), ("09", 9, "y")], monkeypatch))
    assert [copied.mark.is_done for copied in writer.copied if copied.mark] == [False, True]


def test_the_first_range_deletes_what_only_the_sink_has_behind_the_last_one(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No range of the copy gets there, and a copy that did would chase the rows that are added there."""
    asked: list[Chunk] = []

    class Sink(Table):
        def rows_within(
            self, _table: str, _columns: Sequence[str], _key: Sequence[str], chunk: Chunk
        ) -> Iterator[tuple[Value, ...]]:
            asked.append(chunk)
            yield from [("50",)] if chunk.upto is None else []

    given = range_work("9")
    assert isinstance(given.rows, row_transfer.TransferRange)
    first = replace(given.rows, mark=CopyMark(request="r1", end=("20",)))
    for rows in (first, replace(first, mark=replace(first.mark, upto=("0",)))):
        for portion in portions(replace(given, rows=rows), Table([], within=[]), monkeypatch, Sink([])):
            row_transfer.written(replace(given, rows=rows), portion)
    ranges = Chunk(("0",), ("9",))
    assert asked == [ranges, Chunk(("20",), None), ranges]
    assert [copied.deletes for copied in writer.copied if copied.deletes] == [[{"id": "50"}]]


def test_rows_that_only_the_sink_has_are_deleted_before_the_range_is_written(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = range_work("9")
    source = Table([("4", "4", "found by its key")], within=[("1", 1, "a")])
    sink = Table([], within=[("1",), ("4",), ("6",)])
    first, second = portions(given, source, monkeypatch, sink)
    row_transfer.written(given, [*first, *second])
    assert source.asked == [(("4",), ("6",))], "what the servers may order in another way is looked up"
    assert [(copied.deletes, copied.upserts) for copied in writer.copied] == [
        ([{"id": "6"}], []),
        ([], [{"id": 1, "v": "a"}]),
    ]
    assert writer.copied[-1].mark == CopyMark(request="r1", upto=("9",), rows=1, deleted=1)


def test_a_row_that_the_sink_spells_in_another_way_makes_room_for_that_of_the_source(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = range_work("z", form=KeyForm.TEXT)
    source = Table([("a", "a")], within=[("a", "a", "x")])
    for portion in portions(given, source, monkeypatch, Table([], within=[("A",)])):
        row_transfer.written(given, portion)
    assert [(copied.deletes, copied.upserts) for copied in writer.copied] == [
        ([{"id": "A"}], []),
        ([], [{"id": "a", "v": "x"}]),
    ]


def test_rows_are_shaped_as_changes_are(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(work("1", "2"), key=("number",))
    writer.feed.columns = ColumnOptions.model_validate({"rename": {"id": "number"}, "mask": {"v": {"keep_last": 1}}})
    answer = row_transfer.written(given, read(given, [("1", 1, "abc")], monkeypatch))
    assert answer.failure is None
    (copied,) = writer.copied
    assert (copied.upserts, copied.deletes) == ([{"number": 1, "v": "**c"}], [{"number": "2"}])
    # A database's digits are never bytes.
    assert (copied.key, copied.semantics) == (("number",), {"v": "string", DECIMALS: "string"})


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
    failure = row_transfer.written(given, read(given, [("1", 1, 12345)], monkeypatch)).failure
    assert failure is not None
    assert why in failure.text
    assert "12345" not in failure.text
    assert writer.copied == []


def test_columns_are_paired_under_the_names_of_the_sink() -> None:
    shape = ColumnOptions.model_validate({"exclude": ["d"], "rename": {"a": "b", "b": "x"}, "mask": {"c": None}})
    source = {"a": "int4", "b": "text", "c": "date", "d": "text"}
    sink = paired_tables.SinkTable(
        "t", (), {"b": "int8", "x": "varchar", "c": "text", "d": "text"}, lambda _: (), paired_tables.is_taken
    )
    own = paired_tables._own_names(sink, source, shape)
    assert own == {"b": "a", "x": "b", "c": "c"}
    assert paired_tables._common(sink, source, own, shape) == {"a": "int4", "b": "text", "c": "date"}
    with pytest.raises(RowSourceError, match="column a of t is of type int4 at the source and text at the sink"):
        paired_tables._common(replace(sink, columns={**sink.columns, "b": "text"}), source, own, shape)


def lines_work(upto: str) -> row_transfer.Transfer:
    return replace(range_work(upto, delete=False), declared=("bigint", "text"))


@pytest.mark.parametrize("block_bytes", [1, 12, 1 << 20])
def test_lines_are_written_as_they_were_read_whatever_the_blocks_that_they_come_in(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(row_transfer, "PORTION_BYTES", 30)
    monkeypatch.setattr(row_transfer, "BLOCK_BYTES", block_bytes)
    rows: Rows = [(str(n), str(n), f"value {n}") for n in range(1, 8)]
    found = read(lines_work("7"), rows, monkeypatch)
    answer = row_transfer.written(lines_work("7"), found)
    assert answer.mark == CopyMark(request="r1", upto=("7",), rows=7)
    texts = [copied.texts for copied in writer.copied if copied.texts is not None]
    assert [text.count for text in texts] == [3, 3, 1]
    assert [text.row(line) for text in texts for line in text.lines()] == [
        {"id": str(n), "v": f"value {n}"} for n in range(1, 8)
    ]
    marks = [copied.mark for copied in writer.copied]
    assert [(mark.upto, mark.rows) for mark in marks if mark is not None] == [(("3",), 3), (("6",), 6), (("7",), 7)]


def test_the_end_of_a_line_is_not_part_of_a_key(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_transfer, "PORTION_BYTES", 3)
    work = replace(lines_work("2"), columns=("id",), declared=("bigint",))
    lines = read(work, [("1", "1"), ("2", "2")], monkeypatch)
    assert row_transfer.written(work, lines).mark == CopyMark(request="r1", upto=("2",), rows=2)
    ends = [found[3] for found in map(msgspec.msgpack.decode, lines) if found[0] == "end"]
    assert ends == [["1"], None]


def test_a_block_that_is_lost_on_the_way_is_noticed(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_transfer, "BLOCK_BYTES", 1)
    found = read(lines_work("2"), [("1", "1", "a"), ("2", "2", "b")], monkeypatch)
    with pytest.raises(ReadFailedError, match="not all rows came"):
        row_transfer.written(lines_work("2"), found[1:])
    assert not writer.copied


def test_lines_end_a_range_when_its_time_is_over(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_transfer, "READ_SECONDS_MAX", 0.0)
    found = read(lines_work("2"), [("1", "1", "a"), ("2", "2", "b")], monkeypatch)
    answer = row_transfer.written(lines_work("2"), found)
    assert answer.mark == CopyMark(request="r1", upto=("1",), rows=1)


def test_a_range_without_rows_is_copied(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = row_transfer.written(lines_work("9"), read(lines_work("9"), [], monkeypatch))
    assert answer.mark == CopyMark(request="r1", upto=("9",))
    assert [copied.texts for copied in writer.copied] == [None]
