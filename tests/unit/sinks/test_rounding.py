"""A value that its column would round or cut off is refused, whether it comes alone or in a whole column of texts."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pytest

from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError

TIME: Final = "io.debezium.time"
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DEC_EXACT: Final = (125).to_bytes(1, "big")
DEC_LONG: Final = (9_007_199_254_740_993_00).to_bytes(8, "big")


def mysql(declared: str, meaning: str | None = None, **options: bool) -> ColumnText:
    return mysql_text(MysqlSinkColumn(declared, re.split(r"[( ]", declared)[0], None, None), meaning, **options)


PG, MY = postgresql_text, mysql
CASES: Final[list[tuple[Callable[..., ColumnText], str, str | None, list[Any], list[Any]]]] = [
    (PG, "numeric(10,2)", None, ["1.25", "-.5", "1.2500", "3", "NaN", "125e-2", 7, 1.25], ["1.255", "1e-3", 1.005]),
    (PG, "numeric(10,2)", "string", ["1.25"], ["1.2501"]),
    (PG, "numeric(10)", None, ["7", "7.0"], ["7.5"]),
    (PG, "numeric(5,-2)", None, ["1200", 1200, "12e2"], ["1250", 1250]),
    (PG, "numeric", None, ["1.23456789012345678901"], []),
    (PG, "numeric(10,2)[]", None, [["1.25", None], "{1.25}"], [["1.25", "1.255"], "{1.255}"]),
    (PG, "real", None, ["0.1", 0.1, 1e-45, 3.4028235e38, 0.10000000149011612, 16777216,
                         1.2379401e27, 1.2621775e-29], [0.1234567891, 16777217]),
    (PG, "double precision", None,
     [0.1234567891, 16777217, 9007199254740992, "9007199254740992", "0.10000000000000000000000", "4.9E-324", "Infinity",
      "NaN", "-0", Decimal("1.9999999999999998E+23"),
      Decimal("7.120236347223045E-307"), Decimal("1.2345678901234567E+19"), Decimal("1E+23"),
      Decimal("0.30000000000000004"), Decimal(0)],
     [9007199254740993, "9007199254740993", "12345678901234567890.123", "1e-400", "0." + "3" * 900,
      Decimal("0.123456789012345678"), Decimal("1e-400"), Decimal("1.2345678E-320")]),
    (PG, "double precision", "double", [Decimal("1.9999999999999998E+23")], []),
    (PG, "double precision", f"{DECIMAL}(2)", [DEC_EXACT], [DEC_LONG]),
    (PG, "double precision", f"{DECIMAL}(3)", [DEC_EXACT], [(12345678901234567).to_bytes(8, "big")]),
    (PG, "double precision[]", None, [["0.5", 7], "{0.5}"], [["0.5", 9007199254740993], "{9007199254740993}"]),
    (PG, "timestamp(3) without time zone", None, ["2026-01-02T03:04:05.678Z", 10**9], ["2026-01-02T03:04:05.6789Z"]),
    (PG, "timestamp(3) without time zone", f"{TIME}.MicroTimestamp", [5_000], [5_001]),
    (PG, "timestamp without time zone", f"{TIME}.NanoTimestamp", [5_000], [5_001]),
    (PG, "timestamp(0) with time zone", None, ["2026-01-02T03:04:05Z"], ["2026-01-02T03:04:05.1+01:00"]),
    (PG, "time(0) without time zone", None, ["03:04:05.000"], ["03:04:05.5", 5]),
    (PG, "interval(3)", None, ["P1DT2.5S", 5_000], ["P1DT2.0005S", 5_001]),
    (PG, "interval year to month", None, ["P1Y2M", "P1Y2M0DT0S", "1 year -2 mons", "0 microseconds", 0, "infinity"],
     ["P1Y2M3D", "P1MT4M", "1 mon 00:00:01", "1 mon 3 days", 5]),
    (PG, "interval year", None, ["P2Y", "P24M", "P-1Y"], ["P2Y1M", "1 mon"]),
    (PG, "interval month", f"{TIME}.Interval", ["P2Y1M"], ["P1W"]),
    (PG, "interval day", f"{TIME}.MicroDuration", [0], [93_784_500_000]),
    (PG, "interval day to minute", None, ["P1DT4H5M", "PT-1M60S", "1 day 04:05:00", "P1M1DT3600S"],
     ["P1DT4H5M6S", "PT0.000001S", "1 day 04:05:06", "-00:00:00.5", "-0.5 seconds"]),
    (PG, "interval hour", None, ["PT90H", "60 minutes", "02:00"], ["PT1M", "90 minutes", "02:30"]),
    (PG, "interval day to second(3)", None, ["P1DT2.5S"], ["P1DT2.0005S"]),
    (PG, "interval year to month[]", None, ["{P1Y2M}"], ["{P1Y2M3D}"]),
    (PG, "interval", None, ["P1DT2.000005S", 5_001], []),
    (PG, "date", None, ["2026-01-02", "2026-01-02T00:00:00Z", 5], ["2026-01-02T00:00:01", "2026-01-02T00:30:00+02:00"]),
    (PG, "date", f"{TIME}.MicroTimestamp", [86_400_000_000], [86_400_000_001]),
    (MY, "decimal(10,2)", None, ["1.25", "1.2500", "125e-2", 7], ["1.255", "1e-3", 1.005]),
    (MY, "decimal(10,0)", None, ["7"], ["7.5"]),
    (MY, "int(11)", None, ["7", 7, "7.0"], ["7.5", 7.5]),
    (MY, "float", None, [0.1, "0.1", 16777216], [0.1234567891, 16777217]),
    (MY, "double", None, [0.1234567891, 9007199254740992, "1.5e3", Decimal("1E+23")],
     [9007199254740993, "9007199254740993", "1e-400", Decimal("0.123456789012345678")]),
    (MY, "double", f"{DECIMAL}(2)", [DEC_EXACT], [DEC_LONG]),
    (MY, "datetime", None, ["2026-01-02 03:04:05", "2026-01-02T03:04:05.000Z"], ["2026-01-02 03:04:05.1", 10**9 + 5]),
    (MY, "datetime(6)", None, ["2026-01-02 03:04:05.123456"], ["2026-01-02 03:04:05.1234567"]),
    (MY, "timestamp(3)", f"{TIME}.MicroTimestamp", [5_000], [5_001]),
    (MY, "time(3)", None, [5_000, "-25:00:00.123"], [5_001, "-25:00:00.1234"]),
    (MY, "date", None, ["2026-01-02", "2026-01-02T00:00:00"], ["2026-01-02T00:30:00+02:00", "2026-01-02T10:00:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "declared", "meaning", "kept", "lost"), CASES)
def test_a_value_that_the_column_would_change_is_refused(
    column: Callable[..., ColumnText], declared: str, meaning: str | None, kept: list[Any], lost: list[Any]
) -> None:
    text = column(declared, meaning)
    for kind in {type(value) for value in kept}:
        alike = [value for value in kept if type(value) is kind]
        assert list(text.fields(alike, {kind})) == [text.field(value) for value in alike]
        assert list(text.fields([*alike, None], {kind, type(None)})) == [*map(text.field, alike), "\\N"]
    for value in lost:
        alike = [each for each in kept if type(each) is type(value)]
        with pytest.raises(NotTextError, match="than the column keeps: the database would round it or cut it off"):
            text.fields([*alike, value], {type(value)})


def test_texts_that_surely_lose_nothing_are_not_judged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [(PG("numeric(10,2)", None), "1.25"), (MY("decimal(10,2)"), "1.25"),
               (PG("timestamp(3) with time zone", None), "2026-01-02T03:04:05.678Z"),
               (MY("datetime(3)"), "2026-01-02 03:04:05.678")]  # fmt: skip

    def judged(_self: ColumnText, value: object) -> str:
        raise AssertionError(value)

    monkeypatch.setattr(ColumnText, "written", judged)
    for column, value in columns:
        assert list(column.fields([value, value], {str})) == [value, value]


@pytest.mark.parametrize(("column", "declared", "meaning", "kept", "lost"), CASES)
def test_it_is_left_to_the_database_where_the_feed_says_so(
    column: Callable[..., ColumnText], declared: str, meaning: str | None, kept: list[Any], lost: list[Any]
) -> None:
    for value in (*kept, *lost):
        column(declared, meaning, rounds=True).field(value)
    if "[]" not in declared:
        for value in lost:
            with pytest.raises(NotTextError):
                column(declared, meaning, rounds=True, in_key=True).field(value)
