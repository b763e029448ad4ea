"""Rows copied from a feed's source to its sink by a streaming query while nothing else writes the table.

The span is claimed, and on no lane: its positions do not move. Spark's tasks read and write (row_transfer.py), each
transaction checks epoch and positions as a batch does (sinks/row_copying.py). Everything the source has changed since
those positions follows in the log and is applied over the copied rows (docs/adr/0110). A whole table is copied by
ranges of its key, some at a time, and the sink keeps how far it is (docs/adr/0114).
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headgate.config.feed import FeedSpec
from headgate.databases.errors import DatabaseError
from headgate.databases.key_ranges import Chunk
from headgate.databases.kinds import IGNORING_CASE, KINDS
from headgate.databases.row_source import KeyForm, LineReader, RowSource, RowSourceError
from headgate.databases.row_sources import connector_of, open_row_source
from headgate.formats.change import CONNECTOR
from headgate.records.control import Positions, SpanPlan
from headgate.records.row_copies import RowCopy, read_row_copy
from headgate.records.slices import slice_of
from headgate.replication.arrow_map import map_in_arrow
from headgate.replication.causes import cause_of
from headgate.replication.feed_parts import feed_of
from headgate.replication.number_stream import POLL_SECONDS, run_numbered
from headgate.replication.row_lines import ANSWER_SCHEMA, ROWS_SCHEMA, Failure, why_ended
from headgate.replication.row_transfer import (
    BETWEEN_ROWS,
    SOURCE_FAILED,
    Transfer,
    TransferAnswer,
    TransferRange,
    read_rows,
    source_of,
    spelled,
    write_rows,
)
from headgate.replication.spark import SparkRuntime, SparkStartError
from headgate.sinks.contract import Claim, SinkError, SinkFencedError, SinkMovedError, SinkUnavailableError
from headgate.sinks.row_copying import CopyMark
from headgate.sinks.target_rows import open_target_rows
from headgate.sources.offsets import SourceError
from headgate.tables.copied_to_lake import check_appended, takes_of
from headgate.tables.paired_tables import PairedTable, SinkTable, pair_table, table_to_copy

__all__ = ["CopyReached", "Order", "RowCopier", "RowCopyError", "declared_texts"]

_log = logging.getLogger(__name__)

RANGE_ROWS: Final = 10_000
"""Rows of the source in the first range of a copy, and at least in any that is not limited."""

RANGE_ROWS_MAX: Final = 500_000
"""To find where a range ends, the source walks its index over so many rows, some tenth of a second. One that deletes
keeps the range's keys in memory."""

RANGE_SECONDS: Final = 8.0
"""A range has as many rows as take so long at the speed of the last one. Each is a micro-batch with sessions of its
own, which costs half a second, and up to two on a busy machine. A range whose rows turn out to be larger ends earlier
(READ_SECONDS_MAX, row_transfer.py)."""

GROWTH_MAX: Final = 4
"""How many times the rows of the last range the next one may have: the speed of a short range is not that of a long
one."""

TURN_SECONDS: Final = 30.0
"""How long ranges are copied before the table catches up with the log, which waits until then. Ranges take some
seconds, and the owner looks for another agent after START_SECONDS_MAX (coordinator/core/spans/waiting.py)."""

FIRST_TURN_SECONDS: Final = 1.0
"""The same before a span replicates at all. An agent opens up to 64 spans at once and copies a few at a time, and the
owner takes those that are not opened in time for hung."""

REACHED_SECONDS: Final = 2.0
"""How often a turn reports how far it is: each report is a record on the log."""

_KINDS: Final[dict[str, type[SinkError]]] = {
    kind.code: kind for kind in (SinkFencedError, SinkMovedError, SinkUnavailableError)
}
"""What is not the copy's fault: the span's own life deals with it."""


BYTES: Final = "bytea"
"""Is read as bytes, not as its own text."""

