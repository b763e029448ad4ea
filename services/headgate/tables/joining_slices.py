"""Whether a source fits into a table of the sink that others are written to already.

The table stays as it is (``sink.tables: evolve`` is refused). So a source is refused if some of its values are known
not to fit (holding.py), and whatever is only not known to fit is a warning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from headgate.config.feed import FeedSpec
from headgate.databases.kinds import KINDS
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import MysqlType, labels_of
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresDefinition
from headgate.databases.postgresql.types import PostgresType
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.refusals import WARNING
from headgate.records.slices import Slice, slice_of, whole_table
from headgate.sinks.creating import LakeType
from headgate.sinks.misfit import MisfitError
from headgate.sinks.registry import target_of
from headgate.sinks.relational.session import as_sink_errors
from headgate.sources.table_options import pattern_of
from headgate.tables.alteration import AlterationContext, names_of, sink_outcomes
from headgate.tables.catalogues import Catalogue, open_catalogue
from headgate.tables.fitting import other_key, relaxed
from headgate.tables.from_events import is_untold
from headgate.tables.holding import Holding, characters, holding, is_of_fixed_range, longest_label
from headgate.tables.mapped import LeftOut, Mapped, Outcome
from headgate.tables.missing import Said, SchemaOf, chosen_types, source_definitions
from headgate.tables.sliced import unsliced_definition
from headgate.tables.statement import Definition

__all__ = ["check_joining", "doubts", "why_misfit"]

_Type = PostgresType | MysqlType

_TEXTS: Final = frozenset({"text", "character varying", "character"})
"""PostgreSQL's."""

_COLLATION: Final = re.compile(" (CHARACTER SET|COLLATE) .*", re.DOTALL)


class _Target(msgspec.Struct, frozen=True):
    """A table that the sink has."""

    definition: Definition
    known: AlterationContext


def check_joining(spec: FeedSpec, plans: Sequence[SpanPlan], said: Said, schema_of: SchemaOf) -> tuple[str, ...]:
    """Raise MisfitError for sources of these plans that do not fit into the tables of slices that the sink has.

    A source is defined as for the creation of its table: by a feed that creates none it is not, and nor is one without
    events that describe it. The answers are warnings about columns that may not fit. Raises SinkError, SourceError.
    """
    parts = [plan for plan in plans if slice_of(plan.table) is not None]
    if not parts or not spec.creates_tables or spec.sink.type not in KINDS:
        return ()
    with as_sink_errors(), open_catalogue(target_of(spec.sink)) as at_sink:
        # Sources of one table may choose different types, each in its entry of `tables`.
        entries = {plan.table: (pattern_of(spec, plan), whole_table(plan.table)) for plan in parts}
        firsts = {entries[plan.table]: plan for plan in reversed(parts)}
        targets = {entry: _target(at_sink, spec, plan) for entry, plan in firsts.items()}
    there = {table: found for table, entry in entries.items() if (found := targets[entry]) is not None}
    places = {table: (found.definition.schema, found.definition.table) for table, found in there.items()}
    sources, _ = source_definitions(spec, [plan for plan in parts if plan.table in there], places, said, schema_of)
    reasons = _told(why_misfit, parts, sources, there)
    if reasons:
        listed = "; ".join(f"{topic} does not fit into {table}: {why}" for (topic, table), why in reasons.items())
        raise MisfitError(
            f"{listed}. Alter one of the tables, or choose types (`types`) or leave columns out "
            "(`columns`) in an entry of `tables` for this source"
        )
    return tuple(
        f"{WARNING}{topic} may not fit into {table}: {why}. Compare the two types"
        for (topic, table), why in _told(doubts, parts, sources, there).items()
    )


def _told(
    judge: Callable[[Definition, Definition, Slice, AlterationContext], str | None],
    parts: Sequence[SpanPlan],
    sources: Mapping[str, Definition],
    targets: Mapping[str, "_Target"],
) -> dict[tuple[str, str], str]:
    """(Topic, table), each for people, → the answer of ``judge`` for the source."""
    found: dict[tuple[str, str], str] = {}
    for plan in parts:
        part = slice_of(plan.table)
        if part is None or plan.table not in sources:
            continue
        target = targets[plan.table]
        why = judge(sources[plan.table], target.definition, part, target.known)
        if why is not None:
            found[f"topic {plan.topic}", f"table {part.table}, which the sink has already"] = why
    return found


