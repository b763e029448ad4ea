"""Types of the source's catalogue: what values of events are, where the events themselves do not show it.

Events without schemas have the JSON of their connector's settings: a decimal may be a text or bytes, a date a number or
a text. The column's type decides what it is, so that an expression means the same as with schemas. Some schemas do not
show the type either: a decimal that is written as a text has that of a text.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, Protocol

import msgspec

from headgate.config.expressions import Kind
from headgate.config.moments import day_of, micros_of
from headgate.formats.change import ABSENT
from headgate.formats.connectors import is_of_mysql
from headgate.formats.decimal_bytes import UNSIGNED_DIGITS, is_base64
from headgate.formats.expressions.reading import Read, Readable, absent, days, decimals, present, texts, typed, unfit
from headgate.formats.expressions.values import read_of_database, read_of_event
from headgate.formats.meaning import decimal_form
from headgate.formats.time_units import MICROS, MILLIS, other_unit

__all__ = [
    "BYTES", "UNSIGNED_BYTES", "DeclaredTypes", "SourceColumn", "SourceTypes", "SourceTypesUnavailableError",
    "is_bytes", "is_doubtful", "read_as_declared", "read_of_schema",
]  # fmt: skip

_DECIMAL_TEXT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?")
_ISO_DATE: Final = "io.debezium.time.IsoDate"
_ISO_TIMESTAMP: Final = "io.debezium.time.IsoTimestamp"
_TEXT: Final = "string"
_NOT_FINITE: Final = frozenset({"Infinity"})
"""Texts of decimals that are base64 as well."""

_MODE: Final = (
    ". The connector has written it as a text, which may be digits or bytes: set source.decimal_handling_mode to the "
    "connector's decimal.handling.mode"
)
BYTES: Final = (
    ". The connector has written it as bytes, and the event does not show their scale, which may have been another one "
    "when it was written: set the connector's decimal.handling.mode=string, or let its events have schemas "
    "(schemas.enable=true). Events that were written before stay as they are"
)
UNSIGNED_BYTES: Final = (
    ". The connector has written it as bytes, and the event does not show their scale: let its events have schemas "
    "(schemas.enable=true), or, if no value is above 9223372036854775807, set its bigint.unsigned.handling.mode=long"
)
_UNIT: Final = (
    ". It seems to count {}, which does not match the column's precision: leave the connector's time.precision.mode at "
    "adaptive, or use events with schemas"
)
_WRAPPED: Final = (
    ". It is a negative number of a bigint unsigned, because the connector wraps large ones around: set its "
    "bigint.unsigned.handling.mode=precise, and let its events have schemas"
)


class SourceColumn(msgspec.Struct, frozen=True):
    """A column's type. ``kind`` is UNKNOWN where values decide: a connector may write tinyint(1) as a boolean.

    ``scale``: of a decimal with a fixed one. ``is_fine``: a timestamp with more than three digits behind the second,
    which a connector writes in microseconds. ``is_unsigned``: an integer that needs more than 63 bits.
    """

    kind: Kind
    scale: int | None = None
    is_fine: bool = False
    is_unsigned: bool = False


class SourceTypes(msgspec.Struct, frozen=True):
    """The columns of one table. ``is_debezium``: whether its events are Debezium's; others have the database's texts.

    ``decimals``: the connector's ``decimal.handling.mode``, if the feed defines it.
    """

    columns: Mapping[str, SourceColumn]
    is_debezium: bool = True
    decimals: str | None = None


class SourceTypesUnavailableError(Exception):
    """The source's catalogue cannot be read now. The events are not at fault, and wait."""

    code = "source_types"
    retryable = True


class DeclaredTypes(Protocol):
    """The types of a table whose source database is known."""

    def known(self) -> SourceTypes:
        """What is known of them: one object while they stay the same. Raises SourceTypesUnavailableError."""
        ...

    def again(self) -> SourceTypes:
        """The same, read again unless that was done just now: a value does not fit. As ``known`` if it fails."""
        ...

    def since(self, append_ms: int) -> SourceTypes:
        """The same, read after an event that the broker has appended then, by its clock.

        Raises SourceTypesUnavailableError if they cannot be read now.
        """
        ...


def is_doubtful(meaning: str, connector: str | None) -> bool:
    """Whether a schema leaves open what a column is."""
    return meaning in (_TEXT, _ISO_DATE, _ISO_TIMESTAMP) or (_is_whole(meaning) and is_of_mysql(connector))


def _is_whole(meaning: str) -> bool:
    """Whether it is that of decimals without digits behind the point."""
    form = decimal_form(meaning)
    return form is not None and form.scale == 0


def read_of_schema(column: str, meaning: str, connector: str | None, declared: DeclaredTypes) -> Readable:
    """Of a column whose events have a schema. Raises SourceTypesUnavailableError."""
    read = read_of_event(column, meaning)
    if meaning == "int64" and is_of_mysql(connector):
        return Readable(Kind.INTEGER, _signed(column, declared), checks_all=True)
    if not is_doubtful(meaning, connector):
        return read
    known = declared.known().columns.get(column)
    if known is None:
        return read
    if _is_whole(meaning):
        return Readable(Kind.INTEGER, _whole(column)) if known.is_unsigned else read
    read_text = _OF_DOUBTFUL.get((meaning, known.kind))
    return read if read_text is None else Readable(known.kind, texts(column, read_text))


