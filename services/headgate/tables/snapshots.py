"""Tables whose rows are copied when they join a feed: which they are, and whether that is possible (docs/adr/0116)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from headgate.config.column_types import column_of
from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.kinds import IGNORING_CASE, KINDS
from headgate.databases.row_source import RowSource, RowSourceError
from headgate.databases.row_sources import connector_of, open_row_source
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, split_table
from headgate.records.refusals import WARNING
from headgate.records.row_copies import RowCopy, shown_row_copy
from headgate.records.slices import slice_of, whole_table
from headgate.sinks.contract import TableShape
from headgate.sinks.registry import target_of
from headgate.sinks.target_rows import open_target_rows
from headgate.sources.database import SnapshotRefusedError, as_source_errors, source_target
from headgate.sources.table_options import pattern_of, spec_of
from headgate.tables.copied_to_lake import check_appended, takes_of
from headgate.tables.missing import MissingTables, Said
from headgate.tables.paired_tables import SinkTable, pair_table, table_to_copy
from headgate.tables.statement import CreateTable

__all__ = ["check_snapshots", "snapshot_copies"]

_HAS_ROWS: Final = (
    "the target table has rows. Empty it, or choose with snapshot.existing_rows what happens to them: keep, or delete "
    "those that the source does not have"
)

_KINDS: Final = {
    "bit varying": "varbit",
    "boolean": "bool",
    "character": "bpchar",
    "character varying": "varchar",
    "double precision": "float8",
    "real": "float4",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "time with time zone": "timetz",
    "time without time zone": "time",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
}
"""Types of PostgreSQL as a statement names them → as its catalogue does."""


def snapshot_copies(spec: FeedSpec, plans: Sequence[SpanPlan]) -> dict[str, str]:
    """Target table → what to copy (records/row_copies.py), for each of these tables whose rows are copied."""
    found: dict[str, str] = {}
    for plan in plans:
        options = spec_of(spec, plan).snapshot
        if options.is_initial:
            rows = RowCopy(
                keys=None, delete=options.existing_rows == "delete", rows_per_second=options.max_rows_per_second
            )
            found[plan.table] = shown_row_copy(rows)
    return found


def check_snapshots(
    spec: FeedSpec, plans: Sequence[SpanPlan], shapes: Mapping[str, TableShape], missing: MissingTables, said: Said
) -> tuple[str, ...]:
    """Warnings about the copies of these tables. Raises SnapshotRefusedError with every table and its reason.

    ``shapes`` has the tables that the sink has, ``missing`` those that it lacks. Raises SourceError.
    """
    copied = [plan for plan in plans if spec_of(spec, plan).snapshot.is_initial]
    database = spec.source.database
    if not copied or database is None:
        return ()
    target, reasons, tables = source_target(database), [], []
    with _open_source(target) as source:
        source.check_server()
    with as_source_errors():
        for plan in copied:
            try:
                with open_row_source(target) as source:
                    tables.append(_check(spec, plan, source, said, _created(plan, missing) or shapes[plan.table]))
            except RowSourceError as error:
                reasons.append(f"{plan.table}: {error}")
    if reasons:
        raise SnapshotRefusedError(
            f"rows cannot be copied of {len(reasons)} of {len(copied)} tables. {'; '.join(reasons)}. Correct that, or "
            "set snapshot: never for these tables in `tables`"
        )
    with _open_source(target) as source:
        return tuple(f"{WARNING}{why}" for why in source.why_not_captured(tables))


@contextmanager
def _open_source(target: Target) -> Iterator[RowSource]:
    """Raises SnapshotRefusedError where the block raises RowSourceError, and SourceError."""
    with as_source_errors():
        try:
            with open_row_source(target) as source:
                yield source
        except RowSourceError as error:
            raise SnapshotRefusedError(f"snapshot: initial: {error}") from error


def _created(plan: SpanPlan, missing: MissingTables) -> CreateTable | None:
    """The plan for a table that the sink lacks. Its name there may have a schema that the feed leaves out."""
    if plan.table not in missing.lacking:
        return None
    for lake in missing.of_lake:
        if lake.new.name == plan.table:
            return lake.shown
    space, name = split_table(plan.table)
    return next(
        table
        for table in missing.tables.created
        if split_table(table.name) == (table.schema if space is None else space, name)
    )


def _check(spec: FeedSpec, plan: SpanPlan, source: RowSource, said: Said, there: CreateTable | TableShape) -> str:
    """The source's table. Raises RowSourceError where its rows cannot be copied. Raises DatabaseError."""
    own = spec_of(spec, plan)
    check_appended(own, plan.start)
    table = table_to_copy(spec, plan, source, said)
    part = slice_of(plan.table)
    key, takes = tuple(column for column in there.key if part is None or column != part.column), takes_of(own)
    if own.sink.type not in KINDS and not key:
        key = tuple(map(own.columns.target, source.primary_key(table)))
    if isinstance(there, CreateTable):
        sink = SinkTable(plan.table, key, _created_types(own, plan, there, source.logged(table)), _unknown, takes)
        paired = pair_table(source, table, sink, own.columns, RowCopy(keys=None))
    else:
        rows = RowCopy(keys=None, delete=own.snapshot.existing_rows == "delete")
        with open_target_rows(own.sink) as at_sink:
            if own.snapshot.existing_rows == "refuse" and at_sink.has_rows(plan.table):
                raise RowSourceError(_HAS_ROWS)
            equality = partial(at_sink.equality, plan.table)
            folds = own.sink.type in IGNORING_CASE
            sink = SinkTable(plan.table, key, at_sink.columns(plan.table), equality, takes, folds, there.filled)
            paired = pair_table(source, table, sink, own.columns, rows)
    first = source.next_bound(table, paired.source_key, None, 1)
    if first is not None:  # only reading shows whether the user may read, and whether every column can be
        list(source.rows_within(table, tuple(paired.columns), paired.source_key, Chunk(None, first)))
    return table


def _created_types(spec: FeedSpec, plan: SpanPlan, created: CreateTable, source: Mapping[str, str]) -> dict[str, str]:
    """Column → bare type, as the sink's catalogue will name it. Databases of one kind have the source's types."""
    types = {name: _KINDS.get(kind, kind) for name, kind in created.types.items()}
    database = spec.source.database
    if database is None or spec.sink.type not in KINDS:
        return dict(created.types)
    if connector_of(source_target(database)) != connector_of(target_of(spec.sink)):
        return types
    chosen = {
        column for table, column in map(column_of, spec.sink.types) if normal_table(table) == whole_table(plan.table)
    }
    pattern = pattern_of(spec, plan)
    chosen |= set() if pattern is None else spec.tables[pattern].types.keys()
    same = {spec.columns.target(column): kind for column, kind in source.items()}
    return {name: kind if name in chosen else same.get(name, kind) for name, kind in types.items()}


def _unknown(key: Sequence[str]) -> tuple[str | None, ...]:
    """Of a table that does not exist yet: it has no rows that could be deleted."""
    return tuple(None for _ in key)