def _target(at_sink: Catalogue, spec: FeedSpec, plan: SpanPlan) -> _Target | None:
    name = whole_table(plan.table)
    found = at_sink.definition(name)
    if found is None:
        return None
    chosen = chosen_types(spec, [plan], at_sink).get((found.schema, found.table), {})
    return _Target(found, AlterationContext(sink=at_sink.sink(), types=chosen, shown=at_sink.shown(name)))


def why_misfit(source: Definition, sink: Definition, part: Slice, known: AlterationContext) -> str | None:
    """Why rows of the source would not fit into the sink's table; None if no value is known to be lost. Pure.

    Both have the slice's column. It is the sink's, and checked there (sinks/relational/table.py).
    """
    source, sink = _as_source(source, sink, part)
    key, mine = other_key(source, sink), names_of(source)
    required = [(name, mine.get(name)) for name in relaxed(source, sink, known)]
    strict = [name for name, column in required if column is None or not _is_computed(column)]
    reasons = [] if key is None else [key]
    reasons += [f"{each.shown}, which does not hold each of its values" for each in _unheld(source, sink, known)]
    if strict:
        reasons.append(f"columns {shown_names(strict)} of the table are NOT NULL, and the source may have no value")
    there, outcomes = names_of(sink), sink_outcomes(source, sink, known.types)
    lacking = [
        f"{column.name} ({column.type} at the source)"
        for column in source.form.columns
        if column.name not in there and not _never_arrives(outcomes[column.name])
    ]
    if lacking:
        reasons.append(f"the table does not have its columns {shown_names(lacking)}")
    return "; ".join(text.removesuffix(".") for text in reasons) or None


def doubts(source: Definition, sink: Definition, part: Slice, known: AlterationContext) -> str | None:
    """Columns whose types are not known to hold the source's values, as ``why_misfit`` has its reasons. Pure."""
    source, sink = _as_source(source, sink, part)
    found = [each.shown for each in _unheld(source, sink, known, Holding.UNKNOWN)]
    return "; ".join(found) or None


def _as_source(source: Definition, sink: Definition, part: Slice) -> tuple[Definition, Definition]:
    """Both without the slice's column, and with their keys in one order."""
    source, sink = unsliced_definition(source, part), unsliced_definition(sink, part)
    return _with_key_as(source, sink), sink


def _never_arrives(outcome: Outcome) -> bool:
    """Whether a table that Headgate creates lacks the column, because events do not have its values."""
    return isinstance(outcome, LeftOut) and not outcome.arrives


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A column at both ends, and the type that Headgate would give it at the sink."""

    source: PostgresColumn | MysqlColumn
    sink: PostgresColumn | MysqlColumn
    mapped: Mapped

    @property
    def is_array(self) -> bool:
        """Whether the sink's column has arrays, also by its domain."""
        return (self.sink.base if isinstance(self.sink, PostgresColumn) else self.sink.type).endswith("[]")

    @property
    def shown(self) -> str:
        """For people."""
        wanted = _COLLATION.sub("", self.mapped.type.sql)
        made = "" if wanted == self.source.type else f", created as {wanted}"
        return f"column {self.source.name} is {self.source.type} at the source{made}, and here {self.sink.type}"


def _unheld(
    source: Definition, sink: Definition, known: AlterationContext, told: Holding = Holding.LOSES
) -> list[_Pair]:
    """Columns for which ``told`` is the answer, except those the sink computes, and types that events do not have."""
    if is_untold(source):
        return []
    outcomes, names = sink_outcomes(source, sink, known.types), names_of(source)
    pairs = [
        _Pair(source=there, sink=column, mapped=outcome)
        for column in sink.form.columns
        if column.generated is None and (there := names.get(column.name)) is not None
        and isinstance(outcome := outcomes[there.name], Mapped)
    ]  # fmt: skip
    return [each for each in pairs if _holding(each, source, sink, is_chosen=each.source.name in known.types) is told]


def _is_computed(column: PostgresColumn | MysqlColumn) -> bool:
    """Whether the feed computes it: its type is the widest that its values can have, and it may have no NULL."""
    return column.number < 0


