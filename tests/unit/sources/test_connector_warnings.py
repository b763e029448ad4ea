"""What a feed's creation says of values that the connector changes."""

import pytest
from msgspec.structs import replace

from headgate.records.name_lists import NAMES_SHOWN_MAX
from headgate.sources.connector_warnings import SinkTable, connector_warnings
from headgate.sources.preview import Seen

COLUMNS = {
    "id": "integer",
    "tier": "text",
    "n": "numeric(10,2)[]",
    "words": "text[]",
    "at": "timestamp(3) without time zone[]",
    "clock": "time(6) without time zone[]",
    "gaps": "interval[]",
    "lsn": "pg_lsn",
    "bits": "bit varying(10)",
}


def warned(columns: dict[str, str], seen: Seen, *defaults: str) -> tuple[str, ...]:
    return connector_warnings([SinkTable("shop.public.t", "public.t", columns, defaults)], {"shop.public.t": seen})


def test_a_topic_without_records_and_columns_that_arrive_as_they_are_say_nothing() -> None:
    assert connector_warnings([SinkTable("a", "public.a", COLUMNS)], {}) == ()
    whole = Seen(records=1, fitting=1, columns=frozenset({"id", "tier"}), connector="postgresql")
    assert warned({"id": "integer", "tier": "text"}, whole) == ()


POSTGRESQL = Seen(columns=frozenset({"id", "tier", "credit"}), connector="postgresql")
THREE = {"id": "integer", "tier": "text", "credit": "integer"}


def test_a_null_that_may_have_become_a_default_is_told_unless_one_was_seen() -> None:
    with_schema = replace(POSTGRESQL, defaults=frozenset({"tier", "credit"}))
    (warning,) = warned(THREE, with_schema)
    assert "public.t: credit, tier" in warning
    assert "value.converter.replace.null.with.default" in warning
    assert warned(THREE, replace(with_schema, nulls=frozenset({"tier"}))) == ()
    assert warned(THREE, replace(POSTGRESQL, defaults=frozenset()), "tier") == (), "the schema knows better"


def test_without_a_schema_the_sinks_defaults_count() -> None:
    (warning,) = warned(THREE, POSTGRESQL, "tier", "of_the_sink")
    assert "(public.t: tier)" in warning
    assert warned(THREE, replace(POSTGRESQL, nulls=frozenset({"tier"})), "tier") == ()
    for connector in (None, "maxwell"):
        assert warned(THREE, replace(POSTGRESQL, connector=connector), "tier") == ()


def test_columns_that_never_arrive_are_told() -> None:
    (warning,) = warned({"ID": "int", "tier": "varchar(9)", "addr": "addr"}, Seen(columns=frozenset({"id", "tier"})))
    assert "(public.t: addr)" in warning


def test_types_that_debezium_changes_are_told_for_its_connector_only() -> None:
    there = frozenset(COLUMNS)
    lost, forgotten, cut, stripped = warned(COLUMNS, Seen(columns=there, connector="postgresql"))
    assert "gaps (interval[]), lsn (pg_lsn)" in lost
    assert "n (numeric[]), at (timestamp without time zone[]), clock (time without time zone[])" in forgotten
    assert "words" not in forgotten
    assert "bits (bit varying)" in stripped
    assert "clock (time without time zone[])" in cut
    assert warned(COLUMNS, Seen(columns=there, connector="maxwell")) == ()
    assert warned(COLUMNS, Seen(columns=there)) == ()


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_a_year_is_told(connector: str) -> None:
    (warning,) = warned({"id": "int", "y": "year(4)"}, Seen(columns=frozenset({"id", "y"}), connector=connector))
    assert "year 0 as 1900 (public.t: y)" in warning


def test_months_that_became_days_are_told() -> None:
    there = frozenset({"id", "span", "told"})
    seen = Seen(columns=there, connector="postgresql", durations=frozenset({"span"}))
    columns = {"id": "integer", "span": "interval(3)", "told": "interval"}
    (warning,) = warned(columns, seen)
    assert "30.4375 days each (public.t: span)" in warning
    assert warned(columns | {"span": "bigint"}, seen) == ()


def test_a_warning_names_a_few_tables_and_columns() -> None:
    tables = [
        SinkTable(f"t{n}", f"public.t{n}", {f"c{m}": "pg_lsn" for m in range(NAMES_SHOWN_MAX + 4)})
        for n in range(NAMES_SHOWN_MAX + 4)
    ]
    there = Seen(columns=frozenset(f"c{m}" for m in range(NAMES_SHOWN_MAX + 4)), connector="postgresql")
    (warning,) = connector_warnings(tables, {each.topic: there for each in tables})
    last = NAMES_SHOWN_MAX - 1
    assert f"c{last} (pg_lsn) and 4 more; public.t1" in warning
    assert " and 4 more and 4 more)" in warning
