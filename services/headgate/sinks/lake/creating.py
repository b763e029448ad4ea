"""What a lake's new table is: its columns as Arrow has them, its names, and the statement that people read.

A table with ``mode: append`` also gets Headgate's own columns, last.
"""

import json
import unicodedata
from typing import Final

import pyarrow as pa

from headgate.sinks.creating import LakeType, NewColumn, NewTable, quoted_by_spark
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate.sinks.lake.partitioning import partitioned_by_spark
from headgate.sinks.lake.shape import KEY
from headgate.sinks.lake.type_names import ARROW

__all__ = [
    "KEY", "arrow_type", "columns_of", "field_of", "name_problem", "properties_of", "schema_of", "statement_of",
]  # fmt: skip

_OWN: Final = tuple(
    NewColumn(name, LakeType(name=next(word for word, known in ARROW.items() if known == type_)))
    for name, type_ in OWN_COLUMNS.items()
)
"""OWN_COLUMNS in a table's words."""

_REFUSED: Final = frozenset(" ,;{}()\n\t=")
"""Characters that Spark refuses in names of a Delta table's columns unless the table maps names (delta-rs does not)."""

_LINES: Final = frozenset({"Cc", "Zl", "Zp", "Cs"})
"""Kinds of characters that end a line, steer a terminal, or are half a character."""

_BYTES_MAX: Final = 255
"""Of a name. Catalogues that tables are registered in (Hive's, Glue's) take no more."""


def columns_of(table: NewTable, *, appends: bool) -> tuple[NewColumn, ...]:
    """All that the table gets."""
    return (*table.columns, *(_OWN if appends else ()))


def schema_of(table: NewTable, *, appends: bool) -> pa.Schema:
    """The table's columns. A column's comment is in its metadata, as ``comment``."""
    return pa.schema(field_of(column) for column in columns_of(table, appends=appends))


def field_of(column: NewColumn) -> pa.Field:
    """One column, with its comment in the metadata."""
    return pa.field(
        column.name,
        arrow_type(column.type),
        nullable=column.is_nullable,
        metadata={"comment": column.comment} if column.comment else None,
    )


def properties_of(table: NewTable) -> dict[str, str]:
    """What the table declares: its key, where it has one."""
    return {KEY: json.dumps(list(table.key), ensure_ascii=False)} if table.key else {}


def arrow_type(type_: LakeType) -> pa.DataType:
    """The type as Arrow has it."""
    return pa.decimal128(*type_.numbers) if type_.name == "decimal" else ARROW[type_.name]


def name_problem(name: str, *, appends: bool) -> str | None:
    """Why a column cannot have that name, None if it can."""
    if not name:
        return "the name is empty"
    if any(unicodedata.category(letter) in _LINES for letter in name):
        return f"the name {name!r} has a control character"
    wrong = sorted(_REFUSED.intersection(name))
    if wrong:
        return f"the name {name!r} has a character that names cannot have there: {' '.join(map(repr, wrong))}"
    if len(name.encode()) > _BYTES_MAX:
        return f"the name {name!r} has {len(name.encode())} bytes, and names there have at most {_BYTES_MAX}"
    if appends and name.casefold() in OWN_COLUMNS:
        return f"with sink.mode: append Headgate writes a column {name.casefold()} itself"
    return None


def statement_of(table: NewTable, place: str, kind: str, *, appends: bool) -> str:
    """Spark's statement for the table. ``place``: what it is called there, quoted. ``kind``: of lakes."""
    lines = [
        f"{quoted_by_spark(column.name)} {column.type.sql}"
        + ("" if column.is_nullable else " NOT NULL")
        + (f" COMMENT {_literal(column.comment)}" if column.comment else "")
        for column in columns_of(table, appends=appends)
    ]
    text = f"CREATE TABLE {place} (\n  " + ",\n  ".join(lines) + f"\n) USING {kind.upper()}"
    if table.partitions:
        text += f"\nPARTITIONED BY ({', '.join(map(partitioned_by_spark, table.partitions))})"
    if table.comment:
        text += f"\nCOMMENT {_literal(table.comment)}"
    properties = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in properties_of(table).items())
    return f"{text}\nTBLPROPERTIES ({properties})" if properties else text


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