def _holding(pair: _Pair, source: Definition, sink: Definition, *, is_chosen: bool) -> Holding:
    wanted = pair.mapped.type
    labels, theirs = _labels(pair.source, source), _labels(pair.sink, sink)
    lacks_labels = bool(labels and theirs) and not set(labels) <= set(theirs)
    if isinstance(wanted, LakeType):
        return Holding.UNKNOWN
    is_array = isinstance(wanted, PostgresType) and wanted.is_array
    if lacks_labels or pair.is_array is not is_array:
        return Holding.LOSES
    if labels and theirs and _is_set(pair.source) is _is_set(pair.sink):
        return Holding.HOLDS
    found, values = _found(pair.sink), _narrowed(wanted, labels, is_set=_is_set(pair.source))
    if not (labels or is_chosen):
        values = _of_source(pair.source, values)
    told = Holding.UNKNOWN if found is None else holding(found, values)
    is_guessed = source.unknown and "(" not in pair.source.type and not is_of_fixed_range(wanted)
    # Events do not have each length, and a text that stands for another type has one that is not known.
    is_wider = is_guessed or _is_computed(pair.source) or (not is_chosen and _stands_in(pair.source, values))
    return Holding.UNKNOWN if is_wider and told is Holding.LOSES else told


def _found(column: PostgresColumn | MysqlColumn) -> PostgresType | MysqlType | None:
    """The type of a column, or the one that its domain is made of."""
    if isinstance(column, MysqlColumn):
        return MysqlType(name="json") if column.kind == "json" else parse_mysql(column.type)
    return parse_postgresql(column.base)


def _labels(column: PostgresColumn | MysqlColumn, table: Definition) -> tuple[str, ...]:
    """Of an enum or a set; none of any other type."""
    if isinstance(table, PostgresDefinition):
        enum = table.enums.get(column.name)
        return () if enum is None else enum.labels
    return labels_of(column.type) if column.kind in ("enum", "set") else ()


def _is_set(column: PostgresColumn | MysqlColumn) -> bool:
    return column.kind == "set"


def _narrowed(wanted: PostgresType | MysqlType, labels: tuple[str, ...], *, is_set: bool) -> PostgresType | MysqlType:
    """Of a text, or an enum, that has labels of the source only: a text that is as long as the longest one."""
    if not labels:
        return wanted
    length = longest_label(labels, is_set=is_set)
    if isinstance(wanted, PostgresType) and not wanted.is_array:
        return PostgresType(name="character varying", numbers=(length,))
    if isinstance(wanted, MysqlType) and wanted.is_text:
        return MysqlType(name="varchar", numbers=(length,))
    return wanted


def _of_source(column: PostgresColumn | MysqlColumn, wanted: _Type) -> _Type:
    """``wanted``, which may be wider than the column at the source: as narrow as that is known to be."""
    limit = _characters_max(column)
    if isinstance(wanted, PostgresType) and not wanted.is_array:
        if isinstance(column, MysqlColumn) and column.kind == "year":
            return PostgresType(name="smallint")
        if limit is not None and wanted.name in _TEXTS and wanted.name != "character":
            return PostgresType(name="character varying", numbers=(limit,))
    is_text = isinstance(wanted, MysqlType) and wanted.is_text and wanted.name != "char"
    if is_text and limit is not None and isinstance(column, PostgresColumn):
        return MysqlType(name="varchar", numbers=(limit,))
    return wanted


def _characters_max(column: PostgresColumn | MysqlColumn) -> int | None:
    """How many characters the column's values have at most; None if it is another type, or has no limit."""
    declared = _found(column)
    held = None if declared is None else characters(declared)
    return None if held is None or held[1] == inf else int(held[1])


def _stands_in(column: PostgresColumn | MysqlColumn, wanted: _Type) -> bool:
    """Whether a text is to hold the values of another type, such as an address."""
    if not (wanted.is_text if isinstance(wanted, MysqlType) else wanted.name in _TEXTS):
        return False
    declared = _found(column)
    if declared is None or isinstance(declared, MysqlType):
        return declared is not None and not (declared.is_text or declared.labels)
    return declared.name not in _TEXTS and not (isinstance(column, PostgresColumn) and column.is_enum)


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
