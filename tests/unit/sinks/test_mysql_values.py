"""Debezium values as MySQL and MariaDB read them, and what they have no place for."""

import math
import re
import struct
from base64 import b64encode

import pytest

from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text
from headgate.sinks.relational.times import NotTextError

DEC = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time"
PLACE = struct.pack("<BIdd", 1, 1, 1.5, -2)
NOWHERE = struct.pack("<BIdd", 1, 1, math.nan, 0)
TWELVE_FIFTY = b64encode((1250).to_bytes(2, "big")).decode()


def text(declared: str, meaning: str | None, value: object) -> str | None:
    kind = declared.partition("(")[0].partition(" ")[0]
    return column_text(MysqlSinkColumn(declared, kind, None, None), meaning).plain(value)


@pytest.mark.parametrize(
    ("declared", "meaning", "value", "expected"),
    [
        ("int(11)", None, None, None),
        ("tinyint(1)", "boolean", True, "1"),
        ("bigint(20) unsigned", f"{DEC}(0)", b64encode(b"\x00" + b"\xff" * 8).decode(), "18446744073709551615"),
        ("decimal(10,2)", f"{DEC}(2)", TWELVE_FIFTY, "1250e-2"),
        ("decimal(10,2)", "io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": TWELVE_FIFTY}, "1250e-1"),
        ("decimal(10,2)", "double", 12.5, "12.5"),
        ("decimal(10,2)", "string", "12.50", "12.50"),
        ("double", None, 1e300, "1e+300"),
        ("bit(1)", "boolean", False, "0"),
        ("bit(10)", "io.debezium.data.Bits(10)", b64encode(bytes([0b101, 0b10])).decode(), "517"),
        ("bit(64)", None, b64encode(b"\xff" * 8 + b"\x00").decode(), "18446744073709551615"),
        ("blob", "bytes", "AP8=", "00ff"),
        ("date", None, -1, "1969-12-31"),
        ("date", f"{TIME}.Date", 2932896, "9999-12-31"),
        ("date", f"{TIME}.Timestamp", -86_400_000, "1969-12-31"),
        ("date", None, "2026-02-28", "2026-02-28"),
        ("time(6)", None, 11045678901, "03:04:05.678901"),
        ("time(3)", f"{TIME}.Time", 11045678, "03:04:05.678"),
        ("time(6)", f"{TIME}.MicroTime", -3_020_399_000_001, "-838:59:59.000001"),
        ("time(6)", f"{TIME}.MicroDuration", 90_061_000_000, "25:01:01"),
        ("time(6)", f"{TIME}.ZonedTime", "03:04:05.678Z", "03:04:05.678"),
        ("datetime(3)", None, -1, "1969-12-31 23:59:59.999"),
        ("datetime(3)", None, 1_767_323_045_678, "2026-01-02 03:04:05.678"),
        ("datetime(6)", None, 1_767_323_045_678_901, "2026-01-02 03:04:05.678901"),
        ("datetime(6)", f"{TIME}.Timestamp", 0, "1970-01-01 00:00:00"),
        ("datetime(6)", None, "2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05.678901"),
        ("timestamp(6)", None, "2026-01-01T00:30:00.25+02:00", "2025-12-31 22:30:00.25"),
        ("datetime(6)", None, "2026-01-02 03:04:05", "2026-01-02 03:04:05"),
        ("json", None, {"a": [1, None]}, '{"a":[1,null]}'),
        ("longtext", "array(int32)", [1, None, 3], "[1,null,3]"),
        (
            "json",
            "array(double)",
            [float("nan"), 1.5, None, {"x": float("-inf")}],
            '["NaN",1.5,null,{"x":"-Infinity"}]',
        ),
        ("varchar(9)", None, True, "true"),
        ("varchar(9)", f"{DEC}(2)", TWELVE_FIFTY, "12.50"),
        ("text", f"{DEC}(-2)", TWELVE_FIFTY, "125000"),
        ("text", "io.debezium.data.VariableScaleDecimal", {"scale": 5, "value": TWELVE_FIFTY}, "0.01250"),
        ("varchar(30)", f"{TIME}.Date", -735160, "-0043-03-15"),
        ("varchar(30)", f"{TIME}.NanoTime", 11045678901000, "03:04:05.678901000"),
        ("varchar(30)", f"{TIME}.MicroTimestamp", 9223372036825200000, "infinity"),
        ("varchar(30)", f"{TIME}.Timestamp", 1_767_323_045_678, "2026-01-02 03:04:05.678"),
        ("varchar(30)", f"{TIME}.MicroDuration", -93784500000, "-26:03:04.500000"),
        ("varchar(30)", "io.debezium.data.Bits(10)", b64encode(bytes([0b101, 0b10])).decode(), "1000000101"),
        ("json", f"{DEC}(2)", TWELVE_FIFTY, "12.50"),
        ("json", f"array({DEC}(2))", [TWELVE_FIFTY, None], "[12.50,null]"),
        ("longtext", f"array({TIME}.Date)", [20455, None], '["2026-01-02",null]'),
        ("date", None, "2026-01-02T00:00:00Z", "2026-01-02"),
        ("time(3)", f"{TIME}.ZonedTime", "01:04:05.678+02:00", "23:04:05.678"),
        ("time", None, "23:04-05:30", "04:34"),
        ("set('a','b')", "io.debezium.data.EnumSet", "a,b", "a,b"),
    ],
)
def test_a_value_is_written_as_the_server_reads_it(
    declared: str, meaning: str | None, value: object, expected: str | None
) -> None:
    assert text(declared, meaning, value) == expected


