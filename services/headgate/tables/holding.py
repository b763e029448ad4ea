"""Whether a column's type at a sink holds every value of the type that Headgate would create there. Pure.

LOSES is certain: the type is shorter, less exact, or of a smaller range. Of types that are not known to have the same
values the answer is UNKNOWN, and the caller decides.
"""

from collections.abc import Callable
from enum import StrEnum
from math import inf
from typing import Final

import msgspec

from headgate.databases.mysql.types import MysqlType
from headgate.databases.postgresql.types import PostgresType
from headgate.tables.widening import BLOB_BYTES, TEXT_BYTES, UTF8_BYTES, places

__all__ = ["Holding", "characters", "held", "holding", "is_of_fixed_range", "longest_label"]

_Type = PostgresType | MysqlType


class Holding(StrEnum):
    """What is known of a type's room for the values of another one."""

    HOLDS = "holds"
    LOSES = "loses"
    """Some value does not fit, or would be changed."""
    UNKNOWN = "unknown"


class _Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a type of numbers holds: from ``low`` to ``high``, with ``places`` behind the point.

    ``digits``: how many of a number's are exact. ``exact``: all integers up to this one are.
    """

    low: float
    high: float
    places: float = 0
    digits: float = inf
    exact: float = inf


_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "oid": 32, "bigint": 64}
_YEARS: Final = _Numbers(low=1901, high=2155)
_SINGLE: Final = _Numbers(low=-3.4028234e38, high=3.4028234e38, places=inf, digits=6, exact=2**24)
_DOUBLE: Final = _Numbers(low=-1.7976931348623157e308, high=1.7976931348623157e308, places=inf, digits=15, exact=2**53)
_FLOATS: Final = {"real": _SINGLE, "float": _SINGLE, "double precision": _DOUBLE, "double": _DOUBLE}
_SINGLE_BITS_MAX: Final = 24
"""A ``float(25)`` of MySQL is a double."""

_TIMES: Final = {
    **dict.fromkeys(("time without time zone", "time with time zone", "interval"), 6),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), 6),
    **dict.fromkeys(("time", "datetime", "timestamp"), 0),
}
"""Type → digits of its seconds where no number is in brackets."""

_WITH_TIME: Final = frozenset({"timestamp without time zone", "timestamp with time zone", "datetime", "timestamp"})
_WITHOUT_ZONE: Final = frozenset({"timestamp without time zone", "datetime"})
_HELD_ELSEWHERE: Final = frozenset({("json", "jsonb"), ("json", "text"), ("jsonb", "text"), ("json", "longtext")})
"""(type, another one that holds all of its values)."""


def held(is_held: bool) -> Holding:
    """HOLDS or LOSES."""
    return Holding.HOLDS if is_held else Holding.LOSES


def holding(found: _Type, wanted: _Type) -> Holding:
    """Whether ``found`` holds every value of ``wanted``. Both are of one kind of database."""
    if isinstance(found, MysqlType) is not isinstance(wanted, MysqlType):
        return Holding.UNKNOWN
    if isinstance(found, PostgresType) and isinstance(wanted, PostgresType):
        if found.is_array is not wanted.is_array:
            return Holding.LOSES
        if found.own is not None or wanted.own is not None:
            return held(True) if found.own == wanted.own else Holding.UNKNOWN
    for compared in _KINDS:
        told = compared(found, wanted)
        if told is not None:
            return told
    if found.name == wanted.name and found.numbers == wanted.numbers:
        return Holding.HOLDS
    return held(True) if (wanted.name, found.name) in _HELD_ELSEWHERE else Holding.UNKNOWN


def is_of_fixed_range(type_: _Type) -> bool:
    """Whether it is a type of numbers that needs no number in brackets: its name alone shows what it holds."""
    return type_.name in _BITS or type_.name in _FLOATS


def longest_label(labels: tuple[str, ...], *, is_set: bool) -> int:
    """Characters of the longest value that these labels make."""
    return len(",".join(labels)) if is_set else max(map(len, labels), default=0)


def _by_numbers(found: _Type, wanted: _Type) -> Holding | None:
    here, mine = _numbers(found), _numbers(wanted)
    if here is None or mine is None:
        return None
    digits = _digits(wanted, mine)
    is_within = here.low <= mine.low and mine.high <= here.high and mine.places <= here.places
    is_whole = mine.places <= 0 and max(mine.high, -mine.low) <= here.exact
    return held(is_within and (digits <= here.digits or is_whole))


def _numbers(type_: _Type) -> _Numbers | None:
    is_unsigned = type_.name == "oid" or (isinstance(type_, MysqlType) and type_.is_unsigned)
    bits = _BITS.get(type_.name)
    if bits is not None:
        return _Numbers(low=0, high=2**bits - 1) if is_unsigned else _Numbers(low=-(2 ** (bits - 1)), high=_top(bits))
    if type_.name == "year":
        return _YEARS
    found = _decimal(type_) if type_.name in ("numeric", "decimal") else _float(type_)
    return msgspec.structs.replace(found, low=0) if found is not None and is_unsigned else found


def _top(bits: int) -> int:
    return int(2 ** (bits - 1)) - 1


def _decimal(type_: _Type) -> _Numbers:
    if isinstance(type_, PostgresType) and not type_.numbers:
        return _Numbers(low=-inf, high=inf, places=inf)
    before, behind = places(type_)
    top = _before(before)
    return _Numbers(low=-top, high=top, places=behind)


def _before(digits: int) -> float:
    """The largest number of so many digits before the point; with fewer than none it is a fraction."""
    return 10**digits - 1 if digits > 0 else 10.0**digits


def _float(type_: _Type) -> _Numbers | None:
    found = _FLOATS.get(type_.name)
    if found is None or not type_.numbers:
        return found
    if len(type_.numbers) == 1:
        return _SINGLE if type_.numbers[0] <= _SINGLE_BITS_MAX else _DOUBLE
    digits, behind = type_.numbers
    top = _before(digits - behind)
    return msgspec.structs.replace(found, low=-top, high=top, places=behind)


def _digits(type_: _Type, numbers: _Numbers) -> float:
    """How many digits a number of the type has that must be exact."""
    is_decimal = type_.name in ("numeric", "decimal") and numbers.places != inf
    return sum(places(type_)) if is_decimal else numbers.digits


def _by_characters(found: _Type, wanted: _Type) -> Holding | None:
    if isinstance(found, MysqlType) and found.labels:
        if not (isinstance(wanted, MysqlType) and wanted.labels):
            return None
        is_held = set(wanted.labels) <= set(found.labels)
        return held(is_held) if found.name == wanted.name or not is_held else Holding.UNKNOWN
    here, mine = characters(found), characters(wanted)
    if here is None or mine is None:
        return None
    if here[1] < mine[1]:
        return Holding.LOSES
    if found.name in ("character", "char") and wanted.name != found.name:
        return Holding.UNKNOWN  # it loses spaces at the end
    return held(True) if here[0] >= mine[1] or here == mine else Holding.UNKNOWN


def characters(type_: _Type) -> tuple[float, float] | None:
    """How many characters the type holds at least, and at most, if that depends on how they are encoded."""
    if isinstance(type_, MysqlType):
        if type_.labels:
            length = longest_label(type_.labels, is_set=type_.name == "set")
            return length, length
        size = TEXT_BYTES.get(type_.name)
        if size is not None:
            return size // UTF8_BYTES, size
    if type_.name in ("char", "varchar", "character"):
        return (type_.numbers[0],) * 2 if type_.numbers else (1, 1)
    if type_.name == "character varying" and type_.numbers:
        return type_.numbers[0], type_.numbers[0]
    return (inf, inf) if type_.name in ("character varying", "text") else None


def _by_bytes(found: _Type, wanted: _Type) -> Holding | None:
    here, mine = _bytes(found), _bytes(wanted)
    if here is None or mine is None:
        return None
    if here >= mine and found.name == "binary" and (wanted.name, mine) != ("binary", here):
        return Holding.UNKNOWN  # it adds zeros
    return held(here >= mine)


def _bytes(type_: _Type) -> float | None:
    if type_.name == "bytea":
        return inf
    if type_.name in ("binary", "varbinary"):
        return type_.numbers[0] if type_.numbers else 1
    return BLOB_BYTES.get(type_.name)


def _by_bits(found: _Type, wanted: _Type) -> Holding | None:
    if {found.name, wanted.name} - {"bit", "bit varying"}:
        return None
    here, mine = _width(found), _width(wanted)
    if isinstance(found, PostgresType) and found.name == "bit" and here > mine:
        return Holding.UNKNOWN  # it takes no fewer bits
    return held(here >= mine)


def _width(type_: _Type) -> float:
    return type_.numbers[0] if type_.numbers else (inf if type_.name == "bit varying" else 1)


def _by_times(found: _Type, wanted: _Type) -> Holding | None:
    if found.name == "date" and wanted.name in _WITH_TIME:
        return Holding.LOSES
    if wanted.name == "date" and found.name in _WITHOUT_ZONE:
        return Holding.HOLDS
    if found.name not in _TIMES or wanted.name not in _TIMES:
        return None
    if _seconds(found) < _seconds(wanted):
        return Holding.LOSES
    return Holding.HOLDS if found.name == wanted.name else Holding.UNKNOWN


def _seconds(type_: _Type) -> int:
    return type_.numbers[0] if type_.numbers else _TIMES[type_.name]


_KINDS: Final[tuple[Callable[[_Type, _Type], Holding | None], ...]] = (
    _by_numbers, _by_characters, _by_bytes, _by_bits, _by_times,
)  # fmt: skip
"""Each answers for types of its kind, and None for others."""
