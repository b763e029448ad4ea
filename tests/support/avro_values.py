"""Values of every meaning, with their ends, that come out of Avro as they went in."""

import math
from typing import Any

from headgate.formats.meaning import DECIMAL

__all__ = ["EXACT", "INT64", "VARIABLE", "unscaled"]

VARIABLE = "io.debezium.data.VariableScaleDecimal"
INT64 = (-(2**63), 2**63 - 1)
NUMBERS_64 = ("MicroTime", "NanoTime", "Timestamp", "MicroTimestamp", "NanoTimestamp", "MicroDuration", "NanoDuration")
TEXTS = {
    "io.debezium.time.ZonedTimestamp": "2026-01-02T01:04:05.678901Z", "io.debezium.time.ZonedTime": "01:04:05Z",
    "io.debezium.time.Interval": "P1Y2M3DT4H5M6.5S", "io.debezium.time.IsoDate": "2026-01-02Z",
    "io.debezium.time.IsoTime": "03:04:05Z", "io.debezium.time.IsoTimestamp": "2026-01-02T03:04:05Z",
    "io.debezium.data.Enum": "so, so", "io.debezium.data.EnumSet": "a,c", "io.debezium.data.Json": '{"a": [1, null]}',
    "io.debezium.data.Ltree": "a.b", "io.debezium.data.Tsvector": "'a':1",
    "io.debezium.data.Uuid": "5e045c13-0000-4000-8000-000000000001", "io.debezium.data.Xml": "<a/>",
}  # fmt: skip


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


EXACT: list[tuple[str, Any]] = [
    *(("int8", number) for number in (-128, 127, 0)),
    *(("int16", number) for number in (-32768, 32767)),
    *(("int32", number) for number in (-(2**31), 2**31 - 1, 63, 64, -64, -65)),
    *(("int64", number) for number in INT64),
    *(("double", number) for number in (0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 2.0**53)),
    *(("float", number) for number in (1.5, -3.4028234663852886e38, 1.401298464324817e-45, math.inf)),
    ("boolean", True),
    ("boolean", False),
    *(("string", value) for value in ("", "naïve 漢字 🚪", "\x00", "x" * 63, "x" * 64, "long " * 50_000)),
    *(("bytes", value) for value in (b"", b"\x00\xff\n\t", bytes(range(256)) * 40)),
    *((f"io.debezium.time.{name}", number) for name in NUMBERS_64 for number in INT64),
    *((f"io.debezium.time.{name}", number) for name in ("Date", "Time", "Year") for number in (-(2**31), 2**31 - 1)),
    *((f"org.apache.kafka.connect.data.{name}", 0) for name in ("Date", "Time", "Timestamp")),
    *TEXTS.items(),
    ("io.debezium.data.Bits(10)", b"\x05\x02"),
    ("io.debezium.data.Bits(2147483647)", b"\x01"),
    ("io.debezium.data.geometry.Point", {"x": 1.5, "y": -2.0, "wkb": b"\x01\x02", "srid": None}),
    ("io.debezium.data.geometry.Geometry", {"wkb": b"\x01", "srid": 4326}),
    ("io.debezium.data.geometry.Geography", {"wkb": b"", "srid": None}),
    ("io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": b"\x0f"}),
    ("io.debezium.data.VariableScaleDecimal", {"scale": -3, "value": unscaled(-(10**1000))}),
    ("io.debezium.data.DoubleVector", [1.5, -0.1]),
    ("io.debezium.data.FloatVector", [1.5, -0.25]),
    ("io.debezium.data.SparseVector", {"dimensions": 5, "vector": [{"key": 1, "value": 0.5}]}),
    ("map", {"a": "1", "b": None}),
    ("map", {}),
    ("array(int32)", [1, None, -(2**31)]),
    ("array(string)", []),
    ("array(array(boolean))", [[True, None], None, []]),
    (f"array({DECIMAL}(2,12))", [b"\x00\x96", None]),
    ("array(io.debezium.data.geometry.Geometry)", [{"wkb": b"\x01", "srid": 1}]),
]  # fmt: skip
"""Meaning, and a value that is read back as it is."""
