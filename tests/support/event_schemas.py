"""Hypothesis strategies for events with their schemas: what a connector could write, and what it could not.

Each gives the bytes of an event; a schema's types, names, parameters and depth are drawn, and values beside them that
fit the schema, nearly fit it, or do not.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st

__all__ = ["BITS", "DECIMAL", "SINK_TYPES", "avro_events", "canal_messages", "debezium_events"]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
BITS = "io.debezium.data.Bits"

NUMBERS = (
    st.sampled_from(["0", "2", "-3", "10", "16383", "16384", "2147483647", "2147483648", "--5", "-", "", "+2", " 2"])
    | st.sampled_from(["\u00b2", "\u096b", "1_0", "1e3", "0x10", "NaN"])
    | st.sampled_from([4_299, 5_000]).map("9".__mul__)
    | st.integers(-3, 70).map(str)
)
"""Parameters as a schema writes them."""

NAMES = (
    st.sampled_from([DECIMAL, BITS, "io.debezium.data.VariableScaleDecimal", "io.debezium.time.MicroDuration"])
    | st.sampled_from([f"io.debezium.time.{name}" for name in ("Date", "MicroTime", "NanoTimestamp", "Timestamp")])
    | st.sampled_from([f"io.debezium.data.{name}" for name in ("Json", "Uuid", "Enum", "geometry.Point")])
    | st.sampled_from(["io.debezium.time.ZonedTimestamp", "org.apache.kafka.connect.data.Date"])
    | st.sampled_from([f"{DECIMAL}(--5)", f"{BITS}(99999999999)", f"{DECIMAL}(", "array(", "array(array(int32))", ""])
    | st.just(3_000).map("n".__mul__)
)
TYPES = st.sampled_from(
    [
        "int8",
        "int16",
        "int32",
        "int64",
        "float",
        "double",
        "boolean",
        "string",
        "bytes",
        "struct",
        "map",
        "array",
        "",
        7,
    ]
)
COLUMNS = st.sampled_from(["id", "a", "b", "A", "", "\x00binary", "ü"]) | st.just(300).map("c".__mul__)

SINK_TYPES = (
    "numeric", "numeric(10,2)", "money", "integer", "bigint", "double precision", "boolean", "text", "bytea", "jsonb",
    "bit(8)", "bit varying", "date", "time without time zone", "timestamp(3) without time zone",
    "timestamp with time zone", "interval", "numeric[]", "text[]", "bit(8)[]", "point", "uuid", "character(3)",
)  # fmt: skip
"""Columns of a PostgreSQL sink."""

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["AQ==", "AAAA", "/w==", "zz==", "12.50", "2026-01-02T03:04:05Z", "NaN", "POSITIVE_INFINITY", ""])
)
VALUES = st.recursive(
    SCALARS
    | st.fixed_dictionaries({"scale": SCALARS, "value": SCALARS})
    | st.fixed_dictionaries({"x": SCALARS, "y": SCALARS}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def _parameters() -> st.SearchStrategy[Any]:
    source_columns = st.dictionaries(
        st.sampled_from(["__debezium.source.column.type", "__debezium.source.column.length"]), NUMBERS, max_size=2
    )
    needed = st.dictionaries(st.sampled_from(["scale", "length", "connect.decimal.precision"]), NUMBERS, max_size=3)
    return st.tuples(needed, source_columns).map(lambda both: both[0] | both[1]) | st.just("8") | st.none()


def _fields() -> st.SearchStrategy[dict[str, Any]]:
    """A field of a Connect schema, arrays and structs within it."""

    def built(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {"type": TYPES},
            optional={
                "name": NAMES | st.sampled_from([DECIMAL, BITS]),
                "parameters": _parameters(),
                "optional": st.booleans(),
                "default": SCALARS,
                "items": inner,
                "fields": st.lists(inner, max_size=2),
            },
        )

    return st.recursive(built(st.just("int32")), built, max_leaves=3)


def _deep_array(depth: int) -> dict[str, Any]:
    field: dict[str, Any] = {"type": "int32"}
    for _ in range(depth):
        field = {"type": "array", "items": field}
    return field


FIELDS = _fields() | st.sampled_from([1, 9, 10, 200]).map(_deep_array)


@st.composite
def debezium_events(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Key and value of a Debezium event, both with a schema."""
    columns = draw(st.dictionaries(COLUMNS, st.tuples(FIELDS, VALUES), max_size=4))
    columns["id"] = ({"type": "int32"}, 1) if draw(st.booleans()) else (draw(FIELDS), draw(VALUES))
    fields = [{**schema, "field": column} for column, (schema, _) in columns.items()]
    row = {column: value for column, (_, value) in columns.items()}
    source = {"field": "source", "type": "struct", "name": "io.debezium.connector.postgresql.Source"}
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}, source]}
    value = {"schema": schema, "payload": {"op": draw(st.sampled_from("cud")), "after": row, "source": {"ts_ms": 1}}}
    key_fields = [field for field in fields if field["field"] == "id"]
    key = {"schema": {"type": "struct", "fields": key_fields}, "payload": {"id": row["id"]}}
    return msgspec.json.encode(key), msgspec.json.encode(value)


