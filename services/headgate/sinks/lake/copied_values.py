"""Reads values of rows that are copied, for columns of a lake table: the source's own texts, instead of an event's."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

from headgate.formats.time_units import MICROS
from headgate.sinks.lake.values import ReadValue, reader_of
from headgate.sinks.relational.times import NotTextError

__all__ = ["copied_reader_of"]

_CLOCK: Final = re.compile(r"(?P<whole>-?\d+:\d\d:\d\d)(?:\.(?P<fraction>\d+))?")
_TRUE, _FALSE = frozenset({"1", "t", "true"}), frozenset({"0", "f", "false"})
_DIGITS: Final = len(str(MICROS)) - 1
_TIME: Final = "time"


def copied_reader_of(type_: pa.DataType, kind: str | None, connector: str | None) -> ReadValue:
    """Reads the values of one column. ``kind``: the source's bare type, or what a mask has made of it.

    The reader raises NotTextError.
    """
    read = reader_of(type_, None, None, None)
    parse = _clock if kind == _TIME else _parser(type_, connector)
    return read if parse is None else partial(_parsed, parse, read)


def _parsed(parse: Callable[[str], object], read: ReadValue, value: object) -> object:
    if not isinstance(value, str):
        return read(bool(value) if parse is _boolean and value in (0, 1) else value)  # bit(1) of MySQL is a number
    try:
        return read(parse(value))
    except NotTextError:
        raise
    except ValueError:
        raise NotTextError("the source's text is not a value of the column's type") from None


def _parser(type_: pa.DataType, connector: str | None) -> Callable[[str], object] | None:
    """What makes a value of a text before it is read as an event's; None if texts are read as they are."""
    if pa.types.is_signed_integer(type_):
        return int
    if pa.types.is_floating(type_):
        return float
    if pa.types.is_boolean(type_):
        return _boolean
    if pa.types.is_timestamp(type_) and type_.tz is not None and connector == "mysql":
        return "{}Z".format  # its session is in UTC
    return None


def _boolean(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise NotTextError("the source's text is not a boolean")


def _clock(text: str) -> str:
    """A time as events have it: a fraction has six digits."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return text
    fraction = (found["fraction"] or "").rstrip("0")
    return found["whole"] + (f".{fraction.ljust(_DIGITS, '0')}" if fraction else "")