@pytest.mark.parametrize(
    ("declared", "meaning", "value", "says"),
    [
        ("double", None, "NaN", "cannot store NaN"),
        ("float", None, "-Infinity", "cannot store -Infinity"),
        ("decimal(10,2)", "string", "NAN", "cannot store NaN"),
        ("date", f"{TIME}.Date", -2147472692, "cannot store infinity"),
        ("datetime(6)", f"{TIME}.ZonedTimestamp", "-infinity", "cannot store -infinity"),
        ("datetime(6)", f"{TIME}.MicroTimestamp", 2**63 - 1, "the largest that the connector can write"),
        ("datetime(6)", None, 1_767_323_045_678, "seems to count milliseconds"),
        ("datetime(6)", None, 9_223_372_036_825_200, "seems to count milliseconds"),
        ("datetime", None, 1_767_323_045_678_901, "seems to count microseconds"),
        ("bigint(20)", f"{TIME}.MicroDuration", 2**63 - 1, "the largest that the connector can write"),
        ("decimal(10,2)", "string", "POSITIVE_INFINITY", "cannot store Infinity"),
        ("json", "array(string)", ["[Ljava.lang.String;@3cc4663c"], "several dimensions"),
        ("date", None, 2932897, "outside the years 1 to 9999"),
        ("date", None, 10**30, "outside the years"),
        ("date", "int32", 5, "is not a date"),
        ("datetime(6)", None, 9223372036825200000, "cannot store infinity"),
        ("datetime(6)", "int64", 5, "does not describe the number as a value of type timestamp"),
        ("datetime", None, 1.5, "a float is not a timestamp"),
        ("timestamp", None, "2026-13-01T00:00:00+02:00", "holds"),
        ("blob", None, "not base64", "is not base64"),
        ("bit(8)", None, b64encode(b"\xff" * 9).decode(), "72 bits"),
        ("int(11)", None, [1], "list cannot be written"),
        ("point", None, {"x": 1.5, "y": 2, "wkb": "AA==", "srid": None}, "object with wkb and srid"),
        ("point", None, {"wkb": "AAAAAAE=", "srid": None}, "order that MySQL and MariaDB do not keep"),
        ("point", None, {"x": 1.5, "y": 2, "srid": None}, "object with wkb and srid"),
        ("point", None, {"wkb": "AQEAAAA=", "srid": -1}, "SRID is -1"),
        ("point", None, {"wkb": "AQEAAAA=", "srid": "4326"}, "object with wkb and srid"),
        ("point", None, {"wkb": b64encode(NOWHERE).decode(), "srid": None}, "NaN"),
        ("point", None, "(1,Infinity)", "NaN"),
        ("geometry", None, "POINT(1 2)", "object with wkb and srid"),
    ],
)
def test_a_value_without_a_place_is_refused(declared: str, meaning: str | None, value: object, says: str) -> None:
    with pytest.raises(NotTextError, match=says):
        text(declared, meaning, value)


def test_a_geometry_that_is_null_is_no_trouble() -> None:
    assert text("point", None, None) is None


@pytest.mark.parametrize(
    ("value", "srid"),
    [
        ({"x": 1.5, "y": -2, "wkb": b64encode(PLACE).decode(), "srid": None}, 0),
        ({"wkb": b64encode(PLACE).decode(), "srid": 4326}, 4326),
        ({"wkb": PLACE, "srid": 2**32 - 1}, 2**32 - 1),
        (struct.pack("<I", 4326) + PLACE, 4326),
        ("(1.5,-2)", 0),
    ],
)
def test_a_geometry_is_sent_as_the_server_keeps_it(value: object, srid: int) -> None:
    assert text("point", "io.debezium.data.geometry.Point", value) == (struct.pack("<I", srid) + PLACE).hex()


