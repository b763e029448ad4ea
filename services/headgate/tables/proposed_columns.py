"""The statements for columns that a feed's changes have and its table lacks, where a user alters the table.

They are the statements that Headgate executes where it alters tables itself: from the source's catalogue, or, if the
feed does not name the source database, from the schemas of the events.
"""

from collections.abc import Mapping

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.kinds import KINDS
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.spans import table_of
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.registry import target_of
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.table_names import source_table
from headgate.sources.table_options import spec_of
from headgate.tables.alteration import Alteration, AlterationContext, names_of, plan_alteration
from headgate.tables.catalogues import open_catalogue
from headgate.tables.from_events import definition_from
from headgate.tables.keyed import keyed_definition
from headgate.tables.missing import Said, SchemaOf, chosen_types
from headgate.tables.plan import Sink, needed_first
from headgate.tables.shaped import shaped_definition, with_target_names
from headgate.tables.statement import Definition

__all__ = ["proposed_columns"]


def proposed_columns(  # noqa: PLR0917 - what one attempt knows
    spec: FeedSpec, plan: SpanPlan, lacking: Mapping[str, str], said: Said, schema_of: SchemaOf, kept: KnownColumns
) -> str:
    """What a user should run at the sink; empty if the table has the columns, or nothing describes them.

    ``lacking``: column → how the change's event describes its values. ``kept``: what the sink keeps of the table's
    columns. Raises SinkError, SourceError.
    """
    shape = spec_of(spec, plan).columns
    is_own = any(name in shape.set or shape.source(name) in shape.mask for name in lacking)
    if spec.sink.type not in KINDS or is_own:
        return ""
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        target = at_sink.definition(plan.table)
        if target is None:
            return ""
        place = (target.schema, target.table)
        found = _source(spec, plan, place, said, schema_of)
        if found is None:
            return ""
        definition, missing = found
        known = AlterationContext(
            sink=at_sink.sink(),
            missing=with_target_names(missing, shape),
            types=chosen_types(spec, [plan], at_sink).get(place, {}),
            shown=at_sink.shown(plan.table),
            kept=kept,
            masked=frozenset(map(shape.target, shape.mask)),
        )
    alteration = plan_alteration(shaped_definition(definition, shape), target, lacking, known)
    return _advice(alteration, known.sink, f"`headgate table resync {spec.feed} {table_of(plan.span)}`") + (
        _caution(definition, shape) if alteration.statements else ""
    )


def _advice(alteration: Alteration, sink: Sink, resync: str) -> str:
    if alteration.lost:
        return f"{'; '.join(alteration.lost)}. Add it again, then copy all rows: {resync}"
    if alteration.refusals:
        return "; ".join(alteration.refusals)
    if not alteration.statements:
        return ""
    statements = (*needed_first([alteration], sink), *alteration.statements)
    return f"Run at the sink: {' '.join(f'{statement};' for statement in statements)}"


def _caution(definition: Definition, shape: ColumnOptions) -> str:
    """A column that the feed leaves out looks like a new one once the source has renamed it."""
    gone = [name for name in shape.exclude or () if name not in names_of(definition)]
    if not gone:
        return ""
    return (
        f" But if it is the new name of {shown_names(gone)}, which columns.exclude leaves out and the source's table "
        "does not have, add it to columns.exclude instead"
    )


def _source(
    spec: FeedSpec, plan: SpanPlan, place: tuple[str, str], said: Said, schema_of: SchemaOf
) -> tuple[Definition, Mapping[str, str]] | None:
    """The source's table, and what older rows have in columns that were added; None if nothing describes it.

    ``place``: where the table is at the sink.
    """
    database, key = spec.source.database, spec_of(spec, plan).key
    if database is None:
        schema = schema_of(plan.topic)
        made = None if schema is None else definition_from(schema, place)
        return None if made is None else (keyed_definition(made, key), {})
    with as_source_errors(), open_catalogue(source_target(database)) as source:
        name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
        definition = None if name is None else source.definition(name)
        if name is None or definition is None:
            return None
        return keyed_definition(definition, key), source.missing_values(name)