BITS_AS_TEXT: Final = {"postgresql": frozenset({"bit", "varbit"}), "mysql": frozenset[str]()}
"""Connector → types whose values are read as texts of 0 and 1."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` is what a request names (records/row_copies.py), ``positions`` the positions of the claimed span.

    ``key``: the columns by which the sink finds rows. ``among``: what the feed calls the table among several of its
    topic; None where the topic has one. ``filled``: see paired_tables.SinkTable.
    """

    spec: str
    plan: SpanPlan
    claim: Claim
    positions: Positions
    key: tuple[str, ...]
    among: str | None
    rows: str
    filled: frozenset[str] = frozenset()


class CopyReached(msgspec.Struct, frozen=True):
    """How far a whole table is copied. ``rows_about``: how many rows the source believes it to have, if it does."""

    mark: CopyMark
    rows_about: int | None


class RowCopyError(Exception):
    """The rows could not be copied. The message contains why, and what to do. No row named by a key was written.

    ``may_pass``: the same copy may succeed later.
    """

    code = "copy_failed"

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass


class RowCopier:
    """Copies rows for one span at a time per call, on the agent's Spark."""

    def __init__(self, runtime: SparkRuntime) -> None:
        self._runtime = runtime
        self._range_rows: dict[tuple[str, str], int] = {}
        """Feed, span → rows of the range that comes next, of copies that are between two turns."""

    def copy(self, order: Order, said: Callable[[str], str | None], is_over: Callable[[], bool]) -> None:
        """Copy the rows whose keys the order names.

        ``said``: topic → the source table that its events name. ``is_over``: polled to know whether to give up. Raises
        RowCopyError, and the SinkErrors that concern the claim or the sink itself.
        """
        answers: list[TransferAnswer] = []

        def serve(numbers: DataFrame, work: Transfer) -> bool:
            answers.append(_transferred(numbers, work))
            return False

        with _ready(order, said, is_over) as (work, _source):
            self._run(work, is_over, functools.partial(serve, work=work))
        if not answers:
            raise RowCopyError(f"{order.plan.table}: the agent was stopping")
        (answer,) = answers
        _log.info("%s: %d rows copied, %d deleted", order.plan.table, answer.upserts, answer.deletes)

    def copy_ranges(
        self,
        order: Order,
        mark: CopyMark,
        *,
        said: Callable[[str], str | None],
        is_over: Callable[[], bool],
        reached: Callable[[CopyReached], None],
        is_first: bool = False,
    ) -> CopyReached:
        """Copy ranges of the whole table for TURN_SECONDS, or to its end. Returns how far the request is then.

        ``mark`` is how far it was, ``is_first`` whether the span does not replicate yet. ``reached`` is called now and
        then with how far it is. Raises as ``copy`` does; what was copied until then is marked at the sink.
        """
        with _ready(order, said, is_over, may_pass=mark.upto is not None) as (work, source):
            turn = _Turn(work, source, mark, _limit_of(order), is_over, reached=reached, is_first=is_first)
            span = (order.claim.identity.feed, order.plan.span)
            if turn.may_grow and not is_first:
                turn.range_rows = self._range_rows.get(span, turn.range_rows)
            try:
                self._run(work, is_over, turn.serve)
            finally:
                self._range_rows.pop(span, None)
                if turn.may_grow and not turn.mark.is_done:
                    self._range_rows[span] = turn.range_rows
        _log.info("%s: %d rows copied so far, %d deleted", order.plan.table, turn.mark.rows, turn.mark.deleted)
        return CopyReached(turn.mark, turn.rows_about)

    def _run(self, work: Transfer, is_over: Callable[[], bool], serve: Callable[[DataFrame], bool]) -> None:
        table = work.claim.table
        try:
            session, scratch = self._runtime.start(), Path(self._runtime.settings.scratch)
            name = f"rows-{work.claim.identity.feed}-{table}"
            ended = run_numbered(session, name, 1, scratch=scratch, serve=serve, is_over=is_over)
        except SparkStartError as error:
            raise RowCopyError(f"{table}: {error}", may_pass=True) from error
        except (PySparkException, Py4JError, OSError) as error:
            raise RowCopyError(f"{table}: {why_ended(error)}", may_pass=True) from error
        if ended is not None:
            raise RowCopyError(f"{table}: the copying query has ended: {cause_of(ended)}", may_pass=True)


