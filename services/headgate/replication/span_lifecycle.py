"""The source and sink calls of a span's machine: open the span, move it without rows, seal it.

All of it runs in a small pool, because a sink may be slow and one table's trouble is not another's. A call works from
the span as it was when it was asked for, changes nothing of it, and gives an answer that the machine decides about.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from msgspec.structs import replace

from headgate.agent.core.executor import CopyOrder, SpanId
from headgate.agent.core.span.inputs import (
    CallFailed,
    CopiedOn,
    Looked,
    Open,
    Opened,
    RetryDue,
    Seal,
    Sealed,
    Settle,
    Settled,
    SpanInput,
    TellFailure,
    TellRestart,
)
from headgate.agent.core.span.states import OVER, Span, Stop, TaskPhase
from headgate.config.crash_points import CrashPoint, reach
from headgate.config.feed import FeedSpecError
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import Log
from headgate.records.control import Positions, TaskState
from headgate.records.row_copies import is_by_ranges
from headgate.replication.altered_tables import AlteredTables, fed_columns
from headgate.replication.change_logs import ChangeLogFollower
from headgate.replication.column_watch import ColumnWatch
from headgate.replication.feed_parts import FeedIncarnation, FeedParts, feed_of, server_of_feed
from headgate.replication.kept_parts import KeptParts
from headgate.replication.new_tables import check_table
from headgate.replication.row_copy import CopyReached, Order, RowCopier, RowCopyError
from headgate.replication.silent_sinks import WAITING_SECONDS, SilentSinks
from headgate.replication.span_table import SpanTable, source_table_of
from headgate.replication.table_copies import TableCopies, mark_at
from headgate.replication.table_upkeep import TableUpkeep
from headgate.replication.topic_watch import TopicWatch
from headgate.runtime.shared_pool import SharedPool
from headgate.sinks.contract import ChangeBatch, Claim, OffsetRange, Sink, SinkError, SinkUnavailableError
from headgate.sources.offsets import SourceError, check_retention
from headgate.sources.said import tables_said
from headgate.sources.topic_ids import check_topic_id, topic_id_of, topic_ids

__all__ = ["SpanLifecycle"]

_log = logging.getLogger(__name__)

SERVER_THREADS: Final = 8
"""Calls at a time to the sinks of one server; more would only queue up there."""

USUAL_THREADS: Final = 32
POOL_THREADS: Final = 64
"""Beyond the usual number every server has one thread more at most, so that claims at healthy sinks never wait for
those that do not answer. Threads that are not needed are not started."""

_SOURCE: Final = "source"
"""Whose share of the threads it is when all topics are checked at once."""

_COLUMNS: Final = "columns"
"""The same when columns are: databases are asked, of which one may be silent, and topics must not wait for it."""

_COPIES: Final = "copies"
"""Whose share of the threads it is when rows are copied: that takes half a minute, and claims must not wait for it."""

_UPKEEP: Final = "upkeep"
"""The same while a table is maintained, which may take minutes."""

WAITS_FOR_SINK: Final = frozenset(
    {
        TaskPhase.OPENING,
        TaskPhase.CLAIMING,
        TaskPhase.WRITING,
        TaskPhase.SETTLING,
        TaskPhase.DRAINING,
        TaskPhase.RECALLED,
        TaskPhase.SEALING,
    }
)
"""Phases in which a span gets on only when its sink answers."""

KEPT_SECONDS: Final = 5.0
"""Spans are opened in crowds, so a sink's session is kept for so long after its last use. At most one per thread."""


