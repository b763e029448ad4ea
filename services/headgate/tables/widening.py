"""Whether a type of a database holds every value of another one, and more. Pure; an allow-list.

A value must also keep its text: what a column has before it is widened is what a new row would get for the same value.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headgate.databases.mysql.types import MysqlType
from headgate.databases.postgresql.types import PostgresType
from headgate.sinks.creating import LakeType

__all__ = ["BLOB_BYTES", "TEXT_BYTES", "UTF8_BYTES", "holds_labels", "is_wider", "places"]

_UNBOUNDED: Final = 2**40
"""More than any number of digits or characters."""

_POSTGRESQL_INTEGERS: Final = {"smallint": 5, "integer": 10, "bigint": 19}
_LAKE_INTEGERS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MYSQL_INTEGERS: Final = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
"""Type → digits of its longest number."""

_WITHOUT_NUMBER: Final = {
    **dict.fromkeys(("time without time zone", "time with time zone"), 6),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), 6),
    "bit varying": _UNBOUNDED,
}
"""Types of PostgreSQL → their number where none is in brackets."""
_VARYING: Final = frozenset({"character varying", "text"})

UTF8_BYTES: Final = 4
TEXT_BYTES: Final = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
BLOB_BYTES: Final = {"tinyblob": 2**8 - 1, "blob": 2**16 - 1, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1}


def is_wider(new: PostgresType | MysqlType | LakeType, old: PostgresType | MysqlType | LakeType) -> bool:
    """Whether ``new`` holds every value of ``old``, and others. Both are of one database, or of a lake."""
    if isinstance(new, LakeType) and isinstance(old, LakeType):
        return _lake(new, old)
    if isinstance(new, PostgresType) and isinstance(old, PostgresType):
        return _postgresql(new, old)
    if isinstance(new, MysqlType) and isinstance(old, MysqlType):
        return _mysql(new, old)
    return False


def holds_labels(new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether ``new`` has the labels of ``old``, in their order, and others."""
    return len(new) > len(old) and [label for label in new if label in old] == list(old)


def _postgresql(new: PostgresType, old: PostgresType) -> bool:
    if new.own is not None or old.own is not None or new.is_array or old.is_array:
        return False
    if old.name in _POSTGRESQL_INTEGERS:
        digits = _POSTGRESQL_INTEGERS[old.name]
        is_decimal = new.name == "numeric" and places(new)[0] >= digits
        return is_decimal or _POSTGRESQL_INTEGERS.get(new.name, 0) > digits
    if {new.name, old.name} <= _VARYING:
        return _first(new, _UNBOUNDED) > _first(old, _UNBOUNDED)
    if old.name == "numeric" == new.name:
        return _is_longer(places(new), places(old))
    without = _WITHOUT_NUMBER.get(old.name)
    return without is not None and new.name == old.name and _first(new, without) > _first(old, without)


def _lake(new: LakeType, old: LakeType) -> bool:
    """A source that makes a double of a float changes its values as a lake does, so that is one, too."""
    if old.name in _LAKE_INTEGERS:
        digits = _LAKE_INTEGERS[old.name]
        is_decimal = new.name == "decimal" and places(new)[0] >= digits
        return is_decimal or _LAKE_INTEGERS.get(new.name, 0) > digits
    if old.name == "decimal" == new.name:
        return _is_longer(places(new), places(old))
    return (old.name, new.name) == ("float", "double")


def places(numeric: PostgresType | MysqlType | LakeType) -> tuple[int, int]:
    """Digits before and behind the point of a decimal."""
    if isinstance(numeric, MysqlType):
        precision, scale = numeric.decimal_digits
    elif numeric.numbers:
        precision, scale = numeric.numbers if len(numeric.numbers) > 1 else (numeric.numbers[0], 0)
    else:
        return _UNBOUNDED, _UNBOUNDED
    return precision - scale, scale


def _is_longer(new: tuple[int, int], old: tuple[int, int]) -> bool:
    return new != old and new[0] >= old[0] and new[1] >= old[1]


def _first(type_: PostgresType | MysqlType, without: int) -> int:
    return type_.numbers[0] if type_.numbers else without


def _mysql(new: MysqlType, old: MysqlType) -> bool:
    if new.is_zerofill or old.is_zerofill:
        return False
    if old.name in _MYSQL_INTEGERS:
        return _wider_integer(new, old)
    if new.name == old.name and old.name in _MYSQL_SAME:
        return _MYSQL_SAME[old.name](new, old)
    return _wider_text(new, old) if old.is_text and new.is_text else _wider_bytes(new, old)


def _wider_decimal(new: MysqlType, old: MysqlType) -> bool:
    return new.is_unsigned == old.is_unsigned and _is_longer(places(new), places(old))


def _wider_labels(new: MysqlType, old: MysqlType) -> bool:
    return holds_labels(new.labels, old.labels)


def _wider_time(new: MysqlType, old: MysqlType) -> bool:
    return _first(new, 0) > _first(old, 0)


_MYSQL_SAME: Final[dict[str, Callable[[MysqlType, MysqlType], bool]]] = {
    "decimal": _wider_decimal,
    **dict.fromkeys(("enum", "set"), _wider_labels),
    **dict.fromkeys(("time", "datetime", "timestamp"), _wider_time),
}
"""Types that only become longer."""


def _wider_integer(new: MysqlType, old: MysqlType) -> bool:
    if new.name not in _MYSQL_INTEGERS:
        is_fit = new.is_unsigned <= old.is_unsigned
        return new.name == "decimal" and is_fit and places(new)[0] >= _MYSQL_INTEGERS[old.name]
    is_longer = _MYSQL_INTEGERS[new.name] > _MYSQL_INTEGERS[old.name]
    # The next longer signed type holds every unsigned number.
    return is_longer and (old.is_unsigned or not new.is_unsigned)


def _wider_text(new: MysqlType, old: MysqlType) -> bool:
    if new.name == old.name:
        return old.name in ("char", "varchar") and _first(new, 1) > _first(old, 1)
    if old.name == "varchar":
        return TEXT_BYTES.get(new.name, 0) >= UTF8_BYTES * _first(old, 1)
    return old.name in TEXT_BYTES and TEXT_BYTES.get(new.name, 0) > TEXT_BYTES[old.name]


def _wider_bytes(new: MysqlType, old: MysqlType) -> bool:
    if old.name == "varbinary":
        length = _first(old, 1)
        return (new.name == "varbinary" and _first(new, 1) > length) or BLOB_BYTES.get(new.name, 0) >= length
    return old.name in BLOB_BYTES and BLOB_BYTES.get(new.name, 0) > BLOB_BYTES[old.name]
