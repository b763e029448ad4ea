"""Alters a table that refused a change of a span's last batch, under its claim, before the span is read again.

Before that it finds out whether the source has dropped a column and added it again: no change shows that, and the sink
keeps the former values. Only a copy of the whole table makes them right (docs/adr/0115).
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.states import Span
from headgate.config.crash_points import CrashPoint, reach
from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions
from headgate.records.row_copies import is_whole
from headgate.replication.feed_parts import FeedParts
from headgate.replication.source_columns import SOURCE_PAUSE_SECONDS, OpenedColumns, SourceColumns, source_spelling
from headgate.replication.span_table import FAILURES_BORNE
from headgate.sinks.altering import AltersTables
from headgate.sinks.contract import Claim, Sink, SinkError, ValueRefusedError
from headgate.sinks.known_columns import ColumnKeepingSink, ColumnNumbers, KnownColumns, StatementNumbers
from headgate.sources.event_schemas import event_schemas
from headgate.sources.offsets import SourceError, check_retention
from headgate.sources.said import tables_said
from headgate.sources.table_options import spec_of
from headgate.tables.evolution import (
    AtLake,
    StillRefusedError,
    add_columns,
    check_hidden,
    check_replaced,
    check_restored,
    check_retyped,
    fit_columns,
    restore_columns,
    shaped_numbers,
    with_other_values,
)
from headgate.tables.missing import Said
from headgate.tables.proposed_columns import proposed_columns

__all__ = ["AlteredTables", "fed_columns"]

TRIES_UNALTERED: Final = 1
"""A value that was refused is tried once more though there is nothing to alter: another agent may have just done it."""

_log = logging.getLogger(__name__)


class _Copied(msgspec.Struct, frozen=True):
    """A whole table that is being copied for ``request``.

    ``columns``: the source's when the copy began. ``until``: where the log must have been applied before,
    because changes below may have values of a column that was dropped since.
    """

    request: str
    columns: OpenedColumns | None
    until: Positions


class AlteredTables:
    """Alters tables of one agent, and remembers what it must know about those that are being copied."""

    def __init__(self, source: KafkaConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._copied: dict[SpanId, _Copied] = {}
        self.source_columns = SourceColumns(source, clock)
        self.opened: dict[SpanId, OpenedColumns] = {}
        """The source's columns of each table since it was opened, under the sink's names. Purged by ColumnWatch."""
        self._over: dict[SpanId, str] = {}
        """The latest request whose rows are copied, by span, should it be opened again."""
        self._proposes_again: dict[tuple[str, str], float] = {}
        """Of a source and a sink of which one did not answer: when both are asked again for a statement."""

    def alter(self, parts: FeedParts, span: Span, claim: Claim, positions: Positions) -> str:
        """Make the table take what the span's last batch was refused for, if the feed evolves its tables.

        If it does not, return what a user should do about columns that the table lacks. Other partitions of the table
        are written until then, so that is not an error.

        Where changes may be set aside, those that no alteration makes possible are, once the span has failed often
        enough. Raises SinkError, SourceError.
        """
        self.opened.pop(span.id, None)
        if not parts.spec.evolves_tables:
            return self._proposed(parts, span, claim)
        self._alter(parts, span, claim, positions)
        return ""

    def _alter(self, parts: FeedParts, span: Span, claim: Claim, positions: Positions) -> None:
        spec, plan = parts.spec, span.task.plan
        said = tables_said(self._source, spec, [plan])
        kept = _kept(parts.sink, claim)
        lake = _lake(parts.sink, claim, positions)
        shape = spec_of(spec, plan).columns
        found = self.source_columns.at_claim(spec, span.id, plan, said, kept.statements)
        now = None if found is None else OpenedColumns(shaped_numbers(found.numbers, shape), found.statements)
        if now is not None and now.statements is not None:
            _keep_statements(parts.sink, claim, positions, kept, now.statements)
        numbers = None if now is None else now.numbers
        replaced = [] if numbers is None else kept.replaced(numbers)
        retyped = {} if numbers is None else with_other_values(spec, kept.retyped(numbers))
        if numbers is not None and numbers.columns and shape.hides:
            check_hidden(spec, plan, kept, numbers, parts.sink.check([claim.table])[claim.table].columns)
        if self._is_copying(span):
            self._begin_copy(span, claim, positions, now, is_renewed=bool(replaced or retyped))
            # Rows are copied by the source's names of now, which no change may have had yet.
            renamed = {} if numbers is None else _renamed(parts.sink, claim, kept, numbers)
            if renamed:
                lacking = dict.fromkeys(renamed, "")
                _tell(span, add_columns(spec, plan, lacking, said, kept, lake=lake, numbers=_given(now)))
            announce = partial(_restoring, parts.sink, claim, positions, kept)
            _tell(span, restore_columns(spec, plan, said, kept, announce, lake=lake))
            self._add_or_fit(parts, span, claim, positions, said, kept, _given(now))
            return  # the numbers are kept once all rows are copied
        check_restored(spec, plan, _still_restored(parts.sink, claim, positions, kept))
        check_replaced(spec, plan, replaced)
        check_retyped(spec, plan, retyped)
        self._add_or_fit(parts, span, claim, positions, said, kept, _given(now))
        _keep(parts.sink, claim, positions, kept, numbers)
        self._watch(span, kept, now)

    def _is_copying(self, span: Span) -> bool:
        """Whether all rows are still to be copied. What the source alters after that is not in the copy."""
        order = span.task.copy
        return order is not None and is_whole(order.rows) and not self.is_copied(span)

    def is_copied(self, span: Span) -> bool:
        """Whether the rows that the span's order asks for are copied. The order stays with the span for a while."""
        order = span.task.copy
        return order is not None and self._over.get(span.id) == order.request

    def _watch(self, span: Span, kept: KnownColumns, now: OpenedColumns | None) -> None:
        """Also columns that are gone: their names may be given to others."""
        known = None if now is None else kept.with_numbers(now.numbers).numbers
        if now is not None and known is not None:
            self.opened[span.id] = OpenedColumns(known, now.statements)

    def _proposed(self, parts: FeedParts, span: Span, claim: Claim) -> str:
        """The statement that a user should run; empty if the source or the sink cannot be asked for it now."""
        spec, plan = parts.spec, span.task.plan
        places = (source_spelling(spec), _sink_of(spec))
        if not span.lacking or _is_borne(spec, span) or self._clock() < self._proposes_again.get(places, 0.0):
            return ""
        said, described = tables_said(self._source, spec, [plan]), event_schemas(self._source, spec, [plan])
        try:
            return proposed_columns(spec, plan, span.lacking, said, described, _kept(parts.sink, claim))
        except (SourceError, SinkError) as error:
            self._proposes_again[places] = self._clock() + SOURCE_PAUSE_SECONDS
            _log.info("span %s: no statement is proposed for its columns: %s", span.id, error)
            return ""

    def _add_or_fit(  # noqa: PLR0917 - what one attempt knows
        self,
        parts: FeedParts,
        span: Span,
        claim: Claim,
        positions: Positions,
        said: Said,
        kept: KnownColumns,
        numbers: ColumnNumbers | None,
    ) -> None:
        spec, plan = parts.spec, span.task.plan
        lake = _lake(parts.sink, claim, positions)
        is_refused = span.error is not None and span.error[0] == ValueRefusedError.code
        if not (span.lacking or is_refused):
            return
        if _is_borne(spec, span):
            return
        if span.lacking and self._is_renamed(parts, span, claim, positions, said, kept):
            return
        if span.lacking:
            _tell(span, add_columns(spec, plan, span.lacking, said, kept, lake=lake, numbers=numbers))
            return
        fitted = fit_columns(spec, plan, said, lake)
        done = fitted.statements or (fitted.columns if fitted.changes is not None else ())
        _tell(span, done)
        if not done and span.error is not None and worst(span.failures) > TRIES_UNALTERED:
            raise StillRefusedError(". ".join((span.error[1], *fitted.refusals)))

    def _is_renamed(  # noqa: PLR0917 - what one attempt knows
        self, parts: FeedParts, span: Span, claim: Claim, positions: Positions, said: Said, kept: KnownColumns
    ) -> bool:
        """Whether the changes have columns under former names only. The sink then keeps what they are called now.

        The log's end is read before the catalogue: changes below it are older than what the catalogue shows.
        """
        sink, shape = parts.sink, spec_of(parts.spec, span.task.plan).columns
        if kept.numbers is None or not isinstance(sink, ColumnKeepingSink):
            return False
        until = check_retention(self._source, claim.topic, positions)
        found = self.source_columns.at_claim(parts.spec, span.id, span.task.plan, said, kept.statements)
        now = None if found is None else shaped_numbers(found.numbers, shape)
        there = sink.check([claim.table])[claim.table].columns
        former = {
            old: name
            for old, name in ({} if now is None else kept.present_names(now)).items()
            # Under its former name a column was not masked, and a computed one has other values.
            if name in there and old not in there and shape.source(name) not in shape.mask and name not in shape.set
        }
        if not set(span.lacking) <= former.keys():
            return False
        failing = [partition for partition in span.failures if partition in positions]
        if kept.former == former and all(positions[each] < kept.until.get(each, 0) for each in failing):
            return False  # it is kept for these changes, and was of no use
        sink.change_known_columns(claim, positions, lambda known: known.with_former(former, until))
        _tell(span, [f"{old} is {former[old]} now" for old in span.lacking])
        return True

    def _begin_copy(
        self, span: Span, claim: Claim, positions: Positions, columns: OpenedColumns | None, *, is_renewed: bool
    ) -> None:
        request = "" if span.task.copy is None else span.task.copy.request
        known = self._copied.get(span.id)
        if known is None or known.request != request:
            until = check_retention(self._source, claim.topic, positions) if is_renewed else {}
            self._copied[span.id] = _Copied(request, columns, until)

    def why_not_copied(self, span: Span, positions: Positions) -> str | None:
        """What the copy of the whole table waits for, in words; None if it can begin."""
        known = self._copied.get(span.id)
        if known is None or all(positions.get(partition, end) >= end for partition, end in known.until.items()):
            return None
        return "before any row is copied, the log is applied to where it ended when the copy was requested"

    def copied(self, parts: FeedParts, span: Span, claim: Claim, positions: Positions) -> None:
        """All rows of the table are copied: its columns are those that the source had when that began.

        Raises SinkError. The copy is over once this has returned; until then it is called again.
        """
        known = self._copied.get(span.id)
        kept = _kept(parts.sink, claim)
        if known is not None:
            _keep(parts.sink, claim, positions, kept, None if known.columns is None else known.columns.numbers)
            self._watch(span, kept, known.columns)
        _set_restored(parts.sink, claim, positions, kept, ())
        self._copied.pop(span.id, None)
        if span.task.copy is not None:
            self._over[span.id] = span.task.copy.request


