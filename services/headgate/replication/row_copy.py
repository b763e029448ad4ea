"""Copies rows of given keys from source to sink with a streaming query while nothing else writes the table.

The span is claimed, and on no lane: its positions stand still. A first task reads the rows at the source, a second one
writes them in one transaction, which checks epoch and positions as a batch does (sinks/row_copying.py). Everything the
source has changed since those positions follows in the log and is applied over the copied rows (docs/adr/0110).
"""

import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseError
from headgate.databases.row_source import KeyForm, RowSourceError, same_form
from headgate.formats.change import CONNECTOR, ChangeError, Row
from headgate.formats.shaping import SaltUnavailableError, Shaping, read_salts
from headgate.records.control import Positions, SpanPlan
from headgate.records.row_copies import RowCopy, read_row_copy
from headgate.replication.archives import forget_archives
from headgate.replication.causes import cause_of
from headgate.replication.feed_parts import feed_of
from headgate.replication.number_stream import run_numbered
from headgate.replication.row_lines import (
    ANSWER_SCHEMA,
    ROWS_SCHEMA,
    Failure,
    ReadFailedError,
    answer_batch,
    failed_batch,
    lines_batch,
    lines_of,
    why_ended,
)
from headgate.replication.row_sources import connector_of, open_row_source
from headgate.replication.spark import SparkRuntime, SparkStartError
from headgate.sinks.contract import Claim, SinkError, SinkFencedError, SinkMovedError, SinkUnavailableError
from headgate.sinks.registry import open_sink, target_of
from headgate.sinks.row_copying import CopiedRows, RowCopyingWriter
from headgate.sources.database import source_target
from headgate.sources.offsets import SourceError
from headgate.sources.table_names import named_like, source_table

__all__ = ["Order", "RowCopier", "RowCopyError"]

_log = logging.getLogger(__name__)

BYTES_MAX: Final = 128 << 20
"""Of the values of all rows: they are in one transaction, and in a task's memory."""

ALIKE: Final = (
    frozenset({"int2", "int4", "int8", "tinyint", "smallint", "mediumint", "int", "bigint"}),
    frozenset({"text", "varchar", "tinytext", "mediumtext", "longtext"}),
)
"""Types whose values are written as the same text; other types must be the same at both ends."""

_KINDS: Final[dict[str, type[SinkError]]] = {
    kind.code: kind for kind in (SinkFencedError, SinkMovedError, SinkUnavailableError)
}
"""What is not the copy's fault: the span's own life deals with it."""


BITS_AS_TEXT: Final = {"postgresql": frozenset({"bit", "varbit"}), "mysql": frozenset[str]()}
"""Connector → types whose values are read as texts of 0 and 1."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` is what a request names (records/row_copies.py), ``positions`` where the claimed span stands still.

    ``key``: the columns by which the sink finds rows. ``among``: what the feed calls the table among several of its
    topic; None where the topic has one.
    """

    spec: str
    plan: SpanPlan
    claim: Claim
    positions: Positions
    key: tuple[str, ...]
    among: str | None
    rows: str


class RowCopyError(Exception):
    """The rows could not be copied: all of them were written, or none. The message says why, and what to do."""

    code = "copy_failed"


class _Answer(msgspec.Struct, frozen=True):
    upserts: int = 0
    deletes: int = 0
    failure: Failure | None = None


