"""What one value of an event becomes in one column of a lake table, and which values are refused."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from headgate.formats.change import TEXT_ONLY
from headgate.sinks.lake.values import is_supported, reader_of
from headgate.sinks.relational.times import NotTextError

DEBEZIUM: Final = "io.debezium.time."
CONNECT: Final = "org.apache.kafka.connect.data."
UTC_TIME: Final = pa.timestamp("us", "UTC")
WALL: Final = pa.timestamp("us")


def written(type_: pa.DataType, value: object, meaning: str | None = None, **about: Any) -> object:
    """What a reader of the table gets back."""
    read = reader_of(type_, meaning, about.get("mode"), about.get("connector"))
    return pa.array([read(value)], type_)[0].as_py()


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(20, "big", signed=True)).decode()


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_an_integer_is_taken_up_to_its_ends(bits: int) -> None:
    type_ = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    for value in (-(1 << bits - 1), 0, (1 << bits - 1) - 1):
        assert written(type_, value) == value
    assert written(type_, True) == 1
    for beyond in (-(1 << bits - 1) - 1, 1 << bits - 1):
        with pytest.raises(NotTextError, match=f"does not fit into {bits} bits"):
            written(type_, beyond)
        with pytest.raises(NotTextError, match=f"does not fit into {bits} bits"):
            written(type_, str(beyond))
    for other in (1.5, b"1", Decimal(1), [1]):
        with pytest.raises(NotTextError, match="cannot be written to a column of type integer"):
            written(type_, other)


def test_numbers_of_canal_are_texts() -> None:
    canal = {"mode": TEXT_ONLY}
    for type_, text, value in (
        (pa.int8(), "-128", -128),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.int32(), "2026", 2026),
        (pa.float64(), "1.7976931348623157E308", 1.7976931348623157e308),
        (pa.float64(), "-0.1", -0.1),
        (pa.float32(), "1.5", 1.5),
        (pa.decimal128(5, 2), "1.50", Decimal("1.50")),
    ):
        assert written(type_, text, **canal) == value


@pytest.mark.parametrize("text", ["", " 1", "+1", "01", "1.0", "1e3", "0x1F", "-0", "\u0661", "1_0", "9" * 5_000])
def test_a_text_that_is_no_plain_integer_is_refused(text: str) -> None:
    with pytest.raises(NotTextError, match=r"the text is not a number of 64 bits|it cannot be written: ValueError"):
        written(pa.int64(), text)


@pytest.mark.parametrize("type_", [pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 0)])
def test_digits_that_may_be_a_decimal_in_base64_are_refused(type_: pa.DataType) -> None:
    """See ADR 0131: an event of Debezium without a schema."""
    with pytest.raises(NotTextError, match=r"source\.decimal_handling_mode: string"):
        written(type_, "1234", connector="postgresql")
    assert written(type_, "-1234", connector="postgresql") == -1234
    assert written(type_, "1234", connector="maxwell") == 1234


def test_times_of_writers_that_have_no_zones_are_in_utc() -> None:
    text, instant = "2026-01-02 03:04:05.5", datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)
    assert written(UTC_TIME, text, mode=TEXT_ONLY) == instant
    assert written(UTC_TIME, text, connector="maxwell") == instant
    assert written(WALL, text, connector="maxwell") == instant.replace(tzinfo=None)
    with pytest.raises(NotTextError, match="the text has no offset"):
        written(UTC_TIME, text, connector="postgresql")


@pytest.mark.parametrize(
    ("value", "meaning", "there"),
    [
        ("12.30", None, "12.30"),
        (Decimal("12.3"), None, "12.30"),
        (12, None, "12.00"),
        ("-9999999999.99", None, "-9999999999.99"),
        (f"1.{'0' * 4_000}", None, "1.00"),
        ("1e9", None, "1000000000.00"),
        ("0e999999", None, "0.00"),
        ("-0", None, "0.00"),
        (unscaled(-1234), f"{CONNECT}Decimal(2)", "-12.34"),
        (unscaled(123400), f"{CONNECT}Decimal(4)", "12.34"),
        (unscaled(12), f"{CONNECT}Decimal(-2)", "1200.00"),
        ({"scale": 3, "value": unscaled(1500)}, "io.debezium.data.VariableScaleDecimal", "1.50"),
    ],
)
def test_a_decimal_keeps_every_digit(value: object, meaning: str | None, there: str) -> None:
    assert written(pa.decimal128(12, 2), value, meaning) == Decimal(there)


def test_the_longest_decimals_are_taken() -> None:
    for precision, scale in ((38, 0), (38, 38), (38, 10)):
        digits = "9" * 38
        value = f"-{digits[: precision - scale] or '0'}.{digits[:scale] or '0'}"
        assert written(pa.decimal128(precision, scale), value) == Decimal(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("10000000000", "more digits before the point"),
        ("1e400", "more digits before the point"),
        ("0.001", "more digits behind the point"),
        ("NaN", "NaN and infinities do not exist"),
        ("NEGATIVE_INFINITY", "NaN and infinities do not exist"),
        ("0x1F", "the text is not a decimal"),
        (" 1", "the text is not a decimal"),
        ("", "the text is not a decimal"),
        (1.5, "a float cannot be written"),
        (True, "a bool cannot be written"),
    ],
)
def test_a_decimal_that_does_not_fit_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotTextError, match=why):
        written(pa.decimal128(12, 2), value)


def test_an_unsigned_bigint_that_the_connector_wrapped_around_is_refused() -> None:
    unsigned = pa.decimal128(20, 0)
    assert written(unsigned, 18446744073709551615, "int64", connector="mariadb") == Decimal(18446744073709551615)
    with pytest.raises(NotTextError, match=r"bigint\.unsigned\.handling\.mode=precise"):
        written(unsigned, -1, "int64", connector="mariadb")
    assert written(unsigned, -1, "int64", connector="postgresql") == Decimal(-1)
    assert written(pa.decimal128(19, 0), -1, "int64", connector="mysql") == Decimal(-1)


@pytest.mark.parametrize(
    "value",
    [
        *(0, -5, 1.5, Decimal("0.1"), Decimal("4.9E-324"), Decimal("1.7976931348623157E308"), Decimal("1.50"), 2**53),
        *(Decimal("7.120236347223045E-307"), Decimal("1.9999999999999998E23"), Decimal("0." + "1".ljust(30, "0"))),
    ],
)
def test_a_double_is_the_number_that_was_shown(value: float) -> None:
    assert written(pa.float64(), value) == float(value)


@pytest.mark.parametrize(
    "value", [Decimal("0.1"), Decimal("1.4E-45"), Decimal("3.4028235E38"), Decimal("1.2379401E27"), 1.5, 7]
)
def test_a_float_is_the_number_that_was_shown(value: float) -> None:
    assert written(pa.float32(), value) == pa.scalar(float(value), pa.float32()).as_py()


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_what_a_floating_number_has_beside_numbers_is_taken(type_: pa.DataType) -> None:
    for word in ("NaN", "Infinity", "-Infinity", "NEGATIVE_INFINITY"):
        assert str(written(type_, word)) == {"NaN": "nan", "Infinity": "inf"}.get(word, "-inf")
    for other in (b"1", True, [1.5]):
        with pytest.raises(NotTextError, match="cannot be written to a column of type"):
            written(type_, other)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.float64(), Decimal("0.12345678901234567890")),
        (pa.float64(), 2**53 + 1),
        (pa.float32(), Decimal("0.123456789")),
        (pa.float32(), Decimal("0.500000000000000000001")),
        (pa.float32(), 2**24 + 1),
        (pa.float32(), 1e39),
    ],
)
def test_digits_that_a_floating_number_does_not_keep_are_refused(type_: pa.DataType, value: object) -> None:
    with pytest.raises(NotTextError, match=r"more digits than|larger than a float"):
        written(type_, value)


def test_a_float_by_its_schema_is_taken_with_all_the_digits_it_is_shown_with() -> None:
    assert written(pa.float32(), 0.10000000149011612, "float") == pa.scalar(0.1, pa.float32()).as_py()


def test_a_boolean_is_nothing_else() -> None:
    assert [written(pa.bool_(), value) for value in (True, False, None)] == [True, False, None]
    for other in (1, 0, "true"):
        with pytest.raises(NotTextError, match="cannot be written to a column of type boolean"):
            written(pa.bool_(), other)


@pytest.mark.parametrize(
    ("value", "meaning", "there"),
    [
        ("", None, ""),
        ("naïve 漢字 🚪\t\0", None, "naïve 漢字 🚪\t\0"),
        ("x" * 1_000_000, None, "x" * 1_000_000),
        (True, None, "true"),
        (12, None, "12"),
        (Decimal("1E+3"), None, "1000"),
        (1.5, None, "1.5"),
        ({"a": [1, None]}, None, '{"a":[1,null]}'),
        ([1, None, "x"], "array(int32)", '[1,null,"x"]'),
        ([unscaled(150), None], f"array({CONNECT}Decimal(2))", "[1.50,null]"),
        ([0, None], f"array({DEBEZIUM}Date)", '["1970-01-01",null]'),
        (["2026-01-02T03:04:05Z"], f"array({DEBEZIUM}ZonedTimestamp)", '["2026-01-02T03:04:05Z"]'),
        (unscaled(-1234), f"{CONNECT}Decimal(2)", "-12.34"),
        (86_400_000_000, f"{DEBEZIUM}MicroTime", "24:00:00"),
        (-3_020_399_000_001, f"{DEBEZIUM}MicroTime", "-838:59:59.000001"),
        (base64.b64encode(b"\x05\x00").decode(), "io.debezium.data.Bits(10)", "0000000101"),
        ("P0Y1M-2DT3H4M5.000006S", f"{DEBEZIUM}Interval", "P0Y1M-2DT3H4M5.000006S"),
        ('{"a": 1.10}', "io.debezium.data.Json", '{"a": 1.10}'),
        ("glad", "io.debezium.data.Enum", "glad"),
    ],
)
def test_a_string_shows_the_value(value: object, meaning: str | None, there: str) -> None:
    assert written(pa.string(), value, meaning) == there


def test_json_in_a_string_is_json() -> None:
    text = written(pa.string(), [unscaled(150), None], f"array({CONNECT}Decimal(2))")
    assert json.loads(str(text), parse_float=str) == ["1.50", None]


def test_texts_that_are_none_are_refused() -> None:
    with pytest.raises(NotTextError, match="it cannot be written"):
        written(pa.string(), "\ud800")
    with pytest.raises(NotTextError, match="cannot be written to a column of type string"):
        written(pa.string(), b"x")


@pytest.mark.parametrize(
    ("value", "meaning", "mode"),
    [
        (b"\x00\xff", None, None),
        ("AP8=", None, None),
        ("AP8=", "bytes", None),
        ("00ff", "string", "hex"),
        ("AP8=", "string", "base64-url-safe"),
    ],
)
def test_bytes_are_read_as_the_connector_wrote_them(value: object, meaning: str | None, mode: str | None) -> None:
    assert written(pa.binary(), value, meaning, mode=mode) == b"\x00\xff"


def test_bytes_of_any_length_are_taken_and_texts_are_not() -> None:
    assert [written(pa.binary(), value) for value in (b"", b"\xff" * 1_000_000)] == [b"", b"\xff" * 1_000_000]
    for text, meaning in (("not base64!", None), ("AP8=", "string")):
        with pytest.raises(NotTextError, match=r"binary_handling_mode|base64"):
            written(pa.binary(), text, meaning)


@pytest.mark.parametrize(
    ("value", "meaning", "there"),
    [
        (0, f"{DEBEZIUM}Date", date(1970, 1, 1)),
        (-719_162, f"{CONNECT}Date", date(1, 1, 1)),
        (2_932_896, None, date(9999, 12, 31)),
        ("2026-02-28", None, date(2026, 2, 28)),
        ("2026-02-28T00:00:00Z", None, date(2026, 2, 28)),
        ("2026-02-28Z", f"{DEBEZIUM}IsoDate", date(2026, 2, 28)),
    ],
)
def test_a_date_is_its_day(value: object, meaning: str | None, there: date) -> None:
    assert written(pa.date32(), value, meaning) == there


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (-719_163, f"{DEBEZIUM}Date"),
        (2_932_897, f"{DEBEZIUM}Date"),
        (-2_147_472_692, f"{DEBEZIUM}Date"),
        (5, "int32"),
        ("now", None),
        ("2026-02-30", None),
        ("10000-01-01", None),
        ("20260228", None),
        ("2026-W09-6", None),
        ("2026-02-28T23:30:00-01:00", None),
        (1.5, None),
    ],
)
def test_another_date_is_refused(value: object, meaning: str | None) -> None:
    with pytest.raises(NotTextError):
        written(pa.date32(), value, meaning)


@pytest.mark.parametrize(
    ("value", "meaning", "there"),
    [
        (0, f"{DEBEZIUM}Timestamp", datetime(1970, 1, 1)),
        (1, f"{CONNECT}Timestamp", datetime(1970, 1, 1, 0, 0, 0, 1_000)),
        (-1, f"{DEBEZIUM}MicroTimestamp", datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        (1_000, f"{DEBEZIUM}NanoTimestamp", datetime(1970, 1, 1, 0, 0, 0, 1)),
        (-62_135_596_800_000_000, f"{DEBEZIUM}MicroTimestamp", datetime(1, 1, 1)),
        (253_402_300_799_999_999, f"{DEBEZIUM}MicroTimestamp", datetime(9999, 12, 31, 23, 59, 59, 999_999)),
        ("2026-01-02 03:04:05.678901", None, datetime(2026, 1, 2, 3, 4, 5, 678_901)),
        ("2026-01-02T03:04:05+02:00", None, datetime(2026, 1, 2, 1, 4, 5)),
        ("2026-01-02T03:04:05.100000000", f"{DEBEZIUM}IsoTimestamp", datetime(2026, 1, 2, 3, 4, 5, 100_000)),
    ],
)
def test_a_time_without_a_zone_is_the_wall_clock(value: object, meaning: str | None, there: datetime) -> None:
    assert written(WALL, value, meaning) == there


@pytest.mark.parametrize(
    ("value", "there"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678901+02:00", datetime(2026, 1, 2, 1, 4, 5, 678_901, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_an_instant_is_kept(value: object, there: datetime) -> None:
    assert written(UTC_TIME, value, f"{DEBEZIUM}ZonedTimestamp") == there


@pytest.mark.parametrize(
    ("type_", "value", "meaning", "why"),
    [
        (WALL, 1_001, f"{DEBEZIUM}NanoTimestamp", "nanoseconds"),
        (WALL, "2026-01-02T03:04:05.1234567", None, "nanoseconds"),
        (WALL, 9_223_372_036_825_200_000, f"{DEBEZIUM}MicroTimestamp", "infinite"),
        (WALL, 2**63 - 1, f"{DEBEZIUM}MicroTimestamp", "largest that the connector can write"),
        (WALL, 253_402_300_800_000_000, f"{DEBEZIUM}MicroTimestamp", "not in the years 1 to 9999"),
        (WALL, 5, None, "does not describe the number as a value of type timestamp"),
        (WALL, "now", None, "not a time of the years 1 to 9999"),
        (WALL, 1.5, f"{DEBEZIUM}Timestamp", "a float is not a timestamp"),
        (UTC_TIME, 0, f"{DEBEZIUM}Timestamp", "a time without a zone is not an instant"),
        (UTC_TIME, "2026-01-02 03:04:05", None, "no offset"),
    ],
)
def test_another_time_is_refused(type_: pa.DataType, value: object, meaning: str | None, why: str) -> None:
    with pytest.raises(NotTextError, match=why):
        written(type_, value, meaning)


def test_nothing_is_nothing_in_every_column() -> None:
    for type_ in (pa.int8(), pa.decimal128(5, 2), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary()):
        assert written(type_, None) is None
    for type_ in (pa.date32(), WALL, UTC_TIME):
        assert written(type_, None) is None


def test_types_that_cannot_be_written_are_known() -> None:
    others = [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.time64("us"), pa.uint8(), pa.timestamp("ns")]
    assert not any(map(is_supported, others))
