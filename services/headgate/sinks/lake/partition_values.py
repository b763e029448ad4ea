"""Which values a column can hold because its table is divided by it."""

from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from headgate.config.partitioning import IDENTITY, PartitionField
from headgate.sinks.lake.values import ReadValue
from headgate.sinks.relational.times import NotTextError

__all__ = ["FOLDER_BYTES_MAX", "checked_reader"]

FOLDER_BYTES_MAX: Final = 255
"""Of a folder's name, on every file system that agents run on. A partition's is ``field=value``, with escapes."""

_ESCAPED_BYTES_MAX: Final = 12
"""Of one character: four bytes, each of which becomes three."""

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What readers of folders take for NULL."""


def checked_reader(
    read: ReadValue, field: PartitionField, type_: pa.DataType, folder: str, *, keeps_empty: bool
) -> ReadValue:
    """``read``, which raises NotTextError for values that the field cannot have. ``type_``: of the column.

    ``folder``: the field's name. ``keeps_empty``: whether an empty text is another partition than NULL.
    """
    check = _check_of(field, type_, folder, keeps_empty=keeps_empty)
    if check is None:
        return read

    def checked(value: object) -> object:
        found = read(value)
        if found is not None:
            check(found)
        return found

    return checked


def _check_of(
    field: PartitionField, type_: pa.DataType, folder: str, *, keeps_empty: bool
) -> Callable[[object], None] | None:
    """What a value is checked with; None where each will do."""
    if field.transform == "truncate" and field.number is not None:
        width = field.number
        if pa.types.is_integer(type_):
            return lambda value: _check_integer(value, width, type_.bit_width)
        if pa.types.is_decimal(type_):
            return lambda value: _check_decimal(value, width, type_)
        return lambda value: _check_text(value, width, folder, keeps_empty=keeps_empty)
    if field.transform == IDENTITY:
        return lambda value: _check_text(value, None, folder, keeps_empty=keeps_empty)
    return None


def _check_text(value: object, width: int | None, folder: str, *, keeps_empty: bool) -> None:
    if isinstance(value, str):
        if not keeps_empty and value in ("", HIVE_NULL):
            what = "empty" if not value else HIVE_NULL
            raise NotTextError(
                f"the text is {what}, which readers take for NULL where a table is partitioned by it. Partition by "
                "another column, or let columns.set compute one that is never so"
            )
        _check_folder(value[:width], folder)
    elif isinstance(value, bytes):  # as pyiceberg names its folder
        _check_folder(b64encode(value).decode(), folder)


def _check_folder(text: str, folder: str) -> None:
    if (len(folder) + len(text) + 1) * _ESCAPED_BYTES_MAX <= FOLDER_BYTES_MAX:
        return
    if len(quote(folder, safe="")) + len("=") + len(quote(text, safe="")) > FOLDER_BYTES_MAX:
        raise NotTextError(
            f"the table is partitioned by the column, and the value is too long for a folder's name "
            f"({FOLDER_BYTES_MAX} bytes, with escapes). Partition by another column, or by a shorter part of it"
        )


def _check_integer(value: object, width: int, bits: int) -> None:
    """The libraries compute v - (((v % w) + w) % w) in the column's own type."""
    if not isinstance(value, int):
        return
    end = 1 << (bits - 1)
    remainder = value % width if value >= 0 else -(-value % width)
    if value - value % width < -end or remainder + width >= end:
        raise NotTextError(_TOO_NEAR.format(width=width))


def _check_decimal(value: object, width: int, type_: pa.DataType) -> None:
    """A partition has as many bytes as numbers of the column's precision need."""
    if not isinstance(value, Decimal):
        return
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return
    plain = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent + type_.scale)
    unscaled = -plain if sign else plain
    size = (10**type_.precision - 1).bit_length() // 8 + 1
    if unscaled - unscaled % width < -(1 << (8 * size - 1)):
        raise NotTextError(_TOO_NEAR.format(width=width))


_TOO_NEAR: Final = (
    "the table is partitioned by truncate({width}, …) of the column, and the value cannot be truncated within the "
    "column's type. Partition by another column, or by bucket(16, …) of it"
)