class _Turn:
    """Ranges of a whole table, one in each micro-batch, until the table is copied or its turn is over."""

    def __init__(
        self,
        work: Transfer,
        source: RowSource,
        mark: CopyMark,
        rows_per_second: int | None,
        is_over: Callable[[], bool],
        *,
        reached: Callable[[CopyReached], None],
        is_first: bool = False,
    ) -> None:
        self.mark = mark
        self._seconds = FIRST_TURN_SECONDS if is_first else TURN_SECONDS
        self._reached, self._reached_at = reached, float("-inf")
        self._work, self._source, self._is_over = work, source, is_over
        self._rows_per_second = rows_per_second
        self.may_grow = rows_per_second is None
        self.range_rows = min(RANGE_ROWS, rows_per_second or RANGE_ROWS)
        self._begun = time.monotonic()
        self.rows_about = source.rows_about(work.table)
        if mark.rows:
            self._report(self._begun)

    def serve(self, numbers: DataFrame) -> bool:
        """Copy the next range; whether there is another one in this turn. Raises RowCopyError, SinkError."""
        begun = time.monotonic()
        rows_before = self.mark.rows
        chunk = self._next()
        work = replace(self._work, rows=TransferRange(chunk, self.mark))
        answer = _transferred(numbers, work, may_pass=self._is_begun)
        if answer.mark is None:
            raise RuntimeError(f"a range was written without its mark: {answer}")
        self.mark = answer.mark
        if self.mark.is_done:
            return False
        self._report(begun)
        if self.may_grow:
            is_whole = chunk.upto is None or self.mark.upto == chunk.upto
            rows = self.range_rows if is_whole else self.mark.rows - rows_before
            self.range_rows = next_range_rows(rows, time.monotonic() - begun)
        self._throttle(begun, self.mark.rows - rows_before)
        return time.monotonic() - self._begun < self._seconds

    def _report(self, now: float) -> None:
        if now - self._reached_at >= REACHED_SECONDS:
            self._reached_at = now
            self._reached(CopyReached(self.mark, self.rows_about))

    def _next(self) -> Chunk:
        """The next range; the first one also decides where the copy ends.

        A row behind the last key of now joins the table later, so the log has all of it (docs/adr/0114).
        """
        table, above = self._work.table, self.mark.upto
        try:
            if above is None and self.mark.end is None:
                self.mark = replace(self.mark, end=self._source.last_key(table, self._work.source_key))
            end = self.mark.end
            upto = self._source.next_bound(table, self._work.source_key, above, self.range_rows, end)
            return Chunk(above, end if upto is None else upto)
        except DatabaseError as error:
            raise RowCopyError(f"{self._work.claim.table}: {error}", may_pass=self._is_begun) from error

    @property
    def _is_begun(self) -> bool:
        """Whether something was copied: what is wrong at the source now was not from the beginning."""
        return self.mark.upto is not None

    def _throttle(self, begun: float, rows: int) -> None:
        if self._rows_per_second is None:
            return
        until = begun + rows / self._rows_per_second
        while (left := until - time.monotonic()) > 0 and not self._is_over():
            time.sleep(min(left, POLL_SECONDS))


def next_range_rows(rows: int, seconds: float) -> int:
    """The size of the range after one of ``rows`` that took ``seconds``."""
    wanted = int(min(rows * RANGE_SECONDS / max(seconds, POLL_SECONDS), GROWTH_MAX * rows))
    return min(max(wanted, RANGE_ROWS), RANGE_ROWS_MAX)


def _transferred(numbers: DataFrame, work: Transfer, *, may_pass: bool = False) -> TransferAnswer:
    """Read and write in two tasks' operators. Raises RowCopyError, SinkError."""
    plan = msgspec.msgpack.encode(work)
    read = map_in_arrow(numbers.coalesce(1), functools.partial(read_rows, plan), ROWS_SCHEMA)
    (answer,) = map_in_arrow(read, functools.partial(write_rows, plan), ANSWER_SCHEMA).collect()
    found = msgspec.json.decode(bytes(answer[0]), type=TransferAnswer)
    if found.failure is not None:
        raise _error_of(found.failure, may_pass=may_pass)
    return found


