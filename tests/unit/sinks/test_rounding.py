"""A value that its column would round or cut off is refused, whether it comes alone or in a whole column of texts."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from headgate.sinks.relational.mysql.catalog import Column
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError

TIME: Final = "io.debezium.time"


def mysql(declared: str, meaning: str | None = None, **options: bool) -> ColumnText:
    return mysql_text(Column(declared, re.split(r"[( ]", declared)[0], None, None), meaning, **options)


PG, MY = postgresql_text, mysql
CASES: Final[list[tuple[Callable[..., ColumnText], str, str | None, list[Any], list[Any]]]] = [
    (PG, "numeric(10,2)", None, ["1.25", "-.5", "1.2500", "3", "NaN", "125e-2", 7, 1.25], ["1.255", "1e-3", 1.005]),
    (PG, "numeric(10,2)", "string", ["1.25"], ["1.2501"]),
    (PG, "numeric(10)", None, ["7", "7.0"], ["7.5"]),
    (PG, "numeric(5,-2)", None, ["1200", 1200, "12e2"], ["1250", 1250]),
    (PG, "numeric", None, ["1.23456789012345678901"], []),
    (PG, "numeric(10,2)[]", None, [["1.25", None], "{1.25}"], [["1.25", "1.255"], "{1.255}"]),
    (PG, "real", None, ["0.1", 0.1, 1e-45, 3.4028235e38, 0.10000000149011612, 16777216], [0.1234567891, 16777217]),
    (PG, "double precision", None, [0.1234567891, 16777217], []),
    (PG, "timestamp(3) without time zone", None, ["2026-01-02T03:04:05.678Z", 10**9], ["2026-01-02T03:04:05.6789Z"]),
    (PG, "timestamp(3) without time zone", f"{TIME}.MicroTimestamp", [5_000], [5_001]),
    (PG, "timestamp without time zone", f"{TIME}.NanoTimestamp", [5_000], [5_001]),
    (PG, "timestamp(0) with time zone", None, ["2026-01-02T03:04:05Z"], ["2026-01-02T03:04:05.1+01:00"]),
    (PG, "time(0) without time zone", None, ["03:04:05.000"], ["03:04:05.5", 5]),
    (PG, "interval(3)", None, ["P1DT2.5S", 5_000], ["P1DT2.0005S", 5_001]),
    (PG, "interval", None, ["P1DT2.000005S", 5_001], []),
    (PG, "date", None, ["2026-01-02", "2026-01-02T00:00:00Z", 5], ["2026-01-02T00:00:01", "2026-01-02T00:30:00+02:00"]),
    (PG, "date", f"{TIME}.MicroTimestamp", [86_400_000_000], [86_400_000_001]),
    (MY, "decimal(10,2)", None, ["1.25", "1.2500", "125e-2", 7], ["1.255", "1e-3", 1.005]),
    (MY, "decimal(10,0)", None, ["7"], ["7.5"]),
    (MY, "int(11)", None, ["7", 7, "7.0"], ["7.5", 7.5]),
    (MY, "float", None, [0.1, "0.1", 16777216], [0.1234567891, 16777217]),
    (MY, "double", None, [0.1234567891], []),
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
