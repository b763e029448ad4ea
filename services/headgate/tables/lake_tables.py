"""The tables that a lake lacks: how each is created from the source's definition, or why it is not.

Only columns of the key are NOT NULL, and only where rows are found by it: a deleted row of a table with ``mode:
append`` has nothing but its key, and a source may drop a NOT NULL at any time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.config.partitioning import PartitionField
from headgate.databases.mysql.catalogue import MysqlKey
from headgate.databases.postgresql.catalogue import PostgresDefinition
from headgate.sinks.creating import LAKE_TYPES, CreatesTables, LakeType, NewColumn, NewTable, parse_lake_type
from headgate.tables.mapped import LeftOut, Mapped, Outcome, Unmapped
from headgate.tables.mysql_to_lake import to_lake as from_mysql
from headgate.tables.postgresql_to_lake import to_lake as from_postgresql
from headgate.tables.statement import CreateTable, Definition, Refusal, RefusedTable, by_reason, notes_of

__all__ = ["LakeTable", "lake_outcomes", "lake_table"]


_AS_IT_IS: Final = ColumnOptions()


class LakeTable(msgspec.Struct, frozen=True):
    """``shown``: the same for people, and for what checks the columns of events."""

    new: NewTable
    shown: CreateTable


def lake_table(
    table: Definition,
    name: str,
    sink: CreatesTables,
    overrides: Mapping[str, str],
    *,
    is_keyed: bool,
    partitions: tuple[PartitionField, ...] = (),
    shape: ColumnOptions = _AS_IT_IS,
) -> LakeTable | RefusedTable:
    """The table under the name ``name``. ``overrides``: column → the type that the user has chosen for it.

    ``is_keyed``: the sink finds rows by their key. ``partitions``: how it is divided. ``shape``: what has made
    ``table`` of the source's.
    """
    outcomes = lake_outcomes(table, overrides)
    kept = {column: outcome for column, outcome in outcomes.items() if isinstance(outcome, Mapped)}
    refusals = [*_column_refusals(outcomes, sink), *_key_refusals(table)]
    refusals += [Refusal("the table does not have this column", column) for column in overrides.keys() - outcomes]
    if not kept and not refusals:
        refusals.append(Refusal("no column of it is captured"))
    if refusals:
        return RefusedTable(name=name, refusals=tuple(refusals))
    key = () if table.form.primary is None or not is_keyed else tuple(table.form.primary.columns)
    there = [column for column in table.form.columns if column.name in kept]
    types = {column: outcome.type for column, outcome in kept.items()}
    new = NewTable(
        name=name,
        columns=tuple(
            NewColumn(column, type_, column not in key, table.comments.get(column))
            for column, type_ in types.items()
            if isinstance(type_, LakeType)
        ),
        key=key,
        comment=table.comment,
        partitions=partitions,
    )
    unfit = [Refusal(why, field.column) for field in partitions if (why := _hidden(field, shape)) is not None]
    unfit = unfit or [Refusal(each.reason, each.column) for each in sink.partition_refusals(new)]
    if unfit:
        return RefusedTable(name=name, refusals=tuple(unfit))
    shown = CreateTable(
        name=name,
        schema=table.schema,
        statements=(sink.statement(new),),
        columns={column.name: column.type for column in there},
        types={column: type_.name for column, type_ in types.items()},
        key=key,
        notes=notes_of(table, outcomes),
        altered=by_reason((outcome.altered, column) for column, outcome in kept.items()),
    )
    return LakeTable(new, shown)


def _hidden(field: PartitionField, shape: ColumnOptions) -> str | None:
    """Why the sink does not get the values that the table would be divided by, None if it does."""
    source = shape.source(field.column)
    if source in shape.mask:
        return f"partition_by has {field.text}, and the column is masked (columns.mask). Partition by another one"
    if field.column not in shape.set and not shape.goes(source):
        return f"partition_by has {field.text}, and columns leaves the column out. Partition by another one"
    return None


def lake_outcomes(table: Definition, overrides: Mapping[str, str]) -> dict[str, Outcome]:
    """What becomes of each of the source's columns in a lake. ``overrides``: as of ``lake_table``."""
    found: dict[str, Outcome]
    if isinstance(table, PostgresDefinition):
        found = {column.name: from_postgresql(column, table.enums.get(column.name)) for column in table.form.columns}
    else:
        found = {column.name: from_mysql(column) for column in table.form.columns}
    return found | {name: _chosen(text, found[name]) for name, text in overrides.items() if name in found}


def _chosen(text: str, mapped: Outcome) -> Outcome:
    """The user's type. ``mapped``: what the mapper would take."""
    found = parse_lake_type(text)
    if found is None:
        return Unmapped(f"{text!r} is not a type of a lake. Write one of {', '.join(LAKE_TYPES)}")
    return Mapped(type=found, altered=mapped.altered if isinstance(mapped, Mapped) else "")


def _column_refusals(outcomes: Mapping[str, Outcome], sink: CreatesTables) -> Iterator[Refusal]:
    folded = Counter(name.casefold() for name, outcome in outcomes.items() if not isinstance(outcome, LeftOut))
    for name, outcome in outcomes.items():
        if isinstance(outcome, LeftOut):
            if (reason := outcome.refusal(name)) is not None:
                yield Refusal(reason, name)
            continue
        if isinstance(outcome, Unmapped):
            yield Refusal(outcome.reason, name, outcome.instead)
        elif problem := sink.name_problem(name):
            yield Refusal(f"{problem}. Rename it with columns.rename", name)
        if folded[name.casefold()] > 1:
            yield Refusal(
                "another column has the same name but for upper and lower case. Rename one with columns.rename", name
            )


def _key_refusals(table: Definition) -> Iterator[Refusal]:
    key = table.form.primary
    if isinstance(key, MysqlKey) and key.prefixed:
        yield Refusal("the primary key has only the beginnings of its columns' values")
