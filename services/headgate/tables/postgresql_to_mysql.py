"""PostgreSQL → MySQL and MariaDB: types that hold the same values, as docs/types.md has them.

Columns of text compare byte by byte, as in PostgreSQL's own collations.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.catalogue import Product
from headgate.databases.mysql.types import MysqlType
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn
from headgate.databases.postgresql.sql import NAME_BYTES_MAX
from headgate.databases.postgresql.types import PostgresType, parse_type
from headgate.tables.mapped import Default, Mapped, Outcome, Unmapped
from headgate.tables.postgresql_to_postgresql import altered, lost_elements, unknown, unwritable, unwritten

__all__ = ["ARRAYS", "EXACT", "NO_YEARS", "to_mysql"]

EXACT: Final = {
    Product.MARIADB: ("utf8mb4", "utf8mb4_nopad_bin"),
    Product.MYSQL: ("utf8mb4", "utf8mb4_0900_bin"),
}
"""Character set and collation that distinguish all texts, also by trailing spaces."""

VARCHAR_CHARACTERS_MAX: Final = 768
"""3 072 bytes, as long as an index may be. A longer text becomes a longtext: rows have at most 65 535 bytes without."""

_CHAR_CHARACTERS_MAX: Final = 255
_BITS_MAX: Final = 64
_DIGITS_MAX: Final = 65
_SCALE_MAX: Final = 30
_PRECISION: Final = 6
"""Of PostgreSQL's times where none is written. MySQL's is 0."""

_NO_NAN: Final = "NaN and the infinities"
NO_YEARS: Final = "infinity, and years before 1 or after 9999"

_JSON: Final = Mapped(type=MysqlType(name="json"))

_PLAIN: Final = {
    "smallint": Mapped(type=MysqlType(name="smallint"), default=Default.NUMBER),
    "integer": Mapped(type=MysqlType(name="int"), default=Default.NUMBER),
    "bigint": Mapped(type=MysqlType(name="bigint"), default=Default.NUMBER),
    "oid": Mapped(type=MysqlType(name="int", is_unsigned=True), default=Default.NUMBER),
    "real": Mapped(type=MysqlType(name="float"), default=Default.NUMBER, lacks=_NO_NAN),
    "double precision": Mapped(type=MysqlType(name="double"), default=Default.NUMBER, lacks=_NO_NAN),
    "money": Mapped(type=MysqlType(name="decimal", numbers=(19, 2))),
    "boolean": Mapped(type=MysqlType(name="tinyint", numbers=(1,)), default=Default.BOOLEAN),
    "bytea": Mapped(type=MysqlType(name="longblob")),
    "point": Mapped(type=MysqlType(name="point"), lacks="NaN and infinity"),
    "json": _JSON,
    "jsonb": _JSON,
    "date": Mapped(type=MysqlType(name="date"), default=Default.TIME, lacks=NO_YEARS),
}
"""Types without numbers in brackets."""

_TEXTS: Final = {
    "text": None,
    "uuid": 36,
    "inet": 50,
    "cidr": 50,
    "macaddr": 17,
    "macaddr8": 23,
    "int4range": 50,
    "int8range": 50,
    "daterange": 50,
    "tsrange": 100,
    "tstzrange": 100,
    "numrange": None,
    "interval": None,
}
"""Type → characters of its longest text, None without a limit."""

ARRAYS: Final = frozenset(
    {"smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean", "text", "character varying"}
    | {"date", "uuid", "timestamp without time zone", "timestamp with time zone"}
)
"""Elements of arrays that arrive complete, and are unchanged in JSON."""


def to_mysql(column: PostgresColumn, enum: EnumType | None, sink: Product) -> Outcome:
    """The sink's column. ``enum``: the one that the column's values, or the elements of its arrays, are of."""
    never = unwritten(column)
    if never is not None:
        return never
    if enum is not None:
        # A label is a name, and new ones may be added: a text takes them without an ALTER.
        lost = lost_elements(column)
        if lost is not None:
            return Unmapped(lost, "json")
        return _text(NAME_BYTES_MAX, sink)
    found = parse_type(column.base)
    if found is None:
        return msgspec.structs.replace(unknown(column), instead="json" if column.base == "hstore" else "longtext")
    reason = unwritable(column, found)
    if reason is not None:
        return Unmapped(reason, "json" if found.is_array else _INSTEAD[found.name])
    outcome = _of(found, sink)
    return msgspec.structs.replace(outcome, altered=altered(found)) if isinstance(outcome, Mapped) else outcome


_INSTEAD: Final = {"bit varying": "bit(64)", "time with time zone": "time(6)"}
"""Type whose values the connector changes → what a user may choose all the same."""


def _of(found: PostgresType, sink: Product) -> Outcome:
    if found.is_array:
        return _JSON if found.name in ARRAYS else Unmapped(f"arrays of {found.name} do not arrive whole", "json")
    if found.name in _TEXTS:
        return _text(_TEXTS[found.name], sink)
    special = _SPECIAL.get(found.name)
    if special is not None:
        return special(found, sink)
    return _PLAIN.get(found.name) or Unmapped(f"{sink} has no like of {found.name}", "longtext")


def _text(characters: int | None, sink: Product) -> Outcome:
    if characters is None or characters > VARCHAR_CHARACTERS_MAX:
        return Mapped(type=MysqlType(name="longtext", collation=EXACT[sink]))
    return Mapped(type=MysqlType(name="varchar", numbers=(characters,), collation=EXACT[sink]), default=Default.TEXT)


def _varying(found: PostgresType, sink: Product) -> Outcome:
    return _text(found.numbers[0] if found.numbers else None, sink)


def _character(found: PostgresType, sink: Product) -> Outcome:
    if not found.numbers or found.numbers[0] > _CHAR_CHARACTERS_MAX:
        return _varying(found, sink)
    return Mapped(type=MysqlType(name="char", numbers=found.numbers, collation=EXACT[sink]), default=Default.TEXT)


def _numeric(found: PostgresType, sink: Product) -> Outcome:
    del sink
    if not found.numbers:
        return Unmapped("a numeric without a precision has up to 147455 digits", "decimal(65,30)")
    precision, scale = found.numbers if len(found.numbers) > 1 else (found.numbers[0], 0)
    # numeric(3,5) is 0.00999 at most, numeric(3,-2) 99900.
    digits, places = max(precision, scale) - min(scale, 0), max(scale, 0)
    if digits > _DIGITS_MAX or places > _SCALE_MAX:
        return Unmapped(
            f"decimal has at most {_DIGITS_MAX} digits, {_SCALE_MAX} of them behind the point", "decimal(65,30)"
        )
    return Mapped(type=MysqlType(name="decimal", numbers=(digits, places)), default=Default.NUMBER, lacks="NaN")


def _bit(found: PostgresType, sink: Product) -> Outcome:
    del sink
    width = found.numbers[0] if found.numbers else 1
    if width > _BITS_MAX:
        return Unmapped(f"bit has at most {_BITS_MAX} bits", "longtext")
    return Mapped(type=MysqlType(name="bit", numbers=(width,)))


def _time(kind: str, default: Default, lacks: str) -> Callable[[PostgresType, Product], Outcome]:
    def mapped(found: PostgresType, sink: Product) -> Outcome:
        del sink
        return Mapped(type=MysqlType(name=kind, numbers=found.numbers or (_PRECISION,)), default=default, lacks=lacks)

    return mapped


_SPECIAL: Final[dict[str, Callable[[PostgresType, Product], Outcome]]] = {
    "character varying": _varying,
    "character": _character,
    "numeric": _numeric,
    "bit": _bit,
    "time without time zone": _time("time", Default.TIME, ""),
    "timestamp without time zone": _time("datetime", Default.TIME, NO_YEARS),
    "timestamp with time zone": _time("datetime", Default.NONE, NO_YEARS),
}
"""Types whose numbers, or whose meaning, need more than a line."""