def read_as_declared(column: str, known: SourceColumn, types: SourceTypes) -> Readable | None:
    """Of a column whose events have no schema; None where values decide."""
    if known.kind is Kind.UNKNOWN:
        return None
    if known.kind is Kind.OTHER:
        return Readable(Kind.OTHER, present(column))
    if types.is_debezium:
        return _of_debezium(column, known, types)
    return Readable(known.kind, _of_text(column, known.kind), checks_all=True)


def _of_debezium(column: str, known: SourceColumn, types: SourceTypes) -> Readable:
    kind = known.kind
    if kind is Kind.INTEGER and known.is_unsigned:
        return Readable(kind, _unsigned(column), checks_all=True)
    if kind is Kind.NUMERIC:
        return Readable(kind, _numbers(column, types.decimals))
    if kind is Kind.TIMESTAMP:
        return Readable(kind, _timestamps(column, is_fine=known.is_fine))
    if kind is Kind.TIMESTAMPTZ:
        return Readable(kind, texts(column, lambda text: micros_of(text, zoned=True)))
    return Readable(kind, _dates(column) if kind is Kind.DATE else typed(column, _TYPES[kind]))


_TYPES: Final[Mapping[Kind, type]] = {Kind.INTEGER: int, Kind.BOOLEAN: bool, Kind.TEXT: str}

_OF_TEXTS: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "bigint", Kind.NUMERIC: "decimal", Kind.DATE: "date", Kind.TIMESTAMP: "datetime",
    Kind.TIMESTAMPTZ: "timestamp",
}  # fmt: skip
"""A type with the texts of MySQL, whose events Canal, TiCDC and Maxwell write."""


def _of_text(column: str, kind: Kind) -> Read:
    if kind not in _OF_TEXTS:
        return typed(column, _TYPES[kind])
    read_text = read_of_database(column, "mysql", _OF_TEXTS[kind]).read
    read_number = {Kind.INTEGER: typed(column, int), Kind.NUMERIC: decimals(column, None)}.get(kind)

    def read(value: object) -> object:
        if value is None or isinstance(value, str) or value is ABSENT:
            return read_text(value)
        if read_number is None:
            raise unfit(column)
        return read_number(value)

    return read


def _signed(column: str, declared: DeclaredTypes) -> Read:
    """An integer, unless a large one was wrapped around. The catalogue is asked where the number is negative."""
    read_integer = typed(column, int)

    def read(value: object) -> object:
        if type(value) is int and value < 0:
            known = declared.known().columns.get(column)
            if known is not None and known.is_unsigned:
                raise unfit(column, _WRAPPED)
        return read_integer(value)

    return read


def _unsigned(column: str) -> Read:
    """A number. Its bytes (bigint.unsigned.handling.mode=precise) could be those of a decimal that it was before."""
    read_decimal = _whole(column)

    def read(value: object) -> object:
        if type(value) is int and value < 0:
            raise unfit(column, _WRAPPED)
        if type(value) is str:
            raise unfit(column, UNSIGNED_BYTES)
        return value if type(value) is int else read_decimal(value)

    return read


def _whole(column: str) -> Read:
    """An integer from its bytes, or from a decimal. One with an exponent could have any number of digits."""
    read_decimal = decimals(column, 0)

    def read(value: object) -> object:
        number = read_decimal(value)
        if not isinstance(number, Decimal):
            return None
        if number.adjusted() >= UNSIGNED_DIGITS or number < 0:
            raise unfit(column)
        return int(number)

    return read


def _numbers(column: str, mode: str | None) -> Read:
    """A decimal as a number, with its own scale, or as a text of digits.

    Bytes alone are refused: the column's scale of now may not be the one that they were written with.
    """
    read_plain, read_digits = decimals(column, None), texts(column, _decimal_text)

    def read(value: object) -> object:
        if type(value) is not str:
            return read_plain(value)
        if mode == "precise" or (mode is None and is_base64(value)):
            is_open = mode is None and _DECIMAL_TEXT.fullmatch(value) is not None
            raise unfit(column, _MODE if is_open else BYTES)
        return read_digits(value)

    return read


def is_bytes(text: str) -> bool:
    """Whether a decimal's text is base64, and no digits."""
    return is_base64(text) and _DECIMAL_TEXT.fullmatch(text) is None and text not in _NOT_FINITE


def _decimal_text(text: str) -> Decimal:
    if _DECIMAL_TEXT.fullmatch(text) is None:
        raise ValueError
    return Decimal(text)


def _dates(column: str) -> Read:
    read_days, read_text = days(column), texts(column, _iso_day)
    return lambda value: read_text(value) if type(value) is str else read_days(value)


def _timestamps(column: str, *, is_fine: bool) -> Read:
    read_text = texts(column, _iso_micros)
    per_second = MICROS if is_fine else MILLIS
    micros = MICROS // per_second

    def read(value: object) -> object:
        if value is None or type(value) is str:
            return read_text(value)
        if type(value) is int:
            seen = other_unit(value, per_second)
            if seen is not None:
                raise unfit(column, _UNIT.format(seen))
            return value * micros
        raise absent(column) if value is ABSENT else unfit(column)

    return read


def _iso_day(text: str) -> int:
    return day_of(text.removesuffix("Z"))


def _iso_micros(text: str) -> int:
    return micros_of(text.removesuffix("Z"), zoned=False)


_OF_DOUBTFUL: Final[Mapping[tuple[str, Kind], Callable[[str], object]]] = {
    (_TEXT, Kind.NUMERIC): _decimal_text, (_ISO_DATE, Kind.DATE): _iso_day,
    (_ISO_TIMESTAMP, Kind.TIMESTAMP): _iso_micros,
}  # fmt: skip
"""What a schema calls a value, and the type that its column has → how its text is read."""
