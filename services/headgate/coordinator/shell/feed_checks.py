"""Checks of a feed's tables at its source and its sink, before the feed is created or updated, or tables join it.

Every check is made before a feed is accepted, because afterwards no client waits for the result: sources exist, tables
exist with keys and rights, no two topics go to one table.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.coordinator.shell.circles import check_circle
from headgate.coordinator.shell.joining_tables import NoRecordsError
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table
from headgate.records.slices import slice_of, whole_table
from headgate.sinks.contract import (
    FeedIdentity,
    OfTopics,
    RegistersSchemas,
    SelfAware,
    SinkRefusedError,
    TableShape,
)
from headgate.sinks.registry import open_sink, same_sink
from headgate.sinks.triggers import trigger_warnings
from headgate.sources.compaction import compaction_warnings
from headgate.sources.connector_warnings import SinkTable, connector_warnings
from headgate.sources.described import check_described, described_rows
from headgate.sources.event_schemas import event_schemas
from headgate.sources.preview import Seen, check_formats, preview
from headgate.sources.said import tables_said
from headgate.sources.shaped_columns import shaped_seen
from headgate.sources.table_options import by_session_options
from headgate.tables.column_options import check_columns
from headgate.tables.joining_slices import check_joining
from headgate.tables.missing import (
    MissingTables,
    check_alterable,
    check_created,
    check_partitions,
    check_types,
    plan_missing,
)
from headgate.tables.named_once import check_named_once
from headgate.tables.plan import altered_warnings
from headgate.tables.snapshots import check_snapshots
from headgate.tables.source_checks import check_source_tables

COMPARED_MAX: Final = 256
"""Tables whose schemas the registry of a sink is asked about: two requests each, of some milliseconds."""


class Checked(msgspec.Struct, frozen=True):
    """``spec`` has the sink's normalized address, ``sink_id`` is the sink's own identity."""

    spec: FeedSpec
    sink_id: str | None
    warnings: tuple[str, ...]
    missing: MissingTables
    shapes: dict[str, TableShape]


class FeedChecks:
    """The checks of one coordinator; may be called from several threads. ``cluster_id`` is the log's identity."""

    def __init__(self, connection: KafkaConnection, cluster_id: str) -> None:
        self._connection = connection
        self._cluster_id = cluster_id

    def check(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], known: Collection[str], before: FeedSpec | None = None
    ) -> Checked:
        """Check the feed's tables before it is created or updated.

        ``known``: those that it has already. ``before``: what the feed was so far, if it is updated.

        Raises FeedSpecError, SourceError, SinkError, SchemasUnavailableError.
        """
        seen = self._preview(spec, spans)
        self._check_columns(spec, spans, seen, before, are_all=True)
        return self._check_seen(spec, spans, seen, known)

    def _check_columns(
        self,
        spec: FeedSpec,
        spans: tuple[SpanPlan, ...],
        seen: Mapping[str, Seen],
        before: FeedSpec | None = None,
        *,
        are_all: bool,
    ) -> None:
        said, described = tables_said(self._connection, spec, spans), event_schemas(self._connection, spec, spans)
        check_columns(spec, spans, said, described, seen, are_all=are_all, before=before)

    def check_joining(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        """The warnings of ``check``. Raises NoRecordsError, and what ``check`` does."""
        seen = self._preview(spec, spans)
        if empty := {plan.topic for plan in spans} - seen.keys():
            raise NoRecordsError(empty)
        try:
            self._check_columns(spec, spans, seen, are_all=False)
        except FeedSpecError as error:  # of these tables only: they join, and their agent reports it
            raise SinkRefusedError(str(error)) from error
        checked = self._check_seen(spec, spans, seen, ())
        return (*checked.warnings, *self.check_snapshots(checked, spans))

    def check_snapshots(self, checked: Checked, new: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        """Warnings about the copies of tables that join. Raises SourceError."""
        said = tables_said(self._connection, checked.spec, new)
        return check_snapshots(checked.spec, new, checked.shapes, checked.missing, said)

    def _preview(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> dict[str, Seen]:
        return preview(self._connection, spec, {plan.topic: len(plan.start) for plan in spans})

    def _check_seen(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: dict[str, Seen], known: Collection[str]
    ) -> Checked:
        unread = check_formats(spec, seen)
        check_described(spec, spans, seen)
        checked = self._check_sink(spec, spans, seen, known)
        compacted = compaction_warnings(self._connection, spec, (plan.topic for plan in spans))
        return replace(checked, warnings=(*unread, *compacted, *checked.warnings))

    def _check_sink(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: Mapping[str, Seen], known: Collection[str]
    ) -> Checked:
        """Check the sink, and return its findings with warnings on its tables.

        Raises SinkError, also where a running feed holds a table (under any address), and where the sink is the source;
        SourceError.
        """
        spec = spec.model_copy(update={"sink": same_sink(spec.sink)})
        check_named_once(spec, spans, known)
        missing = self._missing(spec, spans)
        present = tuple(plan for plan in spans if plan.table not in missing.lacking)
        sink_id, shapes, fired = self._shapes(spec, present, seen)
        planned = {table.name: table for table in missing.tables.created}  # by whole tables
        there = [
            SinkTable(plan.topic, plan.table, _of_source(plan, shape.columns), shape.defaults)
            for plan in spans
            if (shape := shapes.get(plan.table) or planned.get(whole_table(plan.table))) is not None
        ]
        warnings = (
            *fired,
            *connector_warnings(there, shaped_seen(spec, spans, seen)),
            *altered_warnings(missing.tables.created),
        )
        said = tables_said(self._connection, spec, spans)
        check_source_tables(spec, spans, said, seen, shapes, known=known)
        joining = [plan for plan in spans if plan.table in shapes and normal_table(plan.table) not in known]
        doubts = check_joining(spec, joining, said, event_schemas(self._connection, spec, spans))
        return Checked(spec, sink_id, (*warnings, *doubts), missing, shapes)

    def _shapes(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: Mapping[str, Seen]
    ) -> tuple[str | None, dict[str, TableShape], list[str]]:
        """The sink's identity, its tables, and warnings about triggers on their rows, and schemas. Raises SinkError."""
        # No row at the sink is this feed's: a new one has none, one that is updated has sealed them all.
        nobody = FeedIdentity(self._cluster_id, "", spec.feed)
        sink_id: str | None = None
        shapes: dict[str, TableShape] = {}
        fired: list[str] = []
        for number, (own, plans) in enumerate(by_session_options(spec, spans)):
            with closing(open_sink(own.sink)) as sink:
                if number == 0 and isinstance(sink, SelfAware):
                    sink_id = sink.own_id()
                    check_circle(self._connection, spec, spans, sink)
                tables = [plan.table for plan in plans]
                if isinstance(sink, OfTopics):
                    sink.check_sources(tables, nobody, partial(_reads, spec, spans))
                found = sink.check(tables, nobody)
                if isinstance(sink, RegistersSchemas):
                    fired += _schema_warnings(own, plans, seen, sink)
            fired += trigger_warnings(own.sink, found.values())
            shapes |= found
        return sink_id, shapes, fired

    def _missing(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> MissingTables:
        """Tables that agents will create. Raises SinkError where one of them cannot be created, SourceError."""
        check_types(spec, spans)
        said, described = tables_said(self._connection, spec, spans), event_schemas(self._connection, spec, spans)
        missing = plan_missing(spec, spans, said, described)
        check_created(missing)
        check_alterable(spec, spans)
        check_partitions(spec, spans)
        return missing


def _schema_warnings(
    spec: FeedSpec, spans: Iterable[SpanPlan], seen: Mapping[str, Seen], sink: RegistersSchemas
) -> Iterator[str]:
    for table, meaning, key in islice(described_rows(spec, spans, seen), COMPARED_MAX):
        for text in sink.schema_warnings(table, meaning, key):
            yield f"warning: table {table}: {text}"


def _reads(spec: FeedSpec, spans: tuple[SpanPlan, ...], topic: str) -> bool:
    """Whether the feed reads a topic, or will once it exists."""
    pattern = spec.source.topic_pattern
    return any(plan.topic == topic for plan in spans) or (pattern is not None and bool(re.fullmatch(pattern, topic)))


def _of_source(plan: SpanPlan, columns: Mapping[str, str]) -> Mapping[str, str]:
    """Without the discriminator's, which no event has."""
    part = slice_of(plan.table)
    return columns if part is None else {name: type_ for name, type_ in columns.items() if name != part.column}