def _is_borne(spec: FeedSpec, span: Span) -> bool:
    """Whether changes that are refused are set aside by now."""
    may_set_aside = spec.on_bad_change == "quarantine" or bool(spec.skip)
    return may_set_aside and worst(span.failures) >= FAILURES_BORNE


def _given(now: OpenedColumns | None) -> ColumnNumbers | None:
    """The columns, if no catalogue numbers them: it is read again for an alteration, with what the changes have."""
    return None if now is None or now.statements is None else now.numbers


def _lake(sink: Sink, claim: Claim, positions: Positions) -> AtLake | None:
    """The sink, if it takes no statements."""
    return AtLake(sink, claim, positions) if isinstance(sink, AltersTables) else None


def _renamed(sink: Sink, claim: Claim, kept: KnownColumns, numbers: ColumnNumbers) -> set[str]:
    """Columns of the source that the sink has under former names only."""
    there = sink.check([claim.table])[claim.table].columns
    return {name for old, name in kept.present_names(numbers).items() if old in there and name not in there}


def _sink_of(spec: FeedSpec) -> str:
    return spec.sink.dsn or spec.sink.connection or ""


def _kept(sink: Sink, claim: Claim) -> KnownColumns:
    return sink.known_columns(claim) if isinstance(sink, ColumnKeepingSink) else KnownColumns()


