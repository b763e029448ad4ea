"""Which of a feed's tables its sink lacks, and the plan for them: read from both databases, and nothing is written."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, Protocol

import msgspec

from headgate.config.column_types import column_of
from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.config.partitioning import partition_fields
from headgate.databases.kinds import KINDS
from headgate.formats.column_schema import EventSchema
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, table_spelling
from headgate.records.slices import slice_of, whole_table
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.creating import CreatesTables
from headgate.sinks.registry import open_sink, target_of
from headgate.sinks.relational.rights import RightsMissingError
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.database import as_source_errors, source_target
from headgate.sources.table_names import named_like, source_table
from headgate.sources.table_options import pattern_of, spec_of
from headgate.tables.catalogues import Catalogue, open_catalogue
from headgate.tables.from_events import definition_from
from headgate.tables.keyed import keyed_definition
from headgate.tables.lake_tables import LakeTable, lake_table
from headgate.tables.plan import ChosenTypes, Sink, TargetTables, shown_refusals, statements_file, target_tables
from headgate.tables.shaped import shaped_definition
from headgate.tables.sliced import sliced_definition, why_other_table, why_taken
from headgate.tables.statement import Definition, Refusal, RefusedTable

__all__ = [
    "MissingTables",
    "Said",
    "SchemaOf",
    "check_alterable",
    "check_created",
    "check_partitions",
    "check_types",
    "chosen_types",
    "no_schema",
    "plan_missing",
    "source_definitions",
]

Said = Callable[[str], str | None]
"""Topic → the source table that its newest events name, None if they name none."""

SchemaOf = Callable[[str], EventSchema | None]
"""Topic → the table as its newest events describe it, None if they do not. Raises SourceError."""


def no_schema(_topic: str) -> EventSchema | None:
    """Of a topic whose events describe nothing."""
    return None


_NO_PLACE: Final = "it is not known in which schema to create it. Name one in sink.table"


class MissingTables(msgspec.Struct, frozen=True, kw_only=True):
    """``lacking``: those of the feed's tables that the sink does not have. ``sink``: what it was when it was read.

    ``grants``: statements that give the sink's user the rights that it lacks, as far as that can be asked. ``of_lake``:
    the tables of a sink that takes no statements; ``sink`` is None then.
    """

    lacking: frozenset[str] = frozenset()
    tables: TargetTables = TargetTables()
    sink: Sink | None = None
    grants: tuple[str, ...] = ()
    of_lake: tuple[LakeTable, ...] = ()


class Places(Protocol):
    """Where tables are at the sink."""

    def place(self, name: str) -> tuple[str, str] | None:
        """(schema or database, table) that ``name`` stands for, or would; None where no schema is known for it."""
        ...


class _Whole:
    """The places of a sink whose tables have any number of parts: the whole name is the table's."""

    def place(self, name: str) -> tuple[str, str]:
        return "", normal_table(name)


def plan_missing(
    spec: FeedSpec, plans: Sequence[SpanPlan], said: Said, schema_of: SchemaOf = no_schema
) -> MissingTables:
    """The plan for those of the feed's tables that the sink lacks. Raises SinkError, SourceError.

    They are defined by the source database, or, if the feed does not name one, by their events.
    """
    if not spec.creates_tables:
        return MissingTables()
    if spec.sink.type not in KINDS:
        return _of_lake(spec, plans, said, schema_of)
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        lacking = [plan for plan in plans if not at_sink.has(plan.table)]
        if not lacking:
            return MissingTables()
        places = {plan.table: at_sink.place(plan.table) for plan in lacking}
        types = chosen_types(spec, lacking, at_sink)
        sink = at_sink.sink()
        defined, refused = source_definitions(spec, lacking, places, said, schema_of)
        _check_options(spec, lacking, places, at_sink)
        found, unlike = _of_several_sources(defined.values(), types)
        refused += unlike
        with_unique = {
            place
            for plan in lacking
            if spec_of(spec, plan).sink.unique_keys == "create" and (place := places[plan.table]) is not None
        }
        tables = target_tables(found, sink, types, unique_keys=with_unique)
        tables = msgspec.structs.replace(tables, refused=(*refused, *tables.refused))
        grants = tuple(at_sink.lacking(tables.created, sink))
    return MissingTables(lacking=frozenset(plan.table for plan in lacking), tables=tables, sink=sink, grants=grants)