_MYSQL_TYPES = (
    st.sampled_from(["int", "bit(1)", "bit(64)", "bit(99999999999)", "bit(\u00b2)", "decimal(9,2)", "varbinary(9)", ""])
    | st.sampled_from(["enum('a','b')", "enum('a", "set('a','b')", "enum", "set"])
    | st.just(400).map(lambda length: f"enum('{'x' * length}')")
    | st.just(3_000).map(lambda length: "enum(" + "\\'" * length)
    | st.just(80).map(lambda labels: "set(" + ",".join(f"'{number}'" for number in range(labels)) + ")")
)


@st.composite
def canal_messages(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Key and value of a Canal message: a row, and the types that MySQL gives its columns."""
    columns = draw(st.dictionaries(COLUMNS, st.tuples(_MYSQL_TYPES, VALUES | NUMBERS), max_size=4))
    columns["id"] = ("int", "1")
    lacking = draw(st.sets(st.sampled_from(sorted(columns)), max_size=2)) - {"id"}
    row = {column: value for column, (_, value) in columns.items() if column not in lacking}
    message = {
        "type": draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"])),
        "database": "d",
        "table": "t",
        "pkNames": ["id"],
        "mysqlType": {column: declared for column, (declared, _) in columns.items()},
        "data": [row],
        "old": draw(st.none() | st.lists(st.dictionaries(st.sampled_from(sorted(columns)), SCALARS), max_size=1)),
        "es": 1,
    }
    return b"", msgspec.json.encode(message)


def _avro_types() -> st.SearchStrategy[Any]:
    primitive = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string", "Row"])
    semantic = st.fixed_dictionaries(
        {"type": st.sampled_from(["bytes", "int", "long", "string"])},
        optional={
            "connect.name": NAMES | st.sampled_from([DECIMAL, BITS]),
            "connect.parameters": _parameters(),
            "connect.type": TYPES,
            "logicalType": st.just("decimal"),
            "scale": NUMBERS | st.integers(-(2**70), 2**70),
            "precision": st.integers(-1, 40),
        },
    )
    fixed = st.fixed_dictionaries(
        {
            "type": st.just("fixed"),
            "name": st.sampled_from("FG"),
            "size": st.sampled_from([-1, 0, 2, 2**31, 10**30, "2"]),
        }
    )
    enum = st.fixed_dictionaries(
        {"type": st.just("enum"), "name": st.just("E"), "symbols": st.sampled_from([["a"], [], "ab"])}
    )

    def built(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return (
            st.fixed_dictionaries({"type": st.just("array"), "items": inner})
            | st.fixed_dictionaries({"type": st.just("map"), "values": inner})
            | st.lists(inner, min_size=1, max_size=3)
            | st.fixed_dictionaries({"type": inner})
            | st.fixed_dictionaries(
                {
                    "type": st.just("record"),
                    "name": st.sampled_from(["R", "Q"]),
                    "fields": st.lists(
                        st.fixed_dictionaries({"name": st.sampled_from("xyz"), "type": inner}), max_size=2
                    ),
                }
            )
        )

    return st.recursive(primitive | semantic | fixed | enum, built, max_leaves=4)


@st.composite
def avro_events(draw: st.DrawFn) -> tuple[str, str, bytes, bytes]:
    """Schemas of key and value, and bytes that are of them, or nearly."""
    columns = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), _avro_types(), max_size=3))
    fields = [{"name": "id", "type": "int"}, *({"name": name, "type": kind} for name, kind in columns.items())]
    row = {"type": "record", "name": "Row", "fields": fields}
    value_schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [{"name": "op", "type": "string"}, {"name": "after", "type": ["null", row]}],
    }
    key_type = draw(st.just("int") | _avro_types())
    key_schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": key_type}]}
    # Small numbers are lengths, counts, branches and values alike, so many of them are read to the end.
    body = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 0x7F, 0xFF]), max_size=24).map(bytes))
    key = draw(st.sampled_from([b"\x02", b"", b"\x02\x02"]))
    return (
        msgspec.json.encode(key_schema).decode(),
        msgspec.json.encode(value_schema).decode(),
        b"\x00\x00\x00\x00\x02" + key,
        b"\x00\x00\x00\x00\x01\x02c\x02\x02" + body,
    )