class SpanLifecycle:
    """Performs the calls of spans, and reports on them."""

    def __init__(
        self, table: SpanTable, source: KafkaConnection, log: Log | None = None, copier: RowCopier | None = None
    ) -> None:
        """``log``: the control topics, for feeds that read change logs. ``copier``: None where no span is to copy."""
        self._copier = copier
        self._table_copies = TableCopies()
        self._upkeep = TableUpkeep()
        self._altered = AlteredTables(source)
        self._table = table
        self._source = source
        self._pool = SharedPool("headgate-span", threads=POOL_THREADS, usual=USUAL_THREADS, each=SERVER_THREADS)
        self.silent_sinks = SilentSinks()
        self._sinks = KeptParts(KEPT_SECONDS)
        self._looked_for: set[SpanId] = set()
        self._checked_at: dict[str, float] = {}
        self.change_logs = ChangeLogFollower(table, log, self._ask_neighbours)
        self._topics = TopicWatch(table, partial(topic_ids, source), time.monotonic())
        self._columns = ColumnWatch(table, self._altered.opened, self._altered.source_columns.now)
        table.performers[Open] = lambda span, _: self._call(span, self._open, _share_of(span))
        table.performers[Settle] = lambda span, _: self._call(span, self._settle)
        table.performers[Seal] = lambda span, _: self._call(span, self._seal)
        table.performers[TellFailure] = _tell_failure
        table.performers[TellRestart] = _tell_restart

    def close(self) -> None:
        """Take no more work."""
        self.change_logs.close()
        self._pool.shutdown()
        self._sinks.close()

    def turn(self, now: float) -> None:
        """Retry what is due."""
        if self._sinks.are_due(now):
            self._pool.submit(_SOURCE, self._sinks.purge, now)
        if self._topics.is_due(now):
            self._pool.submit(_SOURCE, self._topics.look)
        if self._columns.is_due(now):
            self._pool.submit(_COLUMNS, self._columns.look)
        recovered, due = self.silent_sinks.recovered(), self.silent_sinks.due()
        for span in self._table.all():
            if span.retry_at is None:
                continue
            if span.retry_at <= now or self._is_awaited(span, recovered, due):
                self._table.apply(span.id, RetryDue())

    @staticmethod
    def _is_awaited(span: Span, recovered: set[str], due: set[str]) -> bool:
        """Whether its sink has answered again, or one span must try it, which is taken out of ``due``.

        Back-off would leave the tables of a sink that was silent for moments unwritten for several times as long.
        """
        if not (recovered or due) or span.error is None or span.error[0] != SinkUnavailableError.code:
            return False
        server = server_of_feed(span.task.spec)
        if server in due:
            due.discard(server)
            return True
        return server in recovered

    def why_waiting(self, span: Span, now: float) -> str | None:
        """Why the span is not written, if its sink does not answer, or has not answered what the span waits for."""
        if span.phase in OVER:
            return None
        server = server_of_feed(span.task.spec)
        if (why := self.silent_sinks.why(server)) is not None:
            return why
        has_waited = span.phase in WAITS_FOR_SINK and now - span.since >= WAITING_SECONDS
        return self.silent_sinks.why_waiting(server) if has_waited else None

    def check(self, span: Span, now: float) -> None:
        """Ask the span's sink for its position, so that a server that does not answer shows. One question at a time.

        The batch that waits for the server cannot report that before it ends, which takes 40 s if it was in use.
        """
        server = server_of_feed(span.task.spec)
        if now - self._checked_at.get(server, now - WAITING_SECONDS) < WAITING_SECONDS:
            return
        if not self._table.killed and not self.silent_sinks.is_asked(server):
            self._checked_at[server] = now
            self._pool.submit(server, self._check, span)

    def _check(self, span: Span) -> None:
        try:
            with self._asked(span) as parts:
                parts.sink.positions(self._table.claim_of(span))
        except SinkError as error:
            _log.info("span %s, whose batch takes long: %s", span.id, error)

    def _call(self, span: Span, step: Callable[[Span], SpanInput], holder: str | None = None) -> None:
        if not self._table.killed:
            self._pool.submit(holder or server_of_feed(span.task.spec), self._guarded, span, step)

    def _guarded(self, span: Span, step: Callable[[Span], SpanInput]) -> None:
        answer: SpanInput
        try:
            answer = step(span)
        except SinkUnavailableError as error:
            why = self.silent_sinks.why(server_of_feed(span.task.spec))
            answer = CallFailed(error.code, why or str(error), error.retryable)
        except (SinkError, SourceError) as error:
            answer = CallFailed(error.code, str(error), error.retryable)
        except RowCopyError as error:
            answer = CallFailed(error.code, str(error), retryable=False)
        except FeedSpecError as error:
            answer = CallFailed("feed_spec", str(error), retryable=False)
        except Exception as error:  # noqa: BLE001 (an internal error with one span must not end the thread of all)
            _log.exception("span %s", span.id)
            answer = CallFailed("internal", f"{type(error).__name__}: {error}", retryable=False)
        self._table.apply(span.id, answer, span.life)

    def _open(self, span: Span) -> Opened:
        """Check sink and source; claim if the span is ours to write."""
        claim = self._table.claim_of(span)
        seen = topic_id_of(self._source, claim.topic)
        check_topic_id(claim.topic, span.task.plan.topic_id, seen)
        claim = replace(claim, topic_id=seen)
        with self._asked(span) as parts:
            check_table(self._source, parts, span.task.plan, claim)
            positions = _claimed(parts.sink, claim) if span.primary else parts.sink.positions(claim)
            advice = self._altered.alter(parts, span, claim, positions) if span.primary else ""
        copying = maintained = maintain_at = None
        if span.primary and span.task.copy is not None:
            copying = self._copy_rows(span, span.task.copy, claim, positions)
        if span.primary:
            with self._sinks.lent(FeedIncarnation.of_task(span.task)) as parts:  # a call that may well take minutes
                maintained = self._upkeep.maintain(parts.sink, span, claim) if span.is_maintained else None
                maintain_at = self._upkeep.due_at(parts.sink, span, claim, maintained)
        with self._asked(span) as parts:
            known_table = parts.sink.source_table(claim) if span.primary else None
            ends = check_retention(self._source, claim.topic, positions)
            limits = self.change_logs.opened(
                span, positions, ends, lambda unread: parts.sink.positions(replace(claim, start=unread))
            )
        return Opened(
            claim.epoch,
            span.primary,
            positions,
            backlog=sum(end - positions[partition] for partition, end in ends.items()),
            topic_id=seen,
            known_table=known_table,
            target_ts=feed_of(span.task.spec).source.target_ts,
            commit_interval_seconds=feed_of(span.task.spec).commit_interval_seconds,
            firsts=limits.firsts,
            limits=limits.limits,
            limits_at=limits.limits_at,
            copying=copying,
            maintain_at=maintain_at,
            maintained=maintained,
            advice=advice,
        )

    def _copy_rows(self, span: Span, order: CopyOrder, claim: Claim, positions: Positions) -> str | None:
        """Copy rows. Nothing else writes the table and no lane has it, so its positions do not move until it is opened.

        Returns how far a whole table is copied, in words, if rows of it are left.
        """
        if self._altered.is_copied(span):
            return None
        if self._copier is None:
            raise RowCopyError(f"{claim.table}: this agent does not copy rows")
        plan, spec = span.task.plan, span.task.spec
        said = tables_said(self._source, feed_of(spec), [plan])
        with self._asked(span) as parts:
            shape = parts.sink.check([claim.table])[claim.table]
            filled = shape.filled - fed_columns(parts.sink, claim)
        work = Order(
            spec=spec,
            plan=plan,
            claim=claim,
            positions=positions,
            key=shape.key,
            filled=filled,
            among=source_table_of(span.task),
            rows=order.rows,
        )
        copying = None
        if is_by_ranges(order.rows):
            waits = self._altered.why_not_copied(span, positions)
            if waits is not None:
                return waits
            with self._asked(span) as parts:
                mark = mark_at(parts.sink, claim, order.request)
            copy = partial(
                self._copier.copy_ranges,
                work,
                said=said,
                is_over=partial(self._is_not_copied, span),
                reached=partial(self._copied_on, span),
                is_first=span.served is not TaskState.REPLICATING,
            )
            copying = self._table_copies.turn(span.id, mark, copy)
        else:
            self._copier.copy(work, said, partial(self._is_ending, span))
        if copying is None:
            with self._asked(span) as parts:
                self._altered.copied(parts, span, claim, positions)
        return copying

    def _copied_on(self, span: Span, reached: CopyReached) -> None:
        """A turn has copied more, and continues: report how far it is."""
        self._table.apply(span.id, CopiedOn(self._table_copies.shown(span.id, reached)), span.life)

    def _is_ending(self, span: Span) -> bool:
        """Whether the span is not wanted any more, or was restarted."""
        now = self._table.get(span.id)
        return self._table.killed or now is None or now.life != span.life or now.stop is not Stop.NOT

    def _is_not_copied(self, span: Span) -> bool:
        """Whether the span is ending, or the request to copy its rows was deleted."""
        now = self._table.get(span.id)
        return self._is_ending(span) or now is None or now.task.copy is None

    @contextmanager
    def _asked(self, span: Span) -> Iterator[FeedParts]:
        """The span's sink, to be asked. SinkUnavailableError at once where its server is known to be silent."""
        with (
            self.silent_sinks.asked(server_of_feed(span.task.spec)),
            self._sinks.lent(FeedIncarnation.of_task(span.task)) as parts,
        ):
            yield parts.of_table(span.task.plan.topic, source_table_of(span.task))

    def look(self, span: Span) -> None:
        """Find out how far the present writer of a warm span is. What goes wrong shows when it must be written.

        With the table's lock held. One look at a time: a sink that is slow is not asked again until then.
        """
        if not self._table.killed and span.id not in self._looked_for:
            self._looked_for.add(span.id)
            self._pool.submit(server_of_feed(span.task.spec), self._look, span)

    def _look(self, span: Span) -> None:
        try:
            with self._asked(span) as parts:
                positions = parts.sink.positions(self._table.claim_of(span))
        except SinkError as error:
            _log.info("span %s, warm: %s", span.id, error)
            return
        finally:
            with self._table.changed:
                self._looked_for.discard(span.id)
        self._table.apply(span.id, Looked(span.progress.opening, positions), span.life)

    def _ask_neighbours(self, span: Span, unread: Positions) -> None:
        """Ask in the background for the sink's positions on partitions of other parts of a table."""
        if not self._table.killed:
            self._pool.submit(server_of_feed(span.task.spec), self._heard, span, unread)

    def _heard(self, span: Span, unread: Positions) -> None:
        try:
            with self._asked(span) as parts:
                positions = parts.sink.positions(replace(self._table.claim_of(span), start=unread))
        except SinkError as error:
            _log.info("span %s, its neighbours: %s", span.id, error)
            return
        self.change_logs.heard(span, positions)

    def _settle(self, span: Span) -> Settled:
        """The sink's positions follow what has been read, though there was nothing of it. No batch has it."""
        ranges = {
            partition: OffsetRange(expected=position, next=span.reached(partition))
            for partition, position in sorted(span.awaited.items())
            if span.reached(partition) > position
        }
        with self._asked(span) as parts:
            return Settled(parts.writer().apply(ChangeBatch(self._table.claim_of(span), ranges, [])).positions)

    def _seal(self, span: Span) -> Sealed:
        """Close its epoch."""
        with self._asked(span) as parts:
            return Sealed(parts.sink.seal(self._table.claim_of(span)))


def _share_of(span: Span) -> str | None:
    """Whose share of the threads opening a span takes; None: its sink's."""
    if span.is_maintained:
        return _UPKEEP
    return _COPIES if span.task.copy else None


def _tell_failure(span: Span, told: TellFailure) -> None:
    if told.retry_seconds is None:
        _log.error("span %s: %s (%s)", span.id, told.text, told.code)
    else:
        _log.warning("span %s: %s (%s); again in %.2f s", span.id, told.text, told.code, told.retry_seconds)


def _tell_restart(span: Span, told: TellRestart) -> None:
    _log.info("span %s: %s; it starts again from the sink's position", span.id, told.why)


def _claimed(sink: Sink, claim: Claim) -> Positions:
    reach(CrashPoint.BEFORE_CLAIM)
    positions = sink.claim(claim)
    reach(CrashPoint.AFTER_CLAIM)
    return positions
