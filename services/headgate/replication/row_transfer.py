"""Rows from a source table to a sink, in Spark's tasks: one reads them, another writes them (docs/adr/0110, 0114).

Lines are deletes and rows, in *portions*: each ends with a line that contains their number, is written in one
transaction, and is bounded in size. What is missing must not be taken for rows that do not exist.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import pyarrow as pa

from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseError
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import KeyForm, LineReader, RowReader, RowSource, RowSourceError, same_form
from headgate.databases.row_sources import connector_of, open_row_source
from headgate.formats.change import DECIMALS, ChangeError, Row
from headgate.formats.shaping import SaltUnavailableError, Shaping, read_salts
from headgate.records.control import Positions
from headgate.records.row_copies import KEYS_MAX
from headgate.replication.archives import forget_archives
from headgate.replication.feed_parts import feed_of
from headgate.replication.row_lines import Failure, ReadFailedError, answer_batch, failed_batch, lines_batch, lines_of
from headgate.replication.shaped_rows import ShapedRows
from headgate.replication.spark_options import ARROW_ROWS_MAX
from headgate.sinks.contract import Claim, SinkError
from headgate.sinks.registry import open_sink
from headgate.sinks.row_copying import CopiedRows, CopiedTexts, CopyMark, RowCopyingWriter, RowsRefusedError
from headgate.sinks.target_rows import TargetRows, open_target_rows
from headgate.sources.database import source_target
from headgate.sources.offsets import SourceError

__all__ = ["Transfer", "TransferAnswer", "TransferRange", "read_rows", "source_of", "spelled", "write_rows"]

BYTES_MAX: Final = 128 << 20
"""Of the values of rows that are named by keys: they are in one transaction, and in a task's memory."""

PORTION_BYTES: Final = 4 << 20
"""Of the rows of a range that are written in one transaction, if one row alone is not larger. The next portion is read
while one is written, so a range should have several. Each costs some hundredths of a second."""

COMMIT_BYTES: Final = 16 << 20
"""The same for a sink that keeps its mark with its rows: each portion is a file of the table, and a range."""

READ_SECONDS_MAX: Final = 20.0
"""A range ends behind the portion in which this time is over, whatever it was to have: its rows are larger, or an end
is slower, than the last range was. The owner takes a turn for hung after two minutes."""

BLOCK_BYTES: Final = PORTION_BYTES // ARROW_ROWS_MAX
"""Of the lines that are one value for Spark, where rows are lines of COPY's text format. A value costs microseconds on
its way. Spark gives a task as many values at a time as a portion has, so that one is written while the next is read."""

PORTION_DELETES: Final = 10_000
"""Rows of a range that are deleted in one transaction."""

SOURCE_FAILED: Final = "source"
"""The kind of an error of the source, which may pass."""

BETWEEN_ROWS: Final = "between_rows"
"""The kind of an error that another row of the sink is to blame for: it may be one that is not copied yet."""


class TransferRange(msgspec.Struct, frozen=True):
    """A range of a whole table: ``mark`` is how far its request was before it."""

    chunk: Chunk
    mark: CopyMark


class Transfer(msgspec.Struct, frozen=True):
    """What the tasks are given. ``columns`` and ``source_key`` have the source's names, ``key`` the sink's.

    ``table`` is the source's. ``rows`` is what to copy: keys, in one transaction, or a range. ``computed``: columns of
    the sink that are computed where rows are read. ``where``: the request's own condition, beside the feed's.
    ``declared``: the types of ``columns``, the key's first, if rows are read as lines of COPY's text format.
    ``is_one_commit``: a range whose rows are more than a portion ends earlier, because its rows and its mark are one
    commit of the sink.
    """

    spec: str
    table: str
    among: str | None
    claim: Claim
    positions: Positions
    columns: tuple[str, ...]
    key: tuple[str, ...]
    source_key: tuple[str, ...]
    forms: tuple[KeyForm, ...]
    rows: tuple[tuple[str, ...], ...] | TransferRange
    delete: bool
    semantics: dict[str, str]
    computed: tuple[str, ...] = ()
    where: str | None = None
    is_one_commit: bool = False
    declared: tuple[str, ...] = ()


class TransferAnswer(msgspec.Struct, frozen=True):
    """What was written, and why not more. A range's ``mark`` is how far its request is by now."""

    upserts: int = 0
    deletes: int = 0
    mark: CopyMark | None = None
    failure: Failure | None = None


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """A row, or the ``key`` of one that must be deleted, where ``values`` is null."""

    key: tuple[str, ...]
    values: list[Any] | None = None