class _Work(msgspec.Struct, frozen=True):
    """What the tasks are given. ``columns`` and ``source_key`` have the source's names, ``key`` the sink's.

    ``table`` is the source's.
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
    keys: tuple[tuple[str, ...], ...]
    delete: bool
    semantics: dict[str, str]


class RowCopier:
    """Copies rows for one span at a time per call, on the agent's Spark."""

    def __init__(self, runtime: SparkRuntime) -> None:
        self._runtime = runtime

    def copy(self, order: Order, said: Callable[[str], str | None], is_over: Callable[[], bool]) -> None:
        """Copy the rows that the order names.

        ``said``: topic → the source table that its events name. ``is_over``: asked now and then whether to give up.
        Raises RowCopyError, and the SinkErrors that say something of the claim or the sink itself.
        """
        table = order.plan.table
        try:
            work = _planned(order, said, is_over)
        except (RowSourceError, DatabaseError, SourceError) as error:
            raise RowCopyError(f"{table}: {error}") from error
        answer = self._run(work, is_over)
        if answer.failure is not None:
            kind = _KINDS.get(answer.failure.kind)
            if kind is not None:
                raise kind(answer.failure.text)
            raise RowCopyError(answer.failure.text)
        at = dict(order.positions)
        _log.info("%s: %d rows copied, %d deleted, at %s", table, answer.upserts, answer.deletes, at)

    def _run(self, work: _Work, is_over: Callable[[], bool]) -> _Answer:
        answers: list[_Answer] = []

        def serve(numbers: DataFrame) -> bool:
            plan = msgspec.msgpack.encode(work)
            read = numbers.coalesce(1).mapInArrow(functools.partial(_read, plan), ROWS_SCHEMA)
            written = read.mapInArrow(functools.partial(_write, plan), ANSWER_SCHEMA).collect()
            answers.extend(msgspec.json.decode(bytes(answer[0]), type=_Answer) for answer in written)
            return False

        try:
            session, scratch = self._runtime.start(), Path(self._runtime.settings.scratch)
            name = f"rows-{work.claim.identity.feed}-{work.claim.table}"
            ended = run_numbered(session, name, 1, scratch=scratch, serve=serve, is_over=is_over)
        except SparkStartError as error:
            raise RowCopyError(f"{work.claim.table}: {error}") from error
        except (PySparkException, Py4JError, OSError) as error:
            raise RowCopyError(f"{work.claim.table}: {why_ended(error)}") from error
        if not answers:
            why = "the agent was stopping" if ended is None else cause_of(ended)
            raise RowCopyError(f"{work.claim.table}: the copying query has ended: {why}")
        return answers[0]


def _planned(order: Order, said: Callable[[str], str | None], is_over: Callable[[], bool]) -> _Work:
    """Once the source shows all that the positions cover. Raises RowSourceError, DatabaseError, SourceError."""
    feed, plan, rows = feed_of(order.spec), order.plan, read_row_copy(order.rows)
    if not isinstance(rows, RowCopy):
        raise RowSourceError(rows)
    with open_row_source(_source(feed)) as source:
        table = source_table(feed, plan.table, plan.topic, has=lambda name: bool(source.columns(name)), said=said)
        found = {} if table is None else source.columns(table)
        if table is None or not found:
            raise RowSourceError(
                f"the source has no table {table or named_like(plan.topic)}, or its user may not see it. Grant SELECT "
                "on it"
            )
        shape = feed.for_table(plan.topic, order.among).columns
        columns = _common(plan.table, found, _columns_of_sink(feed, plan.table), shape)
        key = _key(order, rows, [shape.target(column) for column in columns])
        source_key = tuple(map(shape.source, key))
        forms = source.key_forms(table, source_key)
        keys = {_spelled(forms, one) for one in rows.keys}
        source.await_commits(is_over)
    connector = connector_of(_source(feed))
    bits = [column for column, kind in columns.items() if kind in BITS_AS_TEXT[connector]]
    return _Work(
        spec=order.spec,
        table=table,
        among=order.among,
        claim=order.claim,
        positions=dict(order.positions),
        columns=tuple(columns),
        key=key,
        source_key=source_key,
        forms=forms,
        keys=tuple(sorted(keys)),
        delete=rows.delete,
        semantics={CONNECTOR: connector, **dict.fromkeys(bits, "string")},
    )


def _key(order: Order, rows: RowCopy, columns: Collection[str]) -> tuple[str, ...]:
    """The columns by which rows are named. Raises RowSourceError unless they are those that the sink finds rows by.

    ``columns``: those that both ends have, by the sink's names.
    """
    table, key = order.plan.table, rows.columns or order.key
    if not order.key or set(key) != set(order.key):
        found_by = ", ".join(order.key) or "nothing, because it has no key"
        raise RowSourceError(f"rows were named by {', '.join(key)}, and the sink finds them by {found_by}")
    if missing := [column for column in key if column not in columns]:
        raise RowSourceError(f"the source's table does not have the key's column {', '.join(missing)} of {table}")
    if any(len(one) != len(key) for one in rows.keys):
        raise RowSourceError(f"each key must have {len(key)} values: {', '.join(key)}")
    return key


def _source(feed: FeedSpec) -> Target:
    if feed.source.database is None:
        raise RowSourceError(
            "rows are copied from the source's database, and the feed does not name it. Add source.database to the "
            "feed (headgate feed update)"
        )
    if feed.source.change_log is not None:
        raise RowSourceError("rows of a change log have no table at a source database")
    return source_target(feed.source.database)


def _columns_of_sink(feed: FeedSpec, table: str) -> Mapping[str, str]:
    """Column → bare type. The key must be the one that rows are found by at the sink; the writer sees to that."""
    with open_row_source(target_of(feed.sink)) as sink:
        return sink.columns(table)


