"""Columns that a table has and a row lacks, where the row's writer may leave NULLs out (LACKING).

A sink that leaves such a column as it is, or gives it a default, asks here first.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from headgate.formats.change import LACKING, LACKING_NULL

__all__ = ["LeftOutError", "lacking_columns", "left_out"]

ADVICE: Final = (
    "the row does not have this column. Either Maxwell omits NULLs (output_nulls=false): set "
    "source.output_nulls: false, and omitted columns become NULL. Or the source does not have the "
    "column: set source.output_nulls: true, and the column is left to the sink"
)


class LeftOutError(Exception):
    """It is not known whether a column is NULL. ``column``: which one."""

    def __init__(self, column: str) -> None:
        super().__init__(ADVICE)
        self.column = column


def lacking_columns(semantics: Mapping[str, str] | None, row: Container[str], columns: Iterable[str]) -> list[str]:
    """Those of a table's ``columns`` that a whole row lacks, if its writer may leave NULLs out, else none.

    ``semantics``: of the row's change.
    """
    return [column for column in columns if column not in row] if LACKING in (semantics or {}) else []


def left_out(semantics: Mapping[str, str] | None, row: Container[str], columns: Iterable[str]) -> list[str]:
    """Those of them that are NULL. Raises LeftOutError where that is not known."""
    lacking = lacking_columns(semantics, row, columns)
    if lacking and (semantics or {})[LACKING] != LACKING_NULL:
        raise LeftOutError(lacking[0])
    return lacking
