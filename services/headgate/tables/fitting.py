"""What must be done to columns of a sink's table so that they hold what the source's columns hold by now. Pure.

Types are widened where every value stays what it is, and NOT NULL is dropped where the source has no value or may have
none. Both follow from the two definitions, never from a value. A column of the key stays NOT NULL.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headgate.databases.catalogue import CatalogueColumn, Product
from headgate.databases.mysql import sql as mysql
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.mysql.types import MysqlType
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql import sql as postgresql
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition
from headgate.databases.postgresql.types import PostgresType
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.records.name_lists import shown_names
from headgate.sinks.altering import ColumnChanges
from headgate.sinks.creating import LakeType, parse_lake_type
from headgate.tables.alteration import Alteration, AlterationContext, alter_of, names_of, quoted_at, sink_outcomes
from headgate.tables.holding import Holding, holding
from headgate.tables.lake_definition import LakeDefinition, SinkDefinition, spelled
from headgate.tables.mapped import Mapped
from headgate.tables.statement import Definition
from headgate.tables.widening import holds_labels, is_wider

__all__ = ["other_key", "parsed_type", "plan_fitting", "relaxed", "type_of"]

_Type = PostgresType | MysqlType | LakeType

_NOT_NULL: Final = re.compile(" NOT NULL(?= |$)")
_COLUMN: Final = re.compile(r"\s*(?P<name>`(?:[^`]|``)+`) (?P<rest>.*?),?", re.DOTALL)


class _Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the sink. ``type``: its new one; ``is_relaxed``: it becomes nullable."""

    column: CatalogueColumn
    type: _Type | None
    is_relaxed: bool


def plan_fitting(source: Definition, sink: SinkDefinition, known: AlterationContext) -> Alteration:
    """What must be done to the sink's table: nothing if there is nothing to widen or to relax.

    ``refusals`` of the answer: how the sink's table differs otherwise, each with what to run.
    """
    fitted = [each for each in _fitted(source, sink, known) if each.type is not None or each.is_relaxed]
    changes, labels = None, tuple(_labels(source, sink))
    statements, one_by_one = labels, labels
    if isinstance(sink, LakeDefinition):
        changes = _of_lake(fitted) if fitted else None
    else:
        statements += tuple(_of_columns(sink, fitted, known))
        one_by_one += tuple(text for each in fitted for text in _of_columns(sink, [each], known))
    return Alteration(
        name=spelled(sink),
        schema=sink.schema,
        statements=statements,
        one_by_one=one_by_one,
        columns=tuple(each.column.name for each in fitted),
        refusals=tuple(_differences(source, sink, known)),
        changes=changes,
    )


def _of_columns(sink: Definition, fitted: Sequence[_Fitted], known: AlterationContext) -> Iterator[str]:
    return _postgresql(sink, fitted) if sink.product is Product.POSTGRESQL else _mysql(sink, fitted, known)


def _of_lake(fitted: Sequence[_Fitted]) -> ColumnChanges:
    return ColumnChanges(
        widened={each.column.name: each.type for each in fitted if isinstance(each.type, LakeType)},
        relaxed=tuple(each.column.name for each in fitted if each.is_relaxed),
    )


def _differences(source: Definition, sink: SinkDefinition, known: AlterationContext) -> Iterator[str]:
    """What Headgate does not alter, because a value could be lost, or rows would be found by another key."""
    alter = alter_of(sink)
    if (key := other_key(source, sink)) is not None:
        yield key
    outcomes = sink_outcomes(source, sink, known.types)
    names = names_of(source)
    for column in sink.form.columns:
        there = names.get(column.name)
        outcome = None if there is None else outcomes[there.name]
        wanted = type_of(outcome)
        if there is not None and wanted is not None and _is_other(sink, column, wanted):
            is_postgresql = sink.product is Product.POSTGRESQL
            name, type_ = quoted_at(sink, column.name), wanted.sql
            run = f"ALTER COLUMN {name} TYPE {type_} USING …" if is_postgresql else f"MODIFY COLUMN {name} {type_}"
            if isinstance(sink, LakeDefinition):
                run = f"ALTER COLUMN {name} TYPE {type_} where the format allows it, or write the table again with it"
            yield f"Column {column.name} is {there.type} at the source and {column.type} here. Run {alter} {run}"
    yield from _lacking_labels(source, sink)


def other_key(source: Definition, sink: SinkDefinition) -> str | None:
    """How the sink's key differs from the source's; None if it does not."""
    keys = [() if key is None else key.columns for key in (source.form.primary, sink.form.row_key)]
    declares_key = bool(keys[1]) or not isinstance(sink, LakeDefinition)
    if not declares_key or [name.casefold() for name in keys[0]] == [name.casefold() for name in keys[1]]:
        return None
    columns = ", ".join(quoted_at(sink, name) for name in keys[0])
    return (
        f"The source's primary key is ({', '.join(keys[0])}), the sink's ({', '.join(keys[1])}). If it was "
        f"changed, pause the feed and run {alter_of(sink)} with PRIMARY KEY ({columns})"
    )


def relaxed(source: Definition, sink: SinkDefinition, known: AlterationContext) -> tuple[str, ...]:
    """Columns of the sink that take no NULL, where the source has some, or may have."""
    return tuple(each.column.name for each in _fitted(source, sink, known) if each.is_relaxed)


def _lacking_labels(source: Definition, sink: SinkDefinition) -> Iterator[str]:
    """Labels of enums that only the source has, and that do not fit between those of the sink (``_labels``)."""
    for column, wanted, there in _enums(source, sink):
        lacking = [label for label in wanted.labels if label not in there.labels]
        if lacking and not holds_labels(wanted.labels, there.labels):
            name, added = postgresql.quoted(there.schema, there.name), postgresql.literal(lacking[0])
            yield (
                f"Column {column} lacks labels of the source's enum here ({shown_names(lacking)}). Run ALTER TYPE "
                f"{name} ADD VALUE {added}, and the same for each"
            )