def _check_options(
    spec: FeedSpec, lacking: Sequence[SpanPlan], places: Mapping[str, tuple[str, str] | None], at_sink: Catalogue
) -> None:
    """Raise SinkRefusedError where sources of one table choose differently what it is created with.

    Whichever source comes first makes the table, by its own options.
    """
    found: dict[tuple[str, str], tuple[SpanPlan, object]] = {}
    for plan in lacking:
        place = places[plan.table]
        if place is None or slice_of(plan.table) is None:
            continue
        types = chosen_types(spec, [plan], at_sink).get(place, {})
        chosen = (types, spec_of(spec, plan).sink.unique_keys, _is_integer(spec, plan))
        first, options = found.setdefault(place, (plan, chosen))
        if options != chosen:
            raise SinkRefusedError(
                f"{first.table} and {plan.table} are rows of one table, which is created with the types and unique "
                "keys of whichever comes first. Give their entries in `tables` the same types and unique_keys, and "
                "discriminators that are all texts or all numbers, or create the table"
            )


def _of_several_sources(
    defined: Iterable[Definition], types: ChosenTypes
) -> tuple[list[Definition], list[RefusedTable]]:
    """Each table once, as its first source defines it, and the other sources whose rows would not fit into it."""
    found: dict[tuple[str, str], Definition] = {}
    refused: list[RefusedTable] = []
    for each in defined:
        place = each.schema, each.table
        first = found.setdefault(place, each)
        chosen = types.get(place, {}).keys()
        # Both ways: whichever source comes first makes the table.
        why = why_other_table(first, each, chosen) or why_other_table(each, first, chosen)
        if why is not None:
            text = (
                f"one of the sources that are written to this table does not fit into it, as another defines it: {why}"
            )
            advice = (
                "Alter a source's table, choose types (`types`), leave columns out (`columns`), or create the table"
            )
            refused.append(RefusedTable(name=table_spelling(*place), refusals=(Refusal(f"{text}. {advice}"),)))
    return list(found.values()), refused


def _of_lake(spec: FeedSpec, plans: Sequence[SpanPlan], said: Said, schema_of: SchemaOf) -> MissingTables:
    """The same at a sink that takes no statements."""
    with closing(open_sink(spec.sink)) as sink:
        if not isinstance(sink, CreatesTables):
            raise SinkRefusedError(f"sinks of type {spec.sink.type} do not create tables. Remove sink.tables")
        lacking = {normal_table(plan.table): plan for plan in plans if sink.lacks(plan.table)}
        places = {plan.table: _Whole().place(plan.table) for plan in lacking.values()}
        types = chosen_types(spec, lacking.values(), _Whole())
        found, refused = source_definitions(spec, [*lacking.values()], places, said, schema_of) if lacking else ({}, [])
        created: list[LakeTable] = []
        for each in found.values():
            name, chosen = lacking[each.table].table, types.get(("", each.table), {})
            own = spec_of(spec, lacking[each.table])
            made = lake_table(
                each,
                name,
                sink,
                chosen,
                is_keyed=spec.sink.mode == "upsert",
                partitions=partition_fields(own.sink.partition_by or ()),
                shape=own.columns,
            )
            created += [made] if isinstance(made, LakeTable) else []
            refused += [] if isinstance(made, LakeTable) else [made]
    shown = tuple(table.shown for table in created)
    return MissingTables(
        lacking=frozenset(places),
        tables=TargetTables(shown, tuple(refused), statements_file(shown) if shown else ""),
        of_lake=tuple(created),
    )


def check_created(missing: MissingTables) -> None:
    """Raise SinkRefusedError where a table cannot be created, and RightsMissingError where a right is missing."""
    if missing.tables.refused:
        raise SinkRefusedError("; ".join(shown_refusals(missing.tables, _by_feed)))
    if missing.grants:
        names = ", ".join(table.name for table in missing.tables.created)
        raise RightsMissingError(f"no right to create {names}", missing.grants)