def _error_of(failure: Failure, *, may_pass: bool) -> Exception:
    kind = _KINDS.get(failure.kind)
    if kind is not None:
        return kind(failure.text)
    may_pass = failure.kind == BETWEEN_ROWS or (failure.kind == SOURCE_FAILED and may_pass)
    return RowCopyError(failure.text, may_pass=may_pass)


def _limit_of(order: Order) -> int | None:
    rows = read_row_copy(order.rows)
    return rows.rows_per_second if isinstance(rows, RowCopy) else None


@contextmanager
def _ready(
    order: Order, said: Callable[[str], str | None], is_over: Callable[[], bool], *, may_pass: bool = False
) -> Iterator[tuple[Transfer, RowSource]]:
    """The work, once the source shows all that the positions cover. Raises RowCopyError."""
    table = order.plan.table
    try:
        feed = feed_of(order.spec)
        with open_row_source(source_of(feed)) as source:
            work = _planned(order, feed, source, said)
            source.await_commits(is_over)
            yield work, source
    except (RowSourceError, DatabaseError, SourceError) as error:
        raise RowCopyError(f"{table}: {error}", may_pass=may_pass) from error


def declared_texts(feed: FeedSpec, source: RowSource, table: str, paired: PairedTable, rows: RowCopy) -> dict[str, str]:
    """The columns with their types, the key's first, if the sink can read the source's own texts; else none."""
    is_as_it_is = not (feed.shapes or rows.where or paired.computed or slice_of(table)) and rows.keys is None
    if not isinstance(source, LineReader) or feed.sink.type != source.sink_type or not is_as_it_is:
        return {}
    if KeyForm.TEXT in paired.forms or BYTES in paired.columns.values():
        return {}
    if not set(paired.source_key) <= set(paired.columns):
        return {}
    declared = source.declared(table)
    if not set(paired.columns) <= set(declared):
        return {}
    return {name: declared[name] for name in (*paired.source_key, *paired.columns)}


def _planned(order: Order, feed: FeedSpec, source: RowSource, said: Callable[[str], str | None]) -> Transfer:
    """Raises RowSourceError, DatabaseError, SourceError."""
    plan, rows = order.plan, read_row_copy(order.rows)
    if not isinstance(rows, RowCopy):
        raise RowSourceError(rows)
    check_appended(feed, order.positions)
    table, connector = table_to_copy(feed, plan, source, said), connector_of(source_of(feed))
    shape = feed.for_table(plan.topic, order.among).columns
    is_lake = feed.sink.type not in KINDS
    key = order.key or (tuple(map(shape.target, source.primary_key(table))) if is_lake else ())
    with open_target_rows(feed.sink) as sink:
        equality, takes = functools.partial(sink.equality, plan.table), takes_of(feed)
        folds = feed.sink.type in IGNORING_CASE
        target = SinkTable(plan.table, key, sink.columns(plan.table), equality, takes, folds, order.filled)
        paired = pair_table(source, table, target, shape, rows)
    for doubt in paired.doubts:
        _log.warning("table %s: %s", plan.table, doubt)
    bits = [column for column, kind in paired.columns.items() if kind in BITS_AS_TEXT[connector]]
    kinds = paired.columns if is_lake else dict.fromkeys(bits, "string")
    declared = declared_texts(feed.for_table(plan.topic, order.among), source, table, paired, rows)
    return Transfer(
        spec=order.spec,
        table=table,
        among=order.among,
        claim=order.claim,
        positions=dict(order.positions),
        columns=tuple(declared or paired.columns),
        declared=tuple(declared.values()),
        computed=paired.computed,
        key=paired.key,
        source_key=paired.source_key,
        forms=paired.forms,
        rows=() if rows.keys is None else tuple(sorted({spelled(paired.forms, one) for one in rows.keys})),
        delete=rows.delete,
        where=rows.where,
        semantics={CONNECTOR: connector, **kinds},
        is_one_commit=is_lake,
    )