def _enums(source: Definition, sink: SinkDefinition) -> list[tuple[str, EnumType, EnumType]]:
    """Columns that are enums at both ends: the column, its type at the source, and at the sink."""
    if not isinstance(source, PostgresDefinition) or not isinstance(sink, PostgresDefinition):
        return []
    return [(column, enum, sink.enums[column]) for column, enum in source.enums.items() if column in sink.enums]


def _is_other(sink: SinkDefinition, column: CatalogueColumn, wanted: _Type) -> bool:
    """Whether the column's type neither holds all values of ``wanted``, nor is widened to it."""
    found = parsed_type(column)
    if found is None or _is_widened(sink, wanted, found):
        return False
    if isinstance(found, LakeType) or isinstance(wanted, LakeType):
        return found != wanted and not is_wider(found, wanted)
    return holding(found, wanted) is not Holding.HOLDS


def _is_widened(sink: SinkDefinition, new: _Type, old: _Type) -> bool:
    """Whether every value stays what it is, and the sink can do it."""
    if not is_wider(new, old):
        return False
    if isinstance(sink, LakeDefinition) and isinstance(new, LakeType) and isinstance(old, LakeType):
        return sink.rules.widens(old, new)
    return True


def parsed_type(column: CatalogueColumn) -> _Type | None:
    """The type of a sink's column; None if it is not on the list."""
    if isinstance(column, MysqlColumn):
        return None if column.kind == "json" else parse_mysql(column.type)
    return parse_postgresql(column.type) if isinstance(column, PostgresColumn) else parse_lake_type(column.type)


def _fitted(source: Definition, sink: SinkDefinition, known: AlterationContext) -> Iterator[_Fitted]:
    outcomes = sink_outcomes(source, sink, known.types)
    names = names_of(source)
    keys = {name for key in sink.form.keys for name in key.columns if key.is_primary or key is sink.form.row_key}
    for column in sink.form.columns:
        if column.generated is not None or column.is_identity:
            continue
        there = names.get(column.name)
        outcome = None if there is None else outcomes[there.name]
        may_lack = column.default is None if there is None else there.is_nullable
        is_relaxed = may_lack and not column.is_nullable and column.name not in keys
        yield _Fitted(column=column, type=_wider(sink, column, outcome), is_relaxed=is_relaxed)


def _wider(sink: SinkDefinition, column: CatalogueColumn, outcome: object) -> _Type | None:
    """The type that the column gets, with the sink's own collation; None if it keeps its type."""
    old, new = parsed_type(column), type_of(outcome)
    if old is None or new is None or not _is_widened(sink, new, old):
        return None
    return msgspec.structs.replace(new, collation=None) if isinstance(new, MysqlType) else new


def type_of(outcome: object) -> _Type | None:
    """The type that the column is mapped to."""
    return outcome.type if isinstance(outcome, Mapped) else None


def _labels(source: Definition, sink: SinkDefinition) -> Iterator[str]:
    """Statements that give the sink's enums the labels that the source's have got."""
    for wanted, there in dict.fromkeys((wanted, there) for _, wanted, there in _enums(source, sink)):
        if holds_labels(wanted.labels, there.labels):
            yield from _added_labels(wanted.labels, there)


def _added_labels(labels: Sequence[str], there: EnumType) -> Iterator[str]:
    name = postgresql.quoted(there.schema, there.name)
    for number, label in enumerate(labels):
        if label not in there.labels:
            place = f"AFTER {postgresql.literal(labels[number - 1])}" if number else _before(there)
            yield f"ALTER TYPE {name} ADD VALUE IF NOT EXISTS {postgresql.literal(label)} {place}".rstrip()


def _before(there: EnumType) -> str:
    return f"BEFORE {postgresql.literal(there.labels[0])}" if there.labels else ""


def _postgresql(sink: Definition, fitted: Sequence[_Fitted]) -> Iterator[str]:
    clauses = []
    for each in fitted:
        name = postgresql.quoted(each.column.name)
        if each.type is not None:
            clauses.append(f"ALTER COLUMN {name} TYPE {each.type.sql}")
        if each.is_relaxed:
            clauses.append(f"ALTER COLUMN {name} DROP NOT NULL")
    if clauses:
        yield f"ALTER TABLE {postgresql.quoted(sink.schema, sink.table)} {', '.join(clauses)}"


def _mysql(sink: Definition, fitted: Sequence[_Fitted], known: AlterationContext) -> Iterator[str]:
    """MODIFY needs the whole column, so the server's own text of it is changed where it has to be."""
    texts = dict(filter(None, map(_column_text, known.shown.splitlines())))
    clauses = [
        f"MODIFY COLUMN {mysql.quoted(each.column.name)} {text}"
        for each in fitted
        if (text := _changed(texts.get(mysql.quoted(each.column.name), ""), each)) is not None
    ]
    if clauses:
        yield f"ALTER TABLE {mysql.quoted(sink.schema, sink.table)} {', '.join(clauses)}"


def _column_text(line: str) -> tuple[str, str] | None:
    found = _COLUMN.fullmatch(line)
    return None if found is None else (found["name"], found["rest"])


def _changed(text: str, each: _Fitted) -> str | None:
    """A column's text with its new type, and without NOT NULL; None if it is not as expected."""
    former = each.column.type
    if not text.startswith(former):
        return None
    type_, rest = (former if each.type is None else each.type.sql), text[len(former) :]
    return type_ + (_NOT_NULL.sub(" NULL", rest, count=1) if each.is_relaxed else rest)
