"""Whether a source fits into a table of the sink that others are written to already.

The table stays as it is (``sink.tables: evolve`` is refused), so whatever a feed of one source would alter in it by and
by (fitting.py) is refused when the source joins.
"""

from collections.abc import Mapping, Sequence

import msgspec

from headgate.config.feed import FeedSpec
from headgate.databases.kinds import KINDS
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.slices import Slice, slice_of, whole_table
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import target_of
from headgate.sinks.relational.session import as_sink_errors
from headgate.tables.alteration import Known, names_of
from headgate.tables.catalogues import Catalogue, open_catalogue
from headgate.tables.fitting import plan_fitting
from headgate.tables.missing import Said, SchemaOf, chosen_types, source_definitions
from headgate.tables.plan import ChosenTypes
from headgate.tables.sliced import unsliced_definition
from headgate.tables.statement import Definition

__all__ = ["MisfitError", "check_joining", "why_misfit"]


class MisfitError(SinkRefusedError):
    """A source does not fit into the table that others are written to."""


class _Target(msgspec.Struct, frozen=True):
    """A table that the sink has."""

    definition: Definition
    known: Known


def check_joining(spec: FeedSpec, plans: Sequence[SpanPlan], said: Said, schema_of: SchemaOf) -> None:
    """Raise MisfitError for sources of these plans that do not fit into the tables of slices that the sink has.

    A source is defined as for the creation of its table: by a feed that creates none it is not, and nor is one without
    events that describe it. Raises SinkError, SourceError.
    """
    parts = [plan for plan in plans if slice_of(plan.table) is not None]
    if not parts or not spec.creates_tables or spec.sink.type not in KINDS:
        return
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        types = chosen_types(spec, parts, at_sink)
        targets = {name: _target(at_sink, name, types) for name in {whole_table(plan.table) for plan in parts}}
    there = {plan.table: found for plan in parts if (found := targets[whole_table(plan.table)]) is not None}
    places = {table: (found.definition.schema, found.definition.table) for table, found in there.items()}
    sources, _ = source_definitions(spec, [plan for plan in parts if plan.table in there], places, said, schema_of)
    reasons = [
        f"topic {plan.topic} does not fit into table {whole_table(plan.table)}, which others are written to: {why}"
        for plan in parts
        if plan.table in sources and (why := _why(plan.table, sources, there)) is not None
    ]
    if reasons:
        raise MisfitError(
            f"{'; '.join(reasons)}. Alter one of the tables, or choose types (`types`) or leave columns out "
            "(`columns`) in an entry of `tables` for this source"
        )


def _target(at_sink: Catalogue, name: str, types: ChosenTypes) -> _Target | None:
    found = at_sink.definition(name)
    if found is None:
        return None
    chosen = types.get((found.schema, found.table), {})
    return _Target(found, Known(sink=at_sink.sink(), types=chosen, shown=at_sink.shown(name)))


def _why(table: str, sources: Mapping[str, Definition], targets: Mapping[str, _Target]) -> str | None:
    part, target = slice_of(table), targets[table]
    return None if part is None else why_misfit(sources[table], target.definition, part, target.known)


def why_misfit(source: Definition, sink: Definition, part: Slice, known: Known) -> str | None:
    """Why rows of the source would not fit into the sink's table; None if they do. Pure.

    Both have the slice's column. It is the sink's, and checked there (sinks/relational/table.py).
    """
    source, sink = unsliced_definition(source, part), unsliced_definition(sink, part)
    source = _with_key_as(source, sink)
    fitting = plan_fitting(source, sink, known)
    reasons = [] if fitting.refusals else [f"its columns fit after {statement}" for statement in fitting.statements]
    there = names_of(sink)
    if lacking := [column for column in source.form.columns if column.name not in there]:
        columns = shown_names([f"{column.name} ({column.type} at the source)" for column in lacking])
        reasons.append(f"the table does not have its columns {columns}")
    return ". ".join((*(text.removesuffix(".") for text in fitting.refusals), *reasons)) or None


def _with_key_as(source: Definition, sink: Definition) -> Definition:
    """The source with its key's columns in the sink's order, which may be any."""
    mine, theirs = source.form.primary, sink.form.row_key
    if mine is None or theirs is None or set(mine.columns) != set(theirs.columns):
        return source
    return _with_key(source, theirs.columns)


def _with_key(table: Definition, columns: tuple[str, ...]) -> Definition:
    form = table.form
    keys = tuple(msgspec.structs.replace(key, columns=columns) if key is form.primary else key for key in form.keys)
    return msgspec.structs.replace(table, form=msgspec.structs.replace(form, keys=keys))