def fed_columns(sink: Sink, claim: Claim) -> frozenset[str]:
    """Columns of the sink that the source is known to have had. Raises SinkError."""
    numbers = _kept(sink, claim).numbers
    return frozenset() if numbers is None else frozenset(numbers.columns)


def _keep(sink: Sink, claim: Claim, positions: Positions, kept: KnownColumns, numbers: ColumnNumbers | None) -> None:
    if numbers is not None and isinstance(sink, ColumnKeepingSink) and kept.with_numbers(numbers) != kept:
        sink.change_known_columns(claim, positions, lambda known: known.with_numbers(numbers))


def _keep_statements(
    sink: Sink, claim: Claim, positions: Positions, kept: KnownColumns, statements: StatementNumbers
) -> None:
    """At once, whatever becomes of the claim: they may be gone from their topic when the numbers are kept."""
    if isinstance(sink, ColumnKeepingSink) and kept.with_statements(statements) != kept:
        sink.change_known_columns(claim, positions, lambda known: known.with_statements(statements))


def _set_restored(sink: Sink, claim: Claim, positions: Positions, kept: KnownColumns, columns: Collection[str]) -> None:
    if set(columns) != set(kept.restored) and isinstance(sink, ColumnKeepingSink):
        sink.change_known_columns(claim, positions, lambda known: known.with_restored(columns))


def _restoring(sink: Sink, claim: Claim, positions: Positions, kept: KnownColumns, columns: Sequence[str]) -> None:
    """Columns are about to be added empty: whatever becomes of the copy, that is known."""
    _set_restored(sink, claim, positions, kept, {*kept.restored, *columns})


def _still_restored(sink: Sink, claim: Claim, positions: Positions, kept: KnownColumns) -> Sequence[str]:
    """Those that the table has. One that was dropped again does not wait for values."""
    if not kept.restored:
        return ()
    there = {name.casefold() for name in sink.check([claim.table])[claim.table].columns}
    waiting = [name for name in kept.restored if name.casefold() in there]
    _set_restored(sink, claim, positions, kept, waiting)
    return waiting


def _tell(span: Span, done: Sequence[str]) -> None:
    reach(CrashPoint.ALTERED)
    if done:
        _log.info("span %s: altered table %s: %s", span.id, span.task.plan.table, "; ".join(done))
