"""A table of the sink that several sources are written to: made of the definition of one, and a discriminator. Pure."""

from collections.abc import Collection
from typing import Final, TypeVar

import msgspec

from headgate.databases.catalogue import TableForm
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlKey
from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresDefinition, PostgresKey
from headgate.records.name_lists import shown_names
from headgate.records.slices import VALUE_CHARACTERS_MAX, Slice
from headgate.tables.statement import Definition

__all__ = ["sliced_definition", "taken", "unsliced_definition", "why_other_table", "why_taken"]

K = TypeVar("K", PostgresKey, MysqlKey)

_NUMBER: Final = -1_000
"""In the place of an attribute's number: no column of a source has it, and no computed one."""


def sliced_definition(table: Definition, part: Slice | None, *, is_integer: bool = False) -> Definition:
    """The table as the sink has it: with the slice's column as its first, and as the first of each of its keys.

    ``is_integer``: the column is one of integers, not of texts.
    """
    if part is None:
        return table
    if isinstance(table, PostgresDefinition):
        kind = "bigint" if is_integer else f"character varying({VALUE_CHARACTERS_MAX})"
        column = PostgresColumn(
            number=_NUMBER, name=part.column, type=kind, kind="int8" if is_integer else "varchar", is_nullable=False,
            default=None, generated=None, is_identity=False, collation=None, base=kind, is_enum=False, identity="",
            generation="", collation_number=0, is_deterministic=True,
        )  # fmt: skip
        keys = tuple(_with_first(key, part.column) for key in table.form.keys)
        return msgspec.structs.replace(table, form=TableForm((column, *table.form.columns), keys))
    first = MysqlColumn(
        number=_NUMBER, name=part.column, type=f"varchar({VALUE_CHARACTERS_MAX})", kind="varchar", is_nullable=False,
        default=None, generated=None, is_identity=False, charset="utf8mb4", collation="utf8mb4_bin",
    )  # fmt: skip
    if is_integer:
        first = msgspec.structs.replace(first, type="bigint(20)", kind="bigint", charset=None, collation=None)
    others = tuple(_with_first(key, part.column) for key in table.form.keys)
    return msgspec.structs.replace(table, form=TableForm((first, *table.form.columns), others))


def _with_first(key: K, column: str) -> K:
    # Without columns it is a key of expressions, which no sink gets.
    return msgspec.structs.replace(key, columns=(column, *key.columns)) if key.columns else key


def unsliced_definition(table: Definition, part: Slice) -> Definition:
    """The table without the slice's column, as the slice's source has it."""
    if isinstance(table, PostgresDefinition):
        columns = tuple(column for column in table.form.columns if column.name != part.column)
        keys = tuple(_without(key, part.column) for key in table.form.keys)
        return msgspec.structs.replace(table, form=TableForm(columns, keys))
    others = tuple(column for column in table.form.columns if column.name != part.column)
    return msgspec.structs.replace(
        table, form=TableForm(others, tuple(_without(key, part.column) for key in table.form.keys))
    )


def _without(key: K, column: str) -> K:
    return msgspec.structs.replace(key, columns=tuple(name for name in key.columns if name != column))


def why_taken(table: Definition, part: Slice | None) -> str | None:
    """Why the table, as it is shaped for the sink, cannot get the slice's column; None if it can."""
    if part is None or all(column.name != part.column for column in table.form.columns):
        return None
    return taken(part.column)


def taken(column: str) -> str:
    """Of a source whose table has the discriminator's column."""
    return (
        f"the source's table has a column {column} itself. Give the discriminator another name (into), or rename or "
        "exclude the source's column (columns)"
    )


def why_other_table(first: Definition, other: Definition, chosen: Collection[str]) -> str | None:
    """Why rows of ``other`` would not fit into the table made of ``first``; None if they do.

    Both are as the sink would have them. ``chosen``: columns whose types the feed chooses.
    """
    here = {column.name: column for column in first.form.columns}
    there = {column.name: column for column in other.form.columns}
    if lacking := sorted(there.keys() - here.keys()):
        return f"it has columns that the other table does not have ({shown_names(lacking)})"
    if surplus := sorted(name for name in here.keys() - there.keys() if not here[name].is_nullable):
        return f"it lacks columns that are NOT NULL in the other table ({shown_names(surplus)})"
    for name, column in there.items():
        if column.type != here[name].type and name not in chosen:
            return f"its column {name} is of type {column.type}, in the other table of type {here[name].type}"
        if column.is_nullable and not here[name].is_nullable:
            return f"its column {name} may be NULL, and is NOT NULL in the other table"
    keys = [() if table.form.primary is None else table.form.primary.columns for table in (first, other)]
    if set(keys[0]) != set(keys[1]):
        return f"its key is ({', '.join(keys[1])}), and that of the other table ({', '.join(keys[0])})"
    return None