def _common(table: str, source: Mapping[str, str], sink: Mapping[str, str], shape: ColumnOptions) -> dict[str, str]:
    """Columns that go to the sink and that it has, with the source's types.

    Raises RowSourceError for a type that has other texts.
    """
    common = {column: kind for column, kind in source.items() if shape.goes(column) and shape.target(column) in sink}
    for column, kind in common.items():
        other = sink[shape.target(column)]
        if column in shape.mask:
            continue
        if kind != other and not any({kind, other} <= alike for alike in ALIKE):
            raise RowSourceError(
                f"column {column} of {table} is of type {kind} at the source and {other} at the sink. Rows can be "
                "copied only between columns of one type"
            )
    return common


# --- in tasks ---------------------------------------------------------------------------------------------------------


def _read(plan: bytes, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, or the error that came instead."""
    forget_archives()
    for _ in numbers:
        pass
    work = msgspec.msgpack.decode(plan, type=_Work)
    try:
        lines = _lines_of_source(work)
    except (RowSourceError, DatabaseError, SourceError) as error:
        yield failed_batch(Failure(f"{work.claim.table}: {error}"))
    else:
        yield lines_batch(lines)


def _lines_of_source(work: _Work) -> list[bytes]:
    """The rows, and behind them how many they are: what is missing must not be taken for rows that do not exist."""
    width, wanted = len(work.key), set(work.keys)
    lines: list[bytes] = []
    size = 0
    with open_row_source(_source(feed_of(work.spec))) as source:
        for row in source.rows(work.table, work.columns, work.source_key, work.keys):
            key = _spelled(work.forms, [str(part) for part in row[:width]])
            if key not in wanted:  # to leave it out would be to delete, perhaps, what is the same row at the sink
                raise RowSourceError(
                    "the source finds a row by another spelling of its key. Write it as the source does"
                )
            lines.append(msgspec.msgpack.encode((key, row[width:])))
            size += len(lines[-1])
            if size > BYTES_MAX:
                raise RowSourceError(f"the rows are larger than {BYTES_MAX >> 20} MiB. Copy fewer at a time")
    return [*lines, msgspec.msgpack.encode(len(lines))]


def _spelled(forms: Sequence[KeyForm], key: Sequence[str]) -> tuple[str, ...]:
    """A key in the one spelling of its values. Raises RowSourceError."""
    return tuple(same_form(form, value) for form, value in zip(forms, key, strict=True))


def _write(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write what the reader gives, in one transaction; yields one _Answer."""
    forget_archives()
    work = msgspec.msgpack.decode(plan, type=_Work)
    try:
        answer = _written(work, list(itertools.chain.from_iterable(lines_of(batches))))
    except ReadFailedError as error:
        answer = _Answer(failure=error.failure)
    except SinkError as error:
        answer = _Answer(failure=Failure(str(error), error.code))
    yield answer_batch(answer)


def _written(work: _Work, lines: list[bytes]) -> _Answer:
    if not lines or msgspec.msgpack.decode(lines[-1]) != len(lines) - 1:
        return _Answer(failure=Failure(f"{work.claim.table}: not all rows came from the source"))
    found: dict[tuple[str, ...], Row] = {}
    for line in lines[:-1]:
        # Without types: MessagePack itself tells texts from bytes, which msgspec does not among the types of one value.
        key, values = msgspec.msgpack.decode(line)
        found[tuple(key)] = dict(zip(work.columns, values, strict=True))
    if len(found) < len(lines) - 1:
        return _Answer(failure=Failure(f"{work.claim.table}: the source has several rows under one of the keys"))
    absent: list[Row] = [dict(zip(work.key, key, strict=True)) for key in work.keys if key not in found]
    feed = feed_of(work.spec).for_table(work.claim.topic, work.among)
    semantics: dict[str, str] | None = work.semantics
    upserts = list(found.values())
    if feed.columns.shapes:
        try:
            shaping = Shaping(feed.columns, read_salts(feed.columns))
            upserts, semantics = [shaping.row(row, semantics) for row in upserts], shaping.meaning(semantics)
        except (SaltUnavailableError, ChangeError) as error:
            return _Answer(failure=Failure(f"{work.claim.table}: {error}"))
    copied = CopiedRows(
        claim=work.claim,
        positions=work.positions,
        key=work.key,
        upserts=upserts,
        deletes=absent if work.delete else [],
        semantics=semantics,
    )
    with closing(open_sink(feed.sink)) as sink, closing(sink.writer()) as writer:
        if not isinstance(writer, RowCopyingWriter):
            return _Answer(failure=Failure(f"{work.claim.table}: rows cannot be copied to this sink"))
        applied = writer.copy(copied)
    return _Answer(upserts=applied.upserts, deletes=applied.deletes)
