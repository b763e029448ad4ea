"""The meaning of columns from an event's schema, as ``Change.semantics``, checked when it is read.

A schema is part of an event, so a wrong schema is an error of that event only. Sinks read the words made here without
a doubt: a parameter is a number within the bounds that databases have, a name holds nothing that marks a parameter,
and no column has the name of another entry of ``Change.semantics``.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.formats.change import BESIDE, ChangeError

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_DECIMAL_BEGIN: Final = f"{DECIMAL}("

COLUMNS_MAX: Final = 4_096
"""Columns that a table of MySQL can have; PostgreSQL's have 1 600."""

DEPTH_MAX: Final = 9
"""Arrays within arrays, or records within records. PostgreSQL's arrays have six dimensions at most."""

NAME_CHARACTERS_MAX: Final = 1_024
"""Of a schema's name: Kafka's longest topic name (249) with the names of database, schema and table behind it."""

COLUMN_CHARACTERS_MAX: Final = 256
"""Of a column's name: MySQL's have 64 characters at most, PostgreSQL's 63 bytes."""

SHOWN_MAX: Final = 40
"""Characters of a bad name or number in an error."""

_SCALE_MAX: Final = 16_383
"""Digits behind the point of PostgreSQL's numeric; a negative scale counts zeros before it."""
_LENGTH_MAX: Final = 2**31 - 1
"""Java's largest int, which a connector gives as the length of ``bit varying`` without one."""

_PARAMETERS: Final = {
    DECIMAL: ("scale", -_SCALE_MAX, _SCALE_MAX),
    "io.debezium.data.Bits": ("length", 0, _LENGTH_MAX),
}
"""Name of a schema → the parameter that its values cannot be read without, and the parameter's bounds."""

PRECISION: Final = "connect.decimal.precision"
"""The parameter of a decimal's schema that has the digits of its column. Its values can be read without."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_NAME: Final = re.compile(r"[^()\x00-\x1f]+")


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, str | int) else type(value).__name__
    return repr(text[:SHOWN_MAX]) + ("…" if len(text) > SHOWN_MAX else "")


def named(name: object) -> str:
    """A schema's name, or a type's. Raises ChangeError for one that could be taken for a parameter."""
    if not isinstance(name, str) or len(name) > NAME_CHARACTERS_MAX or _NAME.fullmatch(name) is None:
        raise ChangeError(f"the event's schema has {_shown(name)} as the name of a type, which is not a valid name")
    return name


def parametrised(name: str, parameters: Mapping[str, object]) -> str | None:
    """``name(parameter)`` for a type that needs one, None for any other. Raises ChangeError.

    Of a decimal the precision follows, if the schema has it: ``name(scale,precision)``.
    """
    known = _PARAMETERS.get(name)
    if known is None:
        return None
    parameter, least, most = known
    said = parameters.get(parameter)
    text = str(said) if type(said) is int and abs(said) <= _LENGTH_MAX else said
    if not isinstance(text, str) or _INTEGER.fullmatch(text) is None or not least <= int(text) <= most:
        raise ChangeError(
            f"the event's schema gives {name} the {parameter} {_shown(said)}; it must be an integer between {least} "
            f"and {most}"
        )
    if name == DECIMAL and (precision := _precision(parameters)) is not None:
        return f"{name}({int(text)},{precision})"
    return f"{name}({int(text)})"


def _precision(parameters: Mapping[str, object]) -> int | None:
    """None if it is not there, or cannot be one: then it only is not known."""
    text = str(parameters.get(PRECISION))
    return int(text) if _INTEGER.fullmatch(text) is not None and 0 < int(text) <= _SCALE_MAX else None


class DecimalForm(NamedTuple):
    """The digits of a decimal's column: behind the point, and all of them, if the schema has that."""

    scale: int
    precision: int | None


def decimal_form(meaning: str | None) -> DecimalForm | None:
    """What the meaning of a decimal that is sent as bytes has in brackets; None for any other meaning."""
    if meaning is None or not meaning.startswith(_DECIMAL_BEGIN):
        return None
    scale, _, precision = meaning[len(_DECIMAL_BEGIN) : -1].partition(",")
    return DecimalForm(int(scale), int(precision) if precision else None)


def array_of(items: str) -> str:
    """The meaning of an array whose items mean that."""
    return f"array({items})"


def check_columns(columns: Mapping[str, object]) -> None:
    """Raise ChangeError if a table cannot have these columns, or so many."""
    if len(columns) > COLUMNS_MAX:
        raise ChangeError(f"the event's schema has {len(columns)} columns; a table has {COLUMNS_MAX} at most")
    for column in columns:
        if not isinstance(column, str) or column in BESIDE or len(column) > COLUMN_CHARACTERS_MAX:
            raise ChangeError(f"the event's schema has a column named {_shown(column)}, which is not a valid name")
