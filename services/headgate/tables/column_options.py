"""Whether a feed's ``columns`` and ``where`` fit its tables, as far as that is known before the first row."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import ExpressionError, Kind
from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.config.plugs import SINKS
from headgate.config.table_options import TablePattern
from headgate.databases.catalogue import Product
from headgate.formats.expressions.computed import check_computed, check_held
from headgate.formats.expressions.filters import check_where
from headgate.formats.shaping import SaltUnavailableError, read_salts
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.slices import slice_of
from headgate.sinks.registry import target_of
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.preview import Seen
from headgate.sources.table_names import source_table
from headgate.sources.table_options import pattern_of, spec_of
from headgate.tables.catalogues import open_catalogue
from headgate.tables.computed import kinds_of
from headgate.tables.from_events import definition_from
from headgate.tables.keyed import keyed_definition
from headgate.tables.missing import Said, SchemaOf
from headgate.tables.shaped import unfit_mask
from headgate.tables.sliced import taken
from headgate.tables.statement import Definition
from headgate.tables.untyped import check_values

__all__ = ["check_columns"]

NOTHING_SEEN: Final[Mapping[str, Seen]] = {}

_Known = Mapping[str, Definition | None]
"""Table at the sink → as the source has it, None if that is not known."""


def check_columns(
    spec: FeedSpec,
    plans: Sequence[SpanPlan],
    said: Said,
    schema_of: SchemaOf,
    seen: Mapping[str, Seen] = NOTHING_SEEN,
    *,
    are_all: bool,
    before: FeedSpec | None = None,
) -> None:
    """Raise FeedSpecError for columns that tables lack or cannot be shaped like that, and for a salt that is missing.

    ``seen``: topic → what its newest records show. ``are_all``: whether ``plans`` are all of the feed's tables.
    Otherwise a column may be that of another one. ``before``: the feed so far, whose columns the source may have
    dropped or renamed since: older events have them. Raises SourceError, SinkError.
    """
    by_pattern: defaultdict[str | None, list[SpanPlan]] = defaultdict(list)
    for plan in plans:
        if spec_of(spec, plan).shapes or slice_of(plan.table) is not None:
            by_pattern[pattern_of(spec, plan)].append(plan)
    if not by_pattern:
        return
    with _reading(spec, said, schema_of) as read:
        for pattern, shaped in by_pattern.items():
            own, columns = spec_of(spec, shaped[0]), spec_of(spec, shaped[0]).columns
            option = (
                "columns" if pattern is None or spec.tables[pattern].columns is None else f"tables.{pattern}.columns"
            )
            _check_salts(columns, option)
            known = {plan.table: read(plan) for plan in shaped}
            _check_each(columns, option, known)
            _check_discriminator(columns, f"tables.{pattern}.into", known)
            _check_at_sink(spec, option, _check_set(columns, option, known))
            if own.where is not None:
                is_own = pattern is not None and spec.tables[pattern].where is not None
                _check_where(own.where, f"tables.{pattern}.where" if is_own else "where", known)
            for plan in shaped:
                check_values(spec, own, plan, known[plan.table], seen.get(plan.topic))
            if are_all or (pattern is not None and TablePattern.parse(pattern).is_exact):
                _check_named(columns, option, known, _named_before(before, pattern))


def _check_salts(columns: ColumnOptions, option: str) -> None:
    try:
        read_salts(columns)
    except SaltUnavailableError as error:
        raise FeedSpecError(f"{option}.{error}") from error


def _check_each(columns: ColumnOptions, option: str, known: _Known) -> None:
    for table, definition in known.items():
        if definition is None:
            continue
        key = definition.form.primary
        names = [column.name for column in definition.form.columns]
        why = (
            (None if key is None else columns.hidden_key(key.columns))
            or columns.clash(names)
            or unfit_mask(definition, columns)
        )
        if why is not None:
            raise FeedSpecError(f"{option}: table {table}: {why}")


def _check_discriminator(columns: ColumnOptions, option: str, known: _Known) -> None:
    for table, definition in known.items():
        part = slice_of(table)
        if definition is None or part is None:
            continue
        names = [columns.target(column.name) for column in definition.form.columns if columns.goes(column.name)]
        if part.column in names:
            raise FeedSpecError(f"{option}: table {table}: {taken(part.column)}")


def _check_where(where: str, option: str, known: _Known) -> None:
    for table, definition in known.items():
        if definition is None:
            continue
        try:
            check_where(where, kinds_of(definition))
        except ExpressionError as error:
            raise FeedSpecError(f"{option}: table {table}: {error}") from error


def _check_set(columns: ColumnOptions, option: str, known: _Known) -> dict[str, dict[str, Kind]]:
    """Table → computed column → the type of its values, of tables that are known. Raises FeedSpecError."""
    found: dict[str, dict[str, Kind]] = {}
    for table, definition in known.items():
        if definition is None:
            continue
        kinds = kinds_of(definition)
        taken = next((name for name in columns.guarded if name in kinds), None)
        if taken is not None:
            raise FeedSpecError(f"{option}: table {table}: {columns.taken(taken)}")
        for name, text in columns.set.items():
            try:
                found.setdefault(table, {})[name] = check_computed(text, kinds)
            except ExpressionError as error:
                raise FeedSpecError(f"{option}.set.{name}: table {table}: {error}") from error
    return found


def _check_at_sink(spec: FeedSpec, option: str, computed: Mapping[str, Mapping[str, Kind]]) -> None:
    """Raise FeedSpecError for a column that the sink has and that does not take what is computed. Raises SinkError."""
    if not computed or "tables" not in SINKS[spec.sink.type].options:
        return
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        for table, kinds in computed.items():
            definition = at_sink.definition(table)
            if definition is None:
                continue
            database = "postgresql" if definition.product is Product.POSTGRESQL else "mysql"
            types = {column.name: column.kind for column in definition.form.columns}
            for name, kind in kinds.items():
                try:
                    if name in types:
                        check_held(kind, database, types[name])
                except ExpressionError as error:
                    raise FeedSpecError(f"{option}.set.{name}: table {table}: {error}") from error


def _named_before(before: FeedSpec | None, pattern: str | None) -> frozenset[str]:
    """The columns that the options of these tables named until now."""
    if before is None:
        return frozenset()
    own = None if pattern is None or pattern not in before.tables else before.tables[pattern].columns
    return (before.columns if own is None else own).named


def _check_named(columns: ColumnOptions, option: str, known: _Known, before: frozenset[str]) -> None:
    """Raise FeedSpecError for a column that none of the tables has, if all of them are known.

    ``before``: those that were right when the feed was accepted.
    """
    found: set[str] = set()
    for definition in known.values():
        if definition is None:
            return
        found |= {column.name for column in definition.form.columns}
    unknown = sorted(columns.named - found - before)
    if unknown:
        tables = shown_names(sorted(known))
        raise FeedSpecError(
            f"{option} names {shown_names(unknown)}, which the source's table does not have ({tables}). Its columns "
            f"are {shown_names(sorted(found))}. Correct the name: columns are named as at the source, in the same case"
        )


@contextmanager
def _reading(spec: FeedSpec, said: Said, schema_of: SchemaOf) -> Iterator[Callable[[SpanPlan], Definition | None]]:
    """How a table's columns are read: from the source's catalogue, or from the schemas of events."""
    database = spec.source.database
    if database is None:
        yield lambda plan: _described(spec, plan, schema_of)
        return
    with as_source_errors(), open_catalogue(source_target(database)) as source:

        def read(plan: SpanPlan) -> Definition | None:
            name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
            found = None if name is None else source.definition(name)
            if found is None:
                return _described(spec, plan, schema_of)
            return keyed_definition(found, spec_of(spec, plan).key)

        yield read


def _described(spec: FeedSpec, plan: SpanPlan, schema_of: SchemaOf) -> Definition | None:
    schema = schema_of(plan.topic) if spec.events_tell_types else None
    return None if schema is None else definition_from(schema, ("", ""))