class _Block(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    """So many rows as lines of COPY's text format."""

    rows: int
    lines: bytes


class _End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """The end of a portion of so many lines. ``upto``: the last key in it, if that is not where the range was to end.

    ``is_last``: the range ends here.
    """

    lines: int
    is_last: bool
    upto: tuple[str, ...] | None = None


def source_of(feed: FeedSpec) -> Target:
    """Where rows are read. Raises RowSourceError, SourceError."""
    if feed.source.database is None:
        raise RowSourceError(
            "rows are copied from the source's database, and the feed does not name it. Add source.database to the "
            "feed (headgate feed update)"
        )
    if feed.source.change_log is not None:
        raise RowSourceError("rows of a change log have no table at a source database")
    return source_target(feed.source.database)


def spelled(forms: Sequence[KeyForm], key: Sequence[object]) -> tuple[str, ...]:
    """A key in the one spelling of its values. Raises RowSourceError."""
    return tuple(same_form(form, str(value)) for form, value in zip(forms, key, strict=True))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_rows(plan: bytes, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the lines, or the error that came instead."""
    forget_archives()
    for _ in numbers:
        pass
    work = msgspec.msgpack.decode(plan, type=Transfer)
    try:
        for portion in portions(work):
            yield lines_batch(portion)
    except (RowSourceError, DatabaseError, SourceError) as error:
        yield failed_batch(Failure(f"{work.claim.table}: {error}", SOURCE_FAILED))


def portions(work: Transfer) -> Iterator[list[bytes]]:
    """The lines of each transaction. Raises RowSourceError, DatabaseError, SourceError."""
    feed = feed_of(work.spec)
    with open_row_source(source_of(feed)) as source:
        shaped = _shaped_rows(feed, work, source, work.computed)
        if not isinstance(work.rows, TransferRange):
            yield _named_rows(work, shaped, work.rows)
            return
        if work.delete:
            kept = _shaped_rows(feed, work, source, ())
            with open_target_rows(feed.sink) as sink:
                places = [work.rows.chunk, *_behind_the_end(work.rows.mark)]
                for keys in itertools.chain.from_iterable(_only_at_sink(work, kept, sink, each) for each in places):
                    yield _ended([msgspec.msgpack.encode(_Line(key)) for key in keys], is_last=False)
        if isinstance(source, LineReader) and work.declared:
            yield from _lines_of_range(work, source, work.rows.chunk)
        else:
            yield from _rows_of_range(work, shaped, work.rows.chunk)


def _behind_the_end(mark: CopyMark) -> list[Chunk]:
    """Where the sink may have rows that no range meets; for the first range.

    The source had none there a moment ago. Those that it has at the end of the copy have joined since, by the log.
    """
    return [Chunk(mark.end, None)] if mark.upto is None and mark.end is not None else []


def _shaped_rows(feed: FeedSpec, work: Transfer, source: RowSource, computed: Sequence[str]) -> RowReader:
    own = feed.for_table(work.claim.topic, work.among)
    wheres = [where for where in (own.where, work.where) if where is not None]
    if not wheres and not computed:
        return source
    expressions = {name: own.columns.set[name] for name in computed}
    return ShapedRows(source, connector_of(source_of(feed)), work.table, wheres, expressions)


def _ended(lines: list[bytes], *, is_last: bool, upto: tuple[str, ...] | None = None) -> list[bytes]:
    return [*lines, msgspec.msgpack.encode(_End(len(lines), is_last, upto))]


def _named_rows(work: Transfer, source: RowReader, keys: Sequence[tuple[str, ...]]) -> list[bytes]:
    wanted, width = dict.fromkeys(keys, 0), len(work.key)
    lines: list[bytes] = []
    size = 0
    for row in source.rows(work.table, work.columns, work.source_key, keys):
        key = _found_key(work, row, wanted)
        wanted[key] += 1
        if wanted[key] > 1:
            raise RowSourceError("the source has several rows under one of the keys")
        lines.append(msgspec.msgpack.encode(_Line(key, list(row[width:]))))
        size += len(lines[-1])
        if size > BYTES_MAX:
            raise RowSourceError(f"the rows are larger than {BYTES_MAX >> 20} MiB. Copy fewer at a time")
    absent = [msgspec.msgpack.encode(_Line(key)) for key, rows in wanted.items() if not rows and work.delete]
    return _ended([*absent, *lines], is_last=True)


def _found_key(work: Transfer, row: Sequence[object], wanted: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    key = spelled(work.forms, row[: len(work.key)])
    if key not in wanted:  # to leave it out would be to delete, perhaps, what is the same row at the sink
        raise RowSourceError("the source finds a row by another spelling of its key. Write it as the source does")
    return key


def _only_at_sink(work: Transfer, source: RowReader, sink: TargetRows, chunk: Chunk) -> Iterator[list[tuple[str, ...]]]:
    """Keys of a range that the source does not have, some at a time.

    The two servers may order texts in different ways, so a key that is not in the source's range is looked up there. A
    row of the sink whose key is spelled in another way than at the source would be in the way of that one, which is in
    the same range: both ends compare texts alike.
    """
    there = {spelled(work.forms, key) for key in source.rows_within(work.table, (), work.source_key, chunk)}
    here = (spelled(work.forms, key) for key in sink.rows_within(work.claim.table, (), work.key, chunk))
    absent: list[tuple[str, ...]] = []
    unknown = (key for key in here if key not in there)
    while keys := tuple(itertools.islice(unknown, KEYS_MAX)):
        found = {
            spelled(work.forms, row[: len(work.key)]) for row in source.rows(work.table, (), work.source_key, keys)
        }
        absent += [key for key in keys if key not in found]
        if len(absent) >= PORTION_DELETES:
            yield absent
            absent = []
    if absent:
        yield absent


def _rows_of_range(work: Transfer, source: RowReader, chunk: Chunk) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    width, size = len(work.key), 0
    bytes_max, until = COMMIT_BYTES if work.is_one_commit else PORTION_BYTES, time.monotonic() + READ_SECONDS_MAX
    before: tuple[str, ...] | None = None
    for row in source.rows_within(work.table, work.columns, work.source_key, chunk):
        key = tuple(map(str, row[:width]))
        line = msgspec.msgpack.encode(_Line(spelled(work.forms, key), list(row[width:])))
        if lines and (size + len(line) > bytes_max or time.monotonic() >= until):
            is_last = work.is_one_commit or time.monotonic() >= until
            yield _ended(lines, is_last=is_last, upto=before)
            if is_last:
                return
            lines, size = [], 0
        before = key
        lines.append(line)
        size += len(line)
    yield _ended(lines, is_last=True)


def _lines_of_range(work: Transfer, source: LineReader, chunk: Chunk) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size, until = 0, math.inf
    for line in source.lines_within(work.table, work.columns, work.source_key, chunk):
        # From the first line on: a server that takes long to find it would end every range behind one row.
        until = min(until, time.monotonic() + READ_SECONDS_MAX)
        is_last = time.monotonic() >= until
        if lines and (size + len(line) > PORTION_BYTES or is_last):
            # Values of such a key have nothing that a line escapes, but the last column is followed by the line's end.
            upto = tuple(lines[-1].removesuffix(b"\n").decode().split("\t", len(work.key))[: len(work.key)])
            yield [*_blocks(lines, size), msgspec.msgpack.encode(_End(len(lines), is_last, upto))]
            if is_last:
                return
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    yield [*_blocks(lines, size), msgspec.msgpack.encode(_End(len(lines), is_last=True))]


def _blocks(lines: list[bytes], size: int) -> Iterator[bytes]:
    """The lines of a portion, about BLOCK_BYTES at a time."""
    step = max(1, len(lines) * BLOCK_BYTES // max(size, 1))
    for start in range(0, len(lines), step):
        part = lines[start : start + step]
        yield msgspec.msgpack.encode(_Block(len(part), b"".join(part)))


# --- writing ----------------------------------------------------------------------------------------------------------


def write_rows(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: write what the reader gives; yields one TransferAnswer."""
    forget_archives()
    work = msgspec.msgpack.decode(plan, type=Transfer)
    try:
        answer = written(work, itertools.chain.from_iterable(lines_of(batches)))
    except ReadFailedError as error:
        answer = TransferAnswer(failure=error.failure)
    except RowsRefusedError as error:
        answer = TransferAnswer(failure=Failure(str(error), BETWEEN_ROWS if error.is_between_rows else error.code))
    except SinkError as error:
        answer = TransferAnswer(failure=Failure(str(error), error.code))
    yield answer_batch(answer)


def written(work: Transfer, lines: Iterable[bytes]) -> TransferAnswer:
    """Write each portion in one transaction. Raises SinkError, ReadFailedError."""
    table, feed = work.claim.table, feed_of(work.spec).for_table(work.claim.topic, work.among)
    try:
        shaping = Shaping(feed.columns, read_salts(feed.columns)) if feed.columns.shapes else None
    except SaltUnavailableError as error:
        return TransferAnswer(failure=Failure(f"{table}: {error}"))
    upserts = deletes = 0
    with closing(open_sink(feed.sink)) as sink, closing(sink.writer()) as writer:
        if not isinstance(writer, RowCopyingWriter):
            return TransferAnswer(failure=Failure(f"{table}: rows cannot be copied to this sink"))
        for read, end in _portions_read(work, lines):
            is_last = end.is_last
            try:
                rows = _shaped(work, read, shaping)
            except ChangeError as error:
                return TransferAnswer(failure=Failure(f"{table}: {error}"))
            # Rows that are as they were count as well: they are copied.
            upserts += len(rows.upserts) + (rows.texts.count if rows.texts is not None else 0)
            mark = _mark(work.rows, end, upserts, deletes + len(rows.deletes))
            applied = writer.copy(msgspec.structs.replace(rows, mark=mark))
            deletes += applied.deletes
            if is_last:
                return TransferAnswer(upserts, deletes, mark)
    return TransferAnswer(failure=Failure(f"{table}: not all rows came from the source", SOURCE_FAILED))


class _Portion(msgspec.Struct, frozen=True):
    """The rows of a transaction, and the values of the computed columns of each upsert."""

    rows: CopiedRows
    computed: Sequence[Sequence[object]]


def _shaped(work: Transfer, read: _Portion, shaping: Shaping | None) -> CopiedRows:
    """The rows as the feed's changes are written: renamed, masked, and with computed columns. Raises ChangeError."""
    rows = read.rows
    if shaping is None:
        return rows
    upserts = [
        shaping.row(row, rows.semantics, dict(zip(work.computed, values, strict=True)))
        for row, values in zip(rows.upserts, read.computed, strict=True)
    ]
    return msgspec.structs.replace(rows, upserts=upserts, semantics=shaping.meaning(rows.semantics))


def _mark(rows: object, end: _End, upserts: int, deletes: int) -> CopyMark | None:
    """How far a whole table's request is once a portion is written; None behind rows that are only deleted."""
    if not isinstance(rows, TransferRange) or not (end.is_last or end.upto):
        return None
    before, upto = rows.mark, end.upto or rows.chunk.upto
    return CopyMark(
        request=before.request,
        upto=before.upto if upto is None else upto,
        end=before.end,
        rows=before.rows + upserts,
        deleted=before.deleted + deletes,
        is_done=end.is_last and upto in (None, before.end),
    )


def _portions_read(work: Transfer, lines: Iterable[bytes]) -> Iterator[tuple[_Portion, _End]]:
    """The rows of each transaction, and how it ends. Raises ReadFailedError."""
    upserts: list[Row] = []
    computed: list[Sequence[object]] = []
    deletes: list[Row] = []
    blocks: list[bytes] = []
    width, in_blocks = len(work.columns), 0
    for line in lines:
        # Without types: MessagePack itself distinguishes texts from bytes; msgspec does not within a union of types.
        found = msgspec.msgpack.decode(line)
        if found[0] == "rows":
            in_blocks += found[1]
            blocks.append(found[2])
            continue
        if found[0] != "end":
            key, values = found
            if values is None:
                deletes.append(dict(zip(work.key, key, strict=True)))
            else:
                upserts.append(dict(zip(work.columns, values[:width], strict=True)))
                computed.append(values[width:])
            continue
        _, count, is_last, upto = found
        if count != len(upserts) + len(deletes) + in_blocks:
            raise ReadFailedError(Failure(f"{work.claim.table}: not all rows came from the source", SOURCE_FAILED))
        copied = CopiedRows(
            claim=work.claim,
            positions=work.positions,
            key=work.key,
            upserts=upserts,
            deletes=deletes,
            semantics=work.semantics | {DECIMALS: "string"},
            texts=CopiedTexts(columns=work.columns, declared=work.declared, blocks=blocks, count=in_blocks)
            if blocks
            else None,
        )
        yield _Portion(copied, computed), _End(count, is_last, None if upto is None else tuple(upto))
        upserts, computed, deletes, blocks, in_blocks = [], [], [], [], 0
