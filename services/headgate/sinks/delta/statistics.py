"""Which columns of a Delta table have their least and greatest value of each file in the log.

Readers (Spark, DuckDB, Polars) leave out files by them, so a wrong one loses rows of a query. delta-rs makes these of
some numbers wrong: it writes decimals as doubles, or as the nearest 64-bit integers, leaves NaN out, which those
readers take for the greatest number, and writes infinities as null. So a table lists the columns that are left.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deltalake.schema import Field

__all__ = ["COLUMNS", "listed_columns"]

COLUMNS: Final = "delta.dataSkippingStatsColumns"
"""The table's property that lists them. All writers obey it."""

_FIRST: Final = "delta.dataSkippingNumIndexedCols"
_FIRST_DEFAULT: Final = 32
"""How many columns have statistics in a table without a list, by the protocol's property of that name."""

DIGITS_MAX: Final = 15
"""Of a decimal that a double has exactly, as a text that is read back."""

_INEXACT: Final = frozenset({"float", "double"})
_UNLISTED: Final = frozenset({"binary", "boolean"})
"""Spark refuses a list with them."""

_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^`,\s][^,]*)")


def listed_columns(fields: Sequence[Field], partitions: Iterable[str], properties: Mapping[str, str]) -> str | None:
    """What COLUMNS must be before rows are written; None if the table may stay as it is."""
    present = properties.get(COLUMNS)
    columns = {field.name: _bare(field) for field in fields if field.name not in set(partitions)}
    wrong = {name for name, type_ in columns.items() if _is_inexact(type_)}
    first = int(properties.get(_FIRST, _FIRST_DEFAULT))
    named = list(columns) if first < 0 else list(columns)[:first]
    if present is None:
        return _text(named, columns) if wrong.intersection(named) else None
    if any(present == _text(named[:number], columns) for number in range(len(named) + 1)):  # ours, before it had others
        wanted = _text(named, columns)
        return None if wanted == present else wanted
    theirs = [(quoted.replace("``", "`") or plain.strip()) for quoted, plain in _NAME.findall(present)]
    return ",".join(_quoted(name) for name in theirs if name not in wrong) if wrong.intersection(theirs) else None


def _text(names: Iterable[str], columns: Mapping[str, str]) -> str:
    right = (name for name in names if not _is_inexact(columns[name]) and columns[name] not in _UNLISTED)
    return ",".join(map(_quoted, right))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _bare(field: Field) -> str:
    """The type in Delta's words, ``decimal(20,0)``."""
    return str(getattr(field.type, "type", ""))


def _is_inexact(type_: str) -> bool:
    name, _, numbers = type_.partition("(")
    return name in _INEXACT or (name == "decimal" and int(numbers.partition(",")[0]) > DIGITS_MAX)
