"""PostgreSQL → tables of a lake: types that hold the same values, as docs/types.md has them.

What a lake has no type for becomes a string, as PostgreSQL writes the value. Numbers never do by themselves: a lake
would compare and sum them in another way.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn
from headgate.databases.postgresql.types import PostgresType, parse_type
from headgate.sinks.creating import DIGITS_MAX, LakeType
from headgate.tables.mapped import Mapped, Outcome, Unmapped
from headgate.tables.postgresql_to_mysql import ARRAYS, NO_YEARS
from headgate.tables.postgresql_to_postgresql import altered, lost_elements, unknown, unwritable, unwritten

__all__ = ["STRING", "decimal", "to_lake"]

STRING: Final = Mapped(type=LakeType(name="string"))

_PLAIN: Final = {
    "smallint": Mapped(type=LakeType(name="smallint")),
    "integer": Mapped(type=LakeType(name="int")),
    "bigint": Mapped(type=LakeType(name="bigint")),
    "oid": Mapped(type=LakeType(name="bigint")),
    "real": Mapped(type=LakeType(name="float")),
    "double precision": Mapped(type=LakeType(name="double")),
    "money": Mapped(type=LakeType(name="decimal", numbers=(19, 2))),
    "boolean": Mapped(type=LakeType(name="boolean")),
    "bytea": Mapped(type=LakeType(name="binary")),
    "date": Mapped(type=LakeType(name="date"), lacks=NO_YEARS),
    "timestamp without time zone": Mapped(type=LakeType(name="timestamp_ntz"), lacks=NO_YEARS),
    "timestamp with time zone": Mapped(type=LakeType(name="timestamp"), lacks=NO_YEARS),
}
"""Types without numbers, or whose numbers do not matter."""

_TEXTS: Final = frozenset(
    {"text", "character varying", "character", "json", "jsonb", "uuid", "inet", "cidr", "macaddr", "macaddr8"}
    | {"int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange", "interval"}
    | {"time without time zone"}
)


def to_lake(column: PostgresColumn, enum: EnumType | None) -> Outcome:
    """The sink's column. ``enum``: the one that the column's values, or the elements of its arrays, are of."""
    never = unwritten(column)
    if never is not None:
        return never
    if enum is not None:
        lost = lost_elements(column)
        return STRING if lost is None else Unmapped(lost, "string")
    found = parse_type(column.base)
    if found is None:
        return msgspec.structs.replace(unknown(column), instead="string")
    reason = unwritable(column, found)
    if reason is not None:
        return Unmapped(reason, "string")
    outcome = _of(found)
    return msgspec.structs.replace(outcome, altered=altered(found)) if isinstance(outcome, Mapped) else outcome


def _of(found: PostgresType) -> Outcome:
    if found.is_array:
        return STRING if found.name in ARRAYS else Unmapped(f"arrays of {found.name} do not arrive whole", "string")
    if found.name in _TEXTS:
        return STRING
    special = _SPECIAL.get(found.name)
    if special is not None:
        return special(found)
    return _PLAIN.get(found.name) or Unmapped(f"a lake has no like of {found.name}", "string")


def decimal(digits: int, places: int, *, lacks: str = "") -> Outcome:
    """A decimal of so many digits, ``places`` of them behind the point."""
    if digits > DIGITS_MAX:
        return Unmapped(f"a decimal of a lake has at most {DIGITS_MAX} digits, and this one has {digits}", "string")
    return Mapped(type=LakeType(name="decimal", numbers=(digits, places)), lacks=lacks)


def _numeric(found: PostgresType) -> Outcome:
    if not found.numbers:
        return Unmapped("a numeric without a precision has up to 147455 digits", "string")
    precision, scale = found.numbers if len(found.numbers) > 1 else (found.numbers[0], 0)
    # numeric(3,5) is 0.00999 at most, numeric(3,-2) 99900.
    return decimal(max(precision, scale) - min(scale, 0), max(scale, 0), lacks="NaN")


def _bit(found: PostgresType) -> Outcome:
    return Mapped(type=LakeType(name="boolean")) if found.numbers in ((), (1,)) else STRING


_SPECIAL: Final[dict[str, Callable[[PostgresType], Outcome]]] = {"numeric": _numeric, "bit": _bit}
"""Types whose numbers decide."""
