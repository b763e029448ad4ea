"""Whether values that an event's schema describes can be of a source's column, as the catalogue has it now. Pure.

An old event can be of a column that was dropped and added again with another type. What a value means is compared by
kinds, because a connector writes one type in several ways (``decimal.handling.mode`` and others). What is unknown on
either side is not judged: the sink still checks each value.
"""

from typing import Final

from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.postgresql.catalogue import PostgresColumn
from headgate.databases.postgresql.types import parse_type

__all__ = ["is_misfit"]

_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "io.debezium.time.Year"})
_DECIMALS: Final = frozenset({"org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"})
_NAMED_TEXTS: Final = ("io.debezium.data.Enum", "io.debezium.data.EnumSet", "io.debezium.data.Json",
                       "io.debezium.data.Xml", "io.debezium.data.Uuid", "io.debezium.data.Ltree")  # fmt: skip
_DURATIONS: Final = ("io.debezium.time.Interval", "io.debezium.time.MicroDuration")
_TIMES: Final = ("io.debezium.time.", "org.apache.kafka.connect.data.")

_KINDS: Final = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(_DECIMALS, "decimal"),
    **dict.fromkeys(("float32", "float64", "float", "double"), "float"),
    **dict.fromkeys(_NAMED_TEXTS, "named text"),
    **dict.fromkeys(_DURATIONS, "duration"),
    "io.debezium.data.Bits": "bits",
    "boolean": "boolean",
    "string": "text",
    "bytes": "bytes",
    "array": "array",
}
"""Meaning without its parameter → what kind of value it is."""

_TIME_KINDS: Final = {"Timestamp": "timestamp", "Date": "date", "": "time"}
"""How the name of a time's schema ends → what kind of time it is."""

_NUMBERS: Final = frozenset({"decimal", "float", "text"})
_TEXT: Final = frozenset({"text"})
_NAMED: Final = frozenset({"named text", "text"})
_BYTES: Final = frozenset({"bytes", "text"})
_BITS: Final = frozenset({"boolean", "bits", "bytes"})
_DATE: Final = frozenset({"date", "text"})
_CLOCK: Final = frozenset({"time", "text"})
_INSTANT: Final = frozenset({"timestamp", "text"})

_POSTGRESQL: Final = {
    **dict.fromkeys(("smallint", "integer", "bigint", "oid"), frozenset({"integer"})),
    **dict.fromkeys(("numeric", "money"), _NUMBERS),
    **dict.fromkeys(("real", "double precision"), frozenset({"float"})),
    **dict.fromkeys(("text", "character varying", "character"), _TEXT),
    **dict.fromkeys(("json", "jsonb", "uuid"), _NAMED),
    **dict.fromkeys(("bit", "bit varying"), _BITS),
    **dict.fromkeys(("time without time zone", "time with time zone"), _CLOCK),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), _INSTANT),
    "date": _DATE,
    "interval": frozenset({"duration", "text"}),
    "boolean": frozenset({"boolean"}),
    "bytea": _BYTES,
}
_MYSQL: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int"), frozenset({"integer", "boolean"})),
    **dict.fromkeys(("float", "double"), frozenset({"float"})),
    **dict.fromkeys(("datetime", "timestamp"), _INSTANT),
    "date": _DATE,
    "time": _CLOCK,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXT),
    **dict.fromkeys(("enum", "set", "json", "uuid"), _NAMED),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    "bigint": frozenset({"integer", "decimal"}),
    "decimal": _NUMBERS,
    "year": frozenset({"integer"}),
    "bit": _BITS,
}
"""Type → kinds of values that a connector writes of it."""


def is_misfit(meaning: str, column: PostgresColumn | MysqlColumn) -> bool:
    """Whether such values cannot come from the column. ``meaning``: see Change.semantics, empty if nothing is known."""
    kind, allowed = _kind(meaning), _allowed(column)
    return kind is not None and allowed is not None and kind not in allowed


def _kind(meaning: str) -> str | None:
    name = meaning.partition("(")[0]
    found = _KINDS.get(name)
    if found is not None or not name.startswith(_TIMES):
        return found
    return next(kind for end, kind in _TIME_KINDS.items() if name.endswith(end))


def _allowed(column: PostgresColumn | MysqlColumn) -> frozenset[str] | None:
    if isinstance(column, MysqlColumn):
        return _MYSQL.get(column.kind)
    if column.is_enum:
        return _NAMED
    found = parse_type(column.base)
    if found is None:
        return None
    return frozenset({"array"}) if found.is_array else _POSTGRESQL.get(found.name)
