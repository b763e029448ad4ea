"""Values of lake tables as texts, as PostgreSQL writes them where it has the type, so that checksums can be equal."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headgate.verify.forms import Nature

__all__ = ["nature_of", "texts_of"]

_ZERO: Final = "0"


def nature_of(type_: pa.DataType) -> Nature:
    """What a column's texts are. A column of texts may have values of any type of the source."""
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return Nature.NUMBER
    if pa.types.is_timestamp(type_):
        return Nature.INSTANT
    if type_ == pa.float32():
        return Nature.SINGLE
    if type_ == pa.float64():
        return Nature.DOUBLE
    if _is_binary(type_):
        return Nature.BYTES
    return Nature.OTHER if pa.types.is_date(type_) else Nature.ANY


def texts_of(values: pa.Array) -> list[str | None]:
    """Each value as a text; None for NULL."""
    type_ = values.type
    if pa.types.is_boolean(type_):
        return _each(values, lambda value: "1" if value else "0")
    if _is_binary(type_):
        return _each(values, bytes.hex)
    if pa.types.is_decimal(type_):
        return _each(values, _decimal)
    if pa.types.is_timestamp(type_):
        return _each(values.cast(pa.timestamp("us")).cast(pa.string()), _trimmed)
    if pa.types.is_floating(type_):
        return _each(values.cast(pa.string()), _float)
    found: list[str | None] = values.cast(pa.string()).to_pylist()
    return found


def _each(values: pa.Array, text: Callable[[Any], str]) -> list[str | None]:
    return [None if value is None else text(value) for value in values.to_pylist()]


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_)) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_)


def _decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return _trimmed(text) if value else _ZERO


def _trimmed(text: str) -> str:
    """Without zeros behind the point."""
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _float(text: str) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text) or text.removesuffix(".0")
