"""Values whose text depends on the connector they come from; all others are in the integration test of this name."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sinks.relational.postgresql.values import column_text
from headgate.sinks.relational.times import DATES, PER_SECOND, TIMESTAMPS, NotTextError


@pytest.mark.parametrize(
    ("connector", "declared", "value", "text"),
    [
        ("mysql", "time(3) without time zone", 11_045_678_000, "03:04:05.678000"),
        ("mariadb", "time(0) without time zone", 11_045_000_000, "03:04:05"),
        ("mysql", "time without time zone", 11_045_678_901, "03:04:05.678901"),
        ("postgresql", "time(3) without time zone", 11_045_678, "03:04:05.678"),
        ("postgresql", "time without time zone", 11_045_678_901, "03:04:05.678901"),
        (None, "time(3) without time zone", 11_045_678, "03:04:05.678"),
        # Its timestamps follow the precision, whoever writes them.
        ("mysql", "timestamp(3) without time zone", 5, "1970-01-01 00:00:00.005"),
    ],
)
def test_a_time_without_schema_is_read_as_its_connector_wrote_it(
    connector: str | None, declared: str, value: int, text: str
) -> None:
    written = column_text(declared, None, connector).plain(value)
    assert written is not None
    assert written.replace("J2440588", "1970-01-01") == text


def test_a_schema_says_more_than_the_connector() -> None:
    column = column_text("time(3) without time zone", "io.debezium.time.Time", "mysql")
    assert column.plain(11_045_678) == "03:04:05.678"


@pytest.mark.parametrize("declared", ["numeric(20,0)", "numeric", "numeric(38,10)"])
def test_what_may_be_an_unsigned_number_wrapped_around_is_refused(declared: str) -> None:
    for meaning in ("int64", None):
        column = column_text(declared, meaning, "mysql")
        with pytest.raises(NotTextError, match="above 9223372036854775807 that the connector has wrapped around"):
            column.plain(-1)
        with pytest.raises(NotTextError, match="precise"):
            column.fields([1, -1], {int})
        assert column.fields([1, None, 2**63 - 1], {int, type(None)}) == ["1", "\\N", str(2**63 - 1)]
        assert column.plain("-5") == "-5"
    assert column_text(declared, "int64", "postgresql").plain(-1) == "-1"
    assert column_text(declared, "int32", "mysql").plain(-1) == "-1"


def test_bits_may_be_a_number() -> None:
    assert column_text("bit(10)", None).plain(517) == "1000000101"
    with pytest.raises(NotTextError):
        column_text("bit(10)", None).plain(-1)


@pytest.mark.parametrize("declared", ["bigint", "numeric(19,0)", "numeric(20,2)", "integer"])
def test_signed_numbers_go_where_no_unsigned_one_would_fit(declared: str) -> None:
    assert column_text(declared, "int64", "mysql").plain(-1) == "-1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"a": "1", "b c": null}', '"a"=>"1", "b c"=>NULL'),
        ({"a": 'x"y', "b\\": 1}, '"a"=>"x\\"y", "b\\\\"=>"1"'),
        ('"a"=>"1"', '"a"=>"1"'),
        ("{}", ""),
    ],
)
def test_an_hstore_is_pairs_or_a_json_object(value: object, text: str) -> None:
    assert column_text("hstore", "io.debezium.data.Json").plain(value) == text


def test_numbers_that_would_be_nanoseconds_are_refused() -> None:
    column = column_text("timestamp without time zone", None)
    with pytest.raises(NotTextError, match="seems to count nanoseconds"):
        column.plain(1_767_323_045_678_901_000)
    assert column.plain(9_223_372_036_825_200_000) == "infinity"
    with_schema = column_text("timestamp without time zone", "io.debezium.time.NanoTimestamp")
    assert with_schema.plain(1_767_323_045_678_901_000) == "J2461043 03:04:05.678901000"


@pytest.mark.parametrize("value", ["2026-02-28Z", "2026-02-28"])
def test_a_date_of_isostring_is_a_day(value: str) -> None:
    assert column_text("date", "io.debezium.time.IsoDate").plain(value) == "2026-02-28"
    assert column_text("text", "io.debezium.time.IsoDate").plain(value) == "2026-02-28"


def test_bits_that_a_schema_calls_a_text_are_not_base64() -> None:
    assert column_text("bit(4)", "string").plain("1010") == "1010"
    with pytest.raises(NotTextError, match="0 and 1"):
        column_text("bit(4)", "string").plain("Dw==")


COUNTED = sorted(PER_SECOND.keys() - TIMESTAMPS.keys())


@given(st.sampled_from(COUNTED), st.integers(-(10**17), 10**17), st.integers(0, 6))
def test_an_interval_is_the_number_of_its_unit_or_refused(meaning: str, number: int, digits: int) -> None:
    """MySQL's times become intervals at PostgreSQL, in whatever unit the connector counts them."""
    declared = "interval" if digits == 6 else f"interval({digits})"
    is_kept = number * 10**digits % PER_SECOND[meaning] == 0
    try:
        text = column_text(declared, meaning).plain(number)
    except NotTextError:
        assert not is_kept
        return
    assert is_kept
    count, unit = str(text).split(" ")
    assert Decimal(count) * PER_SECOND[meaning] == number * {"microseconds": 1_000_000, "seconds": 1}[unit]


@pytest.mark.parametrize("meaning", sorted(TIMESTAMPS.keys() | DATES))
def test_a_point_in_time_is_no_interval(meaning: str) -> None:
    with pytest.raises(NotTextError, match="does not describe the number as a value of type interval"):
        column_text("interval", meaning).plain(5)


@pytest.mark.parametrize(
    ("value", "text"), [("10:00:00.5Z", "10:00:00.5"), ("23:30:00-01:00", "00:30:00"), ("-01:00:00", "-01:00:00")]
)
def test_a_time_of_isostring_is_an_interval(value: str, text: str) -> None:
    assert column_text("interval", "io.debezium.time.IsoTime").plain(value) == text


@pytest.mark.parametrize("declared", ["time without time zone", "timestamp without time zone"])
def test_times_and_timestamps_are_not_taken_for_each_other(declared: str) -> None:
    meaning = "io.debezium.time.Timestamp" if declared.startswith("time ") else "io.debezium.time.Time"
    with pytest.raises(NotTextError, match="does not describe the number"):
        column_text(declared, meaning).plain(5)


@pytest.mark.parametrize(("number", "text"), [("5.0", "5"), ("1E+3", "1000"), ("-0.0", "0"), ("1.5", "1.5")])
def test_a_decimal_without_a_fraction_is_an_integer(number: str, text: str) -> None:
    assert column_text("integer", None).plain(Decimal(number)) == text


def test_a_nul_within_an_array_is_refused() -> None:
    with pytest.raises(NotTextError, match="NUL character"):
        column_text("text[]", None).plain(["a\0b"])