def _by_feed(column: str, type_: str) -> str:
    """How the writer of a feed chooses a type for a column."""
    return f"sink.types: {{{json.dumps(column, ensure_ascii=False)}: {json.dumps(type_)}}}"


def chosen_types(spec: FeedSpec, plans: Iterable[SpanPlan], at_sink: Places) -> ChosenTypes:
    """The types that the feed chooses for columns of these tables, by the tables' places at the sink."""
    chosen: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for name, type_ in spec.sink.types.items():
        table, column = column_of(name)
        place = at_sink.place(table)
        if place is not None:
            chosen[place][column] = type_
    for plan in plans:
        pattern, place = pattern_of(spec, plan), at_sink.place(plan.table)
        if pattern is not None and place is not None:
            chosen[place] |= spec.tables[pattern].types
    return chosen


def source_definitions(
    spec: FeedSpec,
    plans: Sequence[SpanPlan],
    places: Mapping[str, tuple[str, str] | None],
    said: Said,
    schema_of: SchemaOf,
) -> tuple[dict[str, Definition], list[RefusedTable]]:
    """The feed's name of each table → what it looks like at the sink, where it is at ``places``; and those without.

    By the source database or, if the feed names none, by events. Raises SourceError.
    """
    if spec.source.database is None:
        return _described(spec, plans, places, schema_of)
    with as_source_errors(), open_catalogue(source_target(spec.source.database)) as source:
        return _definitions(spec, plans, places, source, said)


def _definitions(
    spec: FeedSpec,
    lacking: Sequence[SpanPlan],
    places: Mapping[str, tuple[str, str] | None],
    source: Catalogue,
    said: Said,
) -> tuple[dict[str, Definition], list[RefusedTable]]:
    """What the tables look like at the source, under the names that they have at the sink."""
    found: dict[str, Definition] = {}
    refused: list[RefusedTable] = []
    for plan in lacking:
        name = source_table(spec, plan.table, plan.topic, has=source.has, said=said)
        definition = None if name is None else source.definition(name)
        if definition is not None:
            definition = keyed_definition(definition, spec_of(spec, plan).key)
        place = places[plan.table]
        why = _why_not(spec, plan, name, definition, place)
        if why is not None:
            refused.append(RefusedTable(name=plan.table, refusals=(Refusal(why),)))
        elif definition is not None and place is not None:
            shaped = shaped_definition(definition, spec_of(spec, plan).columns)
            sliced = sliced_definition(shaped, slice_of(plan.table), is_integer=_is_integer(spec, plan))
            found[plan.table] = msgspec.structs.replace(sliced, schema=place[0], table=place[1])
    return found, refused


def _described(
    spec: FeedSpec, lacking: Sequence[SpanPlan], places: Mapping[str, tuple[str, str] | None], schema_of: SchemaOf
) -> tuple[dict[str, Definition], list[RefusedTable]]:
    """The same as events describe the tables."""
    found: dict[str, Definition] = {}
    refused: list[RefusedTable] = []
    for plan in lacking:
        made = _from_events(spec, plan, places[plan.table], schema_of)
        if isinstance(made, str):
            refused.append(RefusedTable(name=plan.table, refusals=(Refusal(made),)))
        else:
            found[plan.table] = made
    return found, refused


def _from_events(
    spec: FeedSpec, plan: SpanPlan, place: tuple[str, str] | None, schema_of: SchemaOf
) -> Definition | str:
    """The table, or why it has no definition."""
    if place is None:
        return _NO_PLACE
    schema = schema_of(plan.topic)
    if schema is None:
        return (
            f"no newest event of topic {plan.topic} has a schema. Name the source database in source.database, or let "
            "the connector write schemas (key.converter.schemas.enable=true and value.converter.schemas.enable=true, "
            "or Avro)"
        )
    made = definition_from(schema, place)
    if made is None:
        return f"types of the connector {schema.connector!r} are not known. Create the table yourself"
    without_key = _without_key(spec_of(spec, plan))
    if made.form.primary is None and without_key:
        return f"events of topic {plan.topic} have no key. Add a primary key at the source, or set {without_key}"
    columns = spec_of(spec, plan).columns
    why = _hidden_key(columns, made)
    if why is not None:
        return why
    shaped, part = shaped_definition(made, columns), slice_of(plan.table)
    return why_taken(shaped, part) or sliced_definition(shaped, part, is_integer=_is_integer(spec, plan))


