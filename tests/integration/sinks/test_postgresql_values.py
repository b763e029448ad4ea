"""Every type that Debezium writes arrives in PostgreSQL as the value it was, with a schema and without."""

from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest

from headgate.formats.change import Change, Operation
from headgate.sinks.contract import ChangeBatch, FeedIdentity, OffsetRange, SinkWriter, ValueRefusedError
from headgate.sinks.relational import writer
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True, params=["at once", "staged"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """A batch of few rows goes either way to the same end."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "staged":
            patch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)
        yield request.param


DEC = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time"
TWELVE_FIFTY = b64encode((1250).to_bytes(2, "big")).decode()
MINUS = b64encode((-1250).to_bytes(2, "big", signed=True)).decode()
US_2026 = 1_767_323_045_678_901  # 2026-01-02 03:04:05.678901

# type, meaning, value in the event, what a literal of the type would be
CASES: list[tuple[str, str | None, object, str | None]] = [
    ("smallint", None, -32768, "-32768"),
    ("integer", "int32", 7, "7"),
    ("bigint", "int64", 9223372036854775807, "9223372036854775807"),
    ("bigint", None, -9223372036854775808, "-9223372036854775808"),
    ("bigint", f"{DEC}(0)", MINUS, "-1250"),
    ("smallint", None, True, "1"),
    ("numeric", None, 18446744073709551615, "18446744073709551615"),
    ("numeric(10,2)", None, "12.50", "12.50"),
    ("numeric", "string", "123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789"),
    ("numeric", None, "NaN", "NaN"),
    ("numeric(10,2)", f"{DEC}(2)", TWELVE_FIFTY, "12.50"),
    ("numeric", f"{DEC}(0)", MINUS, "-1250"),
    ("numeric(10,3)", f"{DEC}(3)", MINUS, "-1.250"),
    ("numeric", "io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": TWELVE_FIFTY}, "125.0"),
    ("numeric(10,2)", None, 0.5, "0.50"),
    ("numeric(18,6)", f"{DEC}(6)", Decimal("999999999999.999998"), "999999999999.999998"),
    ("numeric", None, Decimal("1.5E+30"), "1500000000000000000000000000000"),
    ("numeric(18,6)[]", f"array({DEC}(6))", [Decimal("999999999999.999998"), None], "{999999999999.999998,NULL}"),
    ("double precision", "double", Decimal("1.0E300"), "1e300"),
    ("real", "float", Decimal("1.1"), "1.1"),
    ("money", None, "12.50", "12.50"),
    ("money", f"{DEC}(2)", MINUS, "-12.50"),
    ("numeric", None, "POSITIVE_INFINITY", "Infinity"),
    ("numeric[]", "array(string)", ["NEGATIVE_INFINITY", None], "{-Infinity,NULL}"),
    ("double precision", f"{DEC}(2)", TWELVE_FIFTY, "12.5"),
    ("text", f"{DEC}(2)", MINUS, "-12.50"),
    ("character varying(30)", f"{DEC}(0)", MINUS, "-1250"),
    ("text", "io.debezium.data.VariableScaleDecimal", {"scale": 5, "value": MINUS}, "-0.01250"),
    ("text", f"{TIME}.Date", 20455, "2026-01-02"),
    ("text", f"{TIME}.Date", 20455 + 365243 * 10, "+12026-01-07"),
    ("text", f"{TIME}.Time", 11045678, "03:04:05.678"),
    ("text", f"{TIME}.MicroTimestamp", US_2026, "2026-01-02 03:04:05.678901"),
    ("text", f"{TIME}.Timestamp", -1, "1969-12-31 23:59:59.999"),
    ("text", f"{TIME}.ZonedTimestamp", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
    ("text", f"{TIME}.MicroDuration", -93784500000, "-26:03:04.500000"),
    ("text", "io.debezium.data.Bits(10)", "BQI=", "1000000101"),
    ("text", f"{TIME}.Date", -2147472692, "infinity"),
    ("jsonb", f"array({DEC}(2))", [TWELVE_FIFTY, None], "[12.50, null]"),
    ("real", "float", 1.1, "1.1"),
    ("double precision", "double", 0.1, "0.1"),
    ("double precision", None, 1e300, "1e300"),
    ("double precision", None, "NaN", "NaN"),
    ("double precision", None, "-Infinity", "-Infinity"),
    ("double precision", None, 3, "3"),
    ("boolean", "boolean", True, "true"),
    ("boolean", None, False, "false"),
    ("boolean", None, 1, "true"),
    ("text", "string", "", ""),
    ("text", None, "tab\there\nnew line\r\\back\\N \\. 'quotes\" ünïcödé 漢字 🚪 \x1e\x1f\x01", None),
    ("text", None, "unit \x1f separator\t", None),
    ("text", None, "record \x1e separator", None),
    ("text", None, "\\N", "\\N"),
    ("text", None, "\\.", "\\."),
    ("text", None, 12, "12"),
    ("text", None, True, "true"),
    ("character varying(5)", None, "abcde", "abcde"),
    ("character(5)", None, "abc", "abc"),
    ("date", f"{TIME}.Date", 11356, "2001-02-03"),
    ("date", None, -1, "1969-12-31"),
    ("date", None, -800000, "0222-09-04 BC"),
    ("date", None, 2932896 + 367, "10001-01-01"),
    ("date", None, "infinity", "infinity"),
    ("date", f"{TIME}.Date", -2147472692, "infinity"),
    ("date", None, -625821272, "-infinity"),
    ("date[]", f"array({TIME}.Date)", [-622191234, 20455], "{infinity,2026-01-02}"),
    ("date", None, "2026-01-02T00:00:00Z", "2026-01-02"),
    ("time without time zone", f"{TIME}.ZonedTime", "01:04:05.678+02:00", "23:04:05.678"),
    (
        "timestamp without time zone",
        f"{TIME}.ZonedTimestamp",
        "2026-01-02T01:04:05.678901+02:00",
        "2026-01-01 23:04:05.678901",
    ),
    ("timestamp without time zone", None, "2026-01-02 01:04:05-0530", "2026-01-02 06:34:05"),
    ("timestamp with time zone", None, "2026-01-02 01:04:05-05:30", "2026-01-02 06:34:05+00"),
    ("timestamp without time zone", f"{TIME}.ZonedTimestamp", "-0043-03-15T00:00:00Z", "0044-03-15 00:00:00 BC"),
    ("date", None, "2001-02-03", "2001-02-03"),
    ("date", f"{TIME}.Timestamp", 1_767_312_000_000, "2026-01-02"),
    ("time(3) without time zone", None, 11045678, "03:04:05.678"),
    ("time without time zone", None, 11045678901, "03:04:05.678901"),
    ("time without time zone", f"{TIME}.Time", 11045678, "03:04:05.678"),
    ("time without time zone", f"{TIME}.MicroTime", 86_400_000_000, "24:00:00"),
    ("time without time zone", f"{TIME}.NanoTime", 11045678901000, "03:04:05.678901"),
    ("time with time zone", f"{TIME}.ZonedTime", "03:04:05.678901Z", "03:04:05.678901+00"),
    ("timestamp(0) without time zone", None, 1_767_323_045_000, "2026-01-02 03:04:05"),
    ("timestamp(3) without time zone", None, 1_767_323_045_678, "2026-01-02 03:04:05.678"),
    ("timestamp(6) without time zone", None, US_2026, "2026-01-02 03:04:05.678901"),
    ("timestamp without time zone", None, US_2026, "2026-01-02 03:04:05.678901"),
    ("timestamp without time zone", None, -1, "1969-12-31 23:59:59.999999"),
    ("timestamp without time zone", f"{TIME}.Timestamp", -1, "1969-12-31 23:59:59.999"),
    ("timestamp(3) without time zone", f"{TIME}.MicroTimestamp", 1_767_323_045_678_000, "2026-01-02 03:04:05.678"),
    ("timestamp without time zone", f"{TIME}.NanoTimestamp", US_2026 * 1000, "2026-01-02 03:04:05.678901"),
    ("timestamp without time zone", "org.apache.kafka.connect.data.Timestamp", 0, "1970-01-01"),
    ("timestamp without time zone", None, 9223372036825200000, "infinity"),
    ("timestamp(3) without time zone", None, -9223372036832400, "-infinity"),
    ("timestamp without time zone", None, -99_999_999_999_000_000, "1200-02-15 14:13:21 BC"),
    (
        "timestamp with time zone",
        f"{TIME}.ZonedTimestamp",
        "2026-01-02T03:04:05.678901Z",
        "2026-01-02 03:04:05.678901+00",
    ),
    ("timestamp with time zone", None, "2026-01-02T03:04:05+02:00", "2026-01-02 01:04:05+00"),
    ("timestamp with time zone", None, "infinity", "infinity"),
    ("timestamp with time zone", None, "-infinity", "-infinity"),
    ("timestamp with time zone", None, "+12345-01-02T03:04:05Z", "12345-01-02 03:04:05+00"),
    ("timestamp with time zone", None, "-0043-03-15T12:00:00Z", "0044-03-15 12:00:00+00 BC"),
    ("timestamp with time zone", f"{TIME}.MicroTimestamp", US_2026, "2026-01-02 03:04:05.678901+00"),
    ("interval", f"{TIME}.MicroDuration", -3_600_000_001, "-01:00:00.000001"),
    ("interval", None, "P1Y2M3DT4H5M6.78S", "1 year 2 mons 3 days 04:05:06.78"),
    ("bytea", None, "AP8=", "\\x00ff"),
    ("bytea", "bytes", "", ""),
    ("bytea", None, b"\\\t\n", "\\x5c090a"),
    ("bit(1)", None, True, "1"),
    ("bit(10)", "io.debezium.data.Bits(10)", b64encode(bytes([0b101, 0b10])).decode(), "1000000101"),
    ("bit(10)", "io.debezium.data.Bits(10)", b64encode(bytes([0b101])).decode(), "0000000101"),
    ("json", "io.debezium.data.Json", '{"a": [1, "\\n\\\\"]}', '{"a": [1, "\\n\\\\"]}'),
    ("jsonb", None, '{"b":null,"a":1}', '{"a":1,"b":null}'),
    ("jsonb", None, {"a": ["x\ty", None, 1.5]}, '{"a": ["x\\ty", null, 1.5]}'),
    ("uuid", "io.debezium.data.Uuid", "5e045c13-0000-4000-8000-000000000001", "5e045c13-0000-4000-8000-000000000001"),
    ("inet", None, "10.0.0.0/8", "10.0.0.0/8"),
    ("cidr", None, "10.0.0.0/8", "10.0.0.0/8"),
    ("macaddr", None, "08:00:2b:01:02:03", "08:00:2b:01:02:03"),
    ("mood", "io.debezium.data.Enum", "so, so", "so, so"),
    ("positive", None, 3, "3"),
    ("cents", f"{DEC}(2)", TWELVE_FIFTY, "12.50"),
    ("int4range", None, "[1,5)", "[1,5)"),
    ("point", "io.debezium.data.geometry.Point", {"x": 1.5, "y": -2.0, "wkb": "AA==", "srid": None}, "(1.5,-2)"),
    ("tsvector", None, "'cat' 'dog'", "'cat' 'dog'"),
    ("integer[]", "array(int32)", [1, None, -3], "{1,NULL,-3}"),
    ("bigint[]", None, [], "{}"),
    ("integer[]", None, [[1, 2], [3, 4]], "{{1,2},{3,4}}"),
    (
        "text[]",
        None,
        ['x"y', "a\\b", "c,d", "", "NULL", None, "t\tn\n"],
        '{"x\\"y","a\\\\b","c,d","","NULL",NULL,"t\tn\n"}',
    ),
    ("boolean[]", None, [True, False], "{t,f}"),
    ("double precision[]", None, [1.5, "NaN"], "{1.5,NaN}"),
    ("numeric(10,2)[]", f"array({DEC}(2))", [TWELVE_FIFTY], "{12.50}"),
    ("date[]", f"array({TIME}.Date)", [11356], "{2001-02-03}"),
    ("timestamp(3) without time zone[]", None, [1_767_323_045_678], '{"2026-01-02 03:04:05.678"}'),
    ("timestamp with time zone[]", None, ["2026-01-02T03:04:05Z"], '{"2026-01-02 03:04:05+00"}'),
    ("bytea[]", None, ["AP8="], '{"\\\\x00ff"}'),
    ("uuid[]", None, ["5e045c13-0000-4000-8000-000000000001"], "{5e045c13-0000-4000-8000-000000000001}"),
    ("jsonb[]", None, ['{"a": "b"}'], '{"{\\"a\\": \\"b\\"}"}'),
    ("mood[]", None, ["so, so", "glad"], '{"so, so",glad}'),
]


@pytest.fixture(scope="module")
def values_dsn(postgres_dsn: str) -> str:
    return psycopg.conninfo.make_conninfo(postgres_dsn, dbname="test_values")


@pytest.fixture(scope="module")
def server(postgres_dsn: str, values_dsn: str, way: str) -> Iterator[psycopg.Connection]:
    """One database for all types; a table per test."""
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS test_values WITH (FORCE)")
        admin.execute("CREATE DATABASE test_values")
        try:
            with psycopg.connect(values_dsn, autocommit=True) as connection:
                connection.execute("CREATE TYPE mood AS ENUM ('glad', 'so, so')")
                connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
                connection.execute("CREATE DOMAIN money_amount AS numeric(10,2)")
                connection.execute("CREATE DOMAIN cents AS money_amount")
                connection.execute("SET TimeZone = 'Asia/Tokyo'")
                yield connection
        finally:
            admin.execute("DROP DATABASE test_values WITH (FORCE)")


class Target:
    """A table of one type, claimed, with a writer on it."""

    def __init__(self, server: psycopg.Connection, dsn: str, number: int, declared: str) -> None:
        self.table = f"public.values_{number}"
        self.server = server
        server.execute(f"DROP TABLE IF EXISTS {self.table}")
        server.execute(f"CREATE TABLE {self.table} (id integer PRIMARY KEY, v {declared})")
        sink = PostgresSink(RelationalSettings(dsn))
        self.claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=self.table)
        sink.claim(self.claim)
        self.writer: SinkWriter = sink.writer()
        self.offset = 0

    def write(self, meaning: str | None, *values: object) -> None:
        semantics = None if meaning is None else {"id": "int32", "v": meaning}
        changes = [
            Change(0, self.offset + i, Operation.UPSERT, {"id": i}, {"id": i, "v": value}, 0, 0, semantics)
            for i, value in enumerate(values)
        ]
        end = self.offset + len(values)
        self.writer.apply(ChangeBatch(self.claim, {0: OffsetRange(self.offset, end)}, changes))
        self.offset = end


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_a_value_arrives_as_it_was(
    server: psycopg.Connection, values_dsn: str, case: tuple[str, str | None, object, str | None]
) -> None:
    declared, meaning, value, literal = case
    target = Target(server, values_dsn, CASES.index(case), declared)
    # Alone, and between others, with and without NULL: columns of one kind take other ways than mixed ones.
    target.write(meaning, value)
    target.write(meaning, value, None, value)
    target.writer.close()
    expected = value if literal is None else literal
    rows = server.execute(
        f"SELECT id, v IS NULL, v::text = CAST(CAST(%s AS text) AS {declared})::text, v::text "
        f"FROM {target.table} ORDER BY id",
        (expected,),
    ).fetchall()
    assert [row[:3] for row in rows] == [(0, False, True), (1, True, None), (2, False, True)], rows


@pytest.mark.parametrize(
    "case",
    [
        ("smallint", None, 40000, "out of range"),
        ("integer", None, "abc", "invalid input"),
        ("integer", None, "1\t2", "invalid input"),
        ("integer", None, 1.5, "invalid input"),
        ("integer", None, [1], "list cannot be written"),
        ("character varying(3)", None, "abcd", "too long"),
        ("numeric(4,2)", None, "123.45", "overflow"),
        ("text", None, "nul\x00", "byte sequence|NUL"),
        ("date", None, 2**31 - 1, "outside the years 4714 BC to 5874897"),
        ("time without time zone", None, -1, "before midnight"),
        ("timestamp without time zone", "int64", 5, "does not describe the number as a value of type timestamp"),
        ("timestamp(3) without time zone", None, 2**62, "seems to count microseconds"),
        ("timestamp without time zone", None, 1_767_323_045_678, "seems to count milliseconds"),
        (
            "timestamp without time zone",
            f"{TIME}.MicroTimestamp",
            2**63 - 1,
            "the largest that the connector can write",
        ),
        ("timestamp without time zone", f"{TIME}.Timestamp", 2**62, "outside the years 4714 BC to 294276"),
        ("timestamp without time zone", None, "20260102T030405+02:00", "Only YYYY"),
        ("timestamp without time zone", None, "2026-01-02 03:04:05+02:00:30", "Only YYYY-MM-DD"),
        ("interval", f"{TIME}.MicroDuration", 2**63 - 1, "largest that the connector can write"),
        ("money", None, "NaN", "a column of type money cannot store NaN"),
        ("text[]", None, [["a"], "[Ljava.lang.String;@3cc4663c"], "several dimensions"),
        ("bytea", None, "no base64!", "base64"),
        ("jsonb", None, "{", "json"),
        ("mood", None, "angry", "enum"),
        ("positive", None, -1, "positive_check"),
        ("uuid", None, "x", "uuid"),
        ("integer[]", None, 5, "array"),
    ],
)
def test_a_value_the_column_cannot_hold_is_named(
    server: psycopg.Connection, values_dsn: str, case: tuple[str, str | None, object, str]
) -> None:
    declared, meaning, value, says = case
    target = Target(server, values_dsn, 1000, declared)
    with pytest.raises(
        ValueRefusedError, match=f"(?s)public.values_1000, column v: .*{says}.*topic topic, partition 0, offset 0"
    ):
        target.write(meaning, value)
    target.writer.close()
    assert server.execute(f"SELECT count(*) FROM {target.table}").fetchone() == (0,)
