"""Which columns of a Delta table have their least and greatest value of each file in the log, and in the file itself.

Readers (Spark, DuckDB, Polars) leave out files by them, so a wrong one loses rows of a query. delta-rs makes these of
some numbers wrong: it writes decimals as doubles, or as the nearest 64-bit integers, leaves NaN out, which those
readers take for the greatest number, and writes infinities as null. So a table lists the columns that are left.

Spark also leaves out parts of a file by the file's own statistics, which lack NaN as well: files have none of a float.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from deltalake import ColumnProperties, WriterProperties
from deltalake.schema import Field

from headgate.sinks.contract import SinkRefusedError

__all__ = ["COLUMNS", "TEXT_MAX", "check_number", "listed_columns", "parquet_options"]

COLUMNS: Final = "delta.dataSkippingStatsColumns"
"""The table's property that lists them. All writers obey it."""

_OURS: Final = "headgate.statistics"
"""The property that marks the list as Headgate's: the number of columns that it is of, and the list itself.

If one of them differs, another writer has changed which columns have statistics. Then no column is added: files that
exist lack statistics of it, and Arrow takes these for NULL."""

_FIRST: Final = "delta.dataSkippingNumIndexedCols"
_FIRST_DEFAULT: Final = 32
"""How many columns have statistics in a table without a list, by the protocol's property of that name."""

DIGITS_MAX: Final = 15
"""Of a decimal that a double has exactly, as a text that is read back."""

TEXT_MAX: Final = 64
"""Of a text's first bytes in a file's statistics: delta-rs's own choice."""

_INEXACT: Final = frozenset({"float", "double"})
_UNLISTED: Final = frozenset({"binary", "boolean"})
"""Spark refuses a list with them."""

_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^`,\s][^,]*)")


def check_number(properties: Mapping[str, str], table: str = "the table") -> int:
    """How many of the first columns have statistics in a table without a list; -1 for all. Raises SinkRefusedError."""
    text = properties.get(_FIRST, _FIRST_DEFAULT)
    try:
        return int(text)
    except ValueError as error:
        raise SinkRefusedError(
            f"{table} has the property {_FIRST}={text!r}, and a number is needed. Unset it, or set it to a number "
            f"(Spark: ALTER TABLE … SET TBLPROPERTIES ('{_FIRST}' = '{_FIRST_DEFAULT}'))"
        ) from error


def listed_columns(
    fields: Sequence[Field], partitions: Iterable[str], properties: Mapping[str, str]
) -> dict[str, str] | None:
    """The properties to set before rows are written; None if the table may stay as it is. Raises SinkRefusedError."""
    first = check_number(properties)
    columns = {field.name: _bare(field) for field in fields if field.name not in set(partitions)}
    wrong = {name for name, type_ in columns.items() if _is_inexact(type_)}
    if not wrong:
        return None
    present = properties.get(COLUMNS)
    named = list(columns) if first < 0 else list(columns)[:first]
    if present is None and not wrong.intersection(named):
        return None
    if present is None or properties.get(_OURS) == _mark(first, present):
        wanted = _text(named, columns)
        return None if wanted == present else {COLUMNS: wanted, _OURS: _mark(first, wanted)}
    theirs = [(quoted.replace("``", "`") or plain.strip()) for quoted, plain in _NAME.findall(present)]
    if not wrong.intersection(theirs):
        return None
    return {COLUMNS: ",".join(_quoted(name) for name in theirs if name not in wrong)}


def parquet_options(
    fields: Iterable[Field], compression: Literal["SNAPPY", "ZSTD"], level: int | None = None
) -> WriterProperties:
    """How files are written: without statistics that are wrong.

    ``compression`` and ``level``: delta-rs's own. If it gets options, it has no defaults of its own for the others.
    """
    without = ColumnProperties(statistics_enabled="NONE")
    floats = {field.name: without for field in fields if _bare(field) in _INEXACT}
    return WriterProperties(
        compression=compression,
        compression_level=level,
        statistics_truncate_length=TEXT_MAX,
        column_properties=floats,
    )


def _mark(first: int, listed: str) -> str:
    return f"{first} {listed}"


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