def test_a_set_may_be_a_list_of_labels() -> None:
    assert text("set('a','b','c')", None, ["a", "c"]) == text("set('a','b','c')", None, "a,c") == "a,c"
    assert text("set('a','b','c')", None, []) == ""


def of(declared: str) -> MysqlSinkColumn:
    return MysqlSinkColumn(declared, re.split(r"[( ]", declared)[0], None, None)


def from_connector(connector: str, declared: str, value: object, meaning: str | None = None) -> str | None:
    return column_text(of(declared), meaning, connector).plain(value)


@pytest.mark.parametrize(
    ("connector", "declared", "value", "text"),
    [
        ("postgresql", "time(3)", 11_045_678, "03:04:05.678"),
        ("postgresql", "time(1)", 11_045_600, "03:04:05.600"),
        ("postgresql", "time(4)", 11_045_678_900, "03:04:05.678900"),
        ("postgresql", "time(6)", 86_399_999_999, "23:59:59.999999"),
        ("postgresql", "time(3)", "03:04:05Z", "03:04:05"),
        ("mysql", "time(3)", 11_045_678_000, "03:04:05.678000"),
        ("mariadb", "time", -1_000_000, "-00:00:01"),
    ],
)
def test_a_time_without_schema_is_read_as_its_connector_wrote_it(
    connector: str, declared: str, value: object, text: str
) -> None:
    assert from_connector(connector, declared, value) == text


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("time", 11_045_678),  # time(0) of PostgreSQL, in milliseconds, or time, in microseconds?
        ("time", 11_045_678_900),
        ("time(3)", 86_400_001),  # later than a day has milliseconds
    ],
)
def test_a_time_of_postgresql_whose_unit_nobody_tells_is_refused(declared: str, value: int) -> None:
    with pytest.raises(NotTextError, match="milliseconds or microseconds"):
        from_connector("postgresql", declared, value)


@pytest.mark.parametrize("declared", ["bigint(20) unsigned", "decimal(20,0)", "decimal(22,2)"])
def test_what_may_be_an_unsigned_number_wrapped_around_is_refused(declared: str) -> None:
    for connector in ("mysql", "mariadb"):
        with pytest.raises(NotTextError, match="above 9223372036854775807 that the connector has wrapped around"):
            from_connector(connector, declared, -1, "int64")
        assert from_connector(connector, declared, 2**63 - 1, "int64") == str(2**63 - 1)
    with pytest.raises(NotTextError, match="wrapped around"):
        column_text(MysqlSinkColumn(declared, declared.split("(", maxsplit=1)[0], None, None), None, "mysql").fields(
            [1, -1], {int}
        )
    assert from_connector("postgresql", declared, -1, "int64") == "-1"


@pytest.mark.parametrize("declared", ["bigint(20)", "decimal(19,0)", "decimal(20,2)", "int(11)"])
def test_signed_numbers_go_where_no_unsigned_one_would_fit(declared: str) -> None:
    assert from_connector("mysql", declared, -1, "int64") == "-1"


def test_decimals_of_mysql_are_no_wrapped_integers() -> None:
    assert from_connector("mysql", "decimal(20,0)", "-5") == "-5"
    assert from_connector("mysql", "decimal(20,0)", b"\xfb", "org.apache.kafka.connect.data.Decimal(0)") == "-5"


def test_whole_columns_are_written_as_their_values_are() -> None:
    """The fast ways, by which all values of a column are searched at once, give the same as one by one."""
    dates = column_text(of("date"), None)
    assert list(dates.fields(["2026-01-02", "2026-01-03T00:00:00"], {str})) == ["2026-01-02", "2026-01-03"]
    durations = column_text(of("bigint(20)"), f"{TIME}.MicroDuration")
    assert list(durations.fields([1, -1], {int})) == ["1", "-1"]
    with pytest.raises(NotTextError):
        durations.fields([1, 2**63 - 1], {int})


@pytest.mark.parametrize(
    ("declared", "good", "bad"), [("char(3)", ["a", "a  "], "a "), ("binary(2)", ["YQ==", "YQA="], "AA==")]
)
def test_a_key_that_would_be_padded_is_refused(declared: str, good: list[str], bad: str) -> None:
    column = column_text(of(declared), None, in_key=True)
    column.fields(good, {str})
    with pytest.raises(NotTextError, match="fixed width"):
        column.fields([*good, bad], {str})