def _is_integer(spec: FeedSpec, plan: SpanPlan) -> bool:
    """Whether the table's discriminator, if it has one, is a number in the feed."""
    pattern = pattern_of(spec, plan)
    into = None if pattern is None else spec.tables[pattern].into
    return into is not None and into.is_integer


def _why_not(
    spec: FeedSpec, plan: SpanPlan, name: str | None, definition: Definition | None, place: tuple[str, str] | None
) -> str | None:
    if definition is None:
        return (
            f"the source database has no table {name or named_like(plan.topic)}, or its user may not see it. Grant "
            "SELECT on it, or name the source's table in source.topic_tables"
        )
    if place is None:
        return _NO_PLACE
    without_key = _without_key(spec_of(spec, plan))
    if definition.form.primary is None and without_key:
        return (
            f"the source's table {table_spelling(definition.schema, definition.table)} has no primary key. Add one, or "
            f"set {without_key}"
        )
    columns = spec_of(spec, plan).columns
    return _hidden_key(columns, definition) or why_taken(shaped_definition(definition, columns), slice_of(plan.table))


def _without_key(spec: FeedSpec) -> str:
    """The option without which a table of the feed needs a key; empty if it needs none."""
    if spec.sink.type not in KINDS:
        return "" if spec.sink.mode == "append" else "sink.mode: append, which adds a row for every change"
    return "keyless: append for it in `tables`, which takes inserts only" if spec.sink.keyless == "refuse" else ""


def _hidden_key(columns: ColumnOptions, definition: Definition) -> str | None:
    """Why the table's key cannot be shaped like that, None if it can."""
    key = definition.form.primary
    return None if key is None else columns.hidden_key(key.columns)


def check_alterable(spec: FeedSpec, plans: Sequence[SpanPlan]) -> None:
    """Raise RightsMissingError where the feed alters tables and the sink's user may not, as far as one can ask."""
    if not spec.evolves_tables or spec.sink.type not in KINDS:  # a lake has no rights to ask for
        return
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        grants = at_sink.unalterable([plan.table for plan in plans])
    if grants:
        raise RightsMissingError("no right to alter tables, which sink.tables: evolve needs", grants)


def check_partitions(spec: FeedSpec, plans: Sequence[SpanPlan]) -> None:
    """Raise SinkRefusedError for a table that is divided in another way than by the feed. Raises SinkError."""
    wanted = {plan.table: by for plan in plans if (by := spec_of(spec, plan).sink.partition_by) is not None}
    if not wanted:
        return
    with closing(open_sink(spec.sink)) as sink:
        for table, by in wanted.items():
            found = sink.partitions_of(table) if isinstance(sink, CreatesTables) else None
            if found is not None and sorted(found) != sorted(by):
                has, given = (f"[{', '.join(each)}]" for each in (found, by))
                raise SinkRefusedError(
                    f"table {table} has the partitions {has}, and the feed has partition_by: {given}. A table that "
                    f"exists keeps its partitions, also where a column was renamed since. {_to_write(found)}, or "
                    "choose another name for the table (`table`), or drop it: a new feed creates and fills it "
                    "(snapshot: initial)"
                )


def _to_write(found: tuple[str, ...]) -> str:
    """What a feed has to have for a table with these partitions. No feed can name every partitioning of a user's."""
    try:
        partition_fields(found)
    except ValueError:
        return "Remove partition_by, for the feed and for the table"
    return f"Write partition_by: {json.dumps(found, ensure_ascii=False)} for it in `tables`"


def check_types(spec: FeedSpec, plans: Sequence[SpanPlan]) -> None:
    """Raise SinkRefusedError for a type of a table that the feed never writes."""
    known = {whole_table(normal_table(plan.table)) for plan in plans}
    for name in spec.sink.types:
        table, _ = column_of(name)
        if spec.source.topic_pattern is None and table not in known:
            raise SinkRefusedError(
                f"sink.types names {name}, but the feed does not write table {table}. Its tables are "
                f"{', '.join(sorted(known))}"
            )
