"""Column options are compared with the source's tables before a feed is accepted."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config.expressions import Kind
from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.records.control import SpanPlan
from headgate.sources.preview import Seen
from headgate.tables import column_options
from headgate.tables.column_options import check_columns
from headgate.tables.computed import source_columns

from .definitions import mysql_column, mysql_table, postgres_column, postgres_table

TABLES = {
    "shop.a": postgres_table(postgres_column("id", "bigint"), postgres_column("x", "text", kind="text"), key=("id",)),
    "shop.b": postgres_table(postgres_column("id", "bigint"), postgres_column("y", "date"), key=("id",)),
}


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(_target: object) -> Iterator[Any]:
        yield SimpleNamespace(has=TABLES.__contains__, definition=TABLES.get)

    monkeypatch.setattr(column_options, "open_catalogue", opened)


def check(
    columns: dict[str, Any],
    tables: dict[str, Any] | None = None,
    *names: str,
    are_all: bool = True,
    database: bool = True,
    schema: EventSchema | None = None,
    where: str | None = None,
    where_of: dict[str, str] | None = None,
    seen: dict[str, Seen] | None = None,
    decimals: str | None = None,
    before: dict[str, Any] | None = None,
) -> None:
    source: dict[str, Any] = {"topic_pattern": r"t\..*", "decimal_handling_mode": decimals}
    if database:
        source["database"] = {"dsn": "postgresql://ann@db/shop"}
    ends = {"feed": "f", "source": source, "sink": {"type": "postgresql", "dsn": "dbname=x"}}
    spec = FeedSpec.model_validate(
        ends | {"columns": columns,
         "tables": {name: {"columns": given} for name, given in (tables or {}).items()}
                   | {name: {"where": given} for name, given in (where_of or {}).items()}, "where": where}
    )  # fmt: skip
    plans = [SpanPlan(name, f"t.{name}", name, {0: 0}) for name in names or TABLES]
    was = None if before is None else FeedSpec.model_validate(ends | before)
    check_columns(spec, plans, lambda _: None, lambda _: schema, seen or {}, are_all=are_all, before=was)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"exclude": ["z"]}, r"columns names z, which the source's table does not have \(shop\.a, shop\.b\)"),
        ({"mask": {"Z": None}}, "names Z"),
        ({"exclude": ["id"]}, r"columns: table shop\.a: column id is part of the key and is excluded"),
        ({"rename": {"x": "id"}}, r"columns: table shop\.a: columns id and x both become id at the sink"),
        ({"mask": {"y": {"keep_last": 2}}}, r"table shop\.b: column y is of type date, and mask keep_last takes texts"),
        ({"mask": {"x": {"sha256": "no-such-salt"}}}, r"columns\.mask\.sha256: cannot read no-such-salt"),
    ],
)
def test_what_the_source_contradicts_is_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        check(columns)


def test_a_column_of_one_of_the_tables_is_enough_for_all_of_them() -> None:
    check({"exclude": ["x"], "rename": {"y": "day"}})
    check({}, {"shop.*": {"exclude": ["x", "y"]}})


def test_a_tables_own_entry_names_its_own_columns() -> None:
    with pytest.raises(FeedSpecError, match=r"tables\.shop\.a\.columns names y"):
        check({}, {"shop.a": {"exclude": ["y"]}})
    check({"exclude": ["y"]}, {"shop.a": {}})


def test_tables_that_join_may_lack_what_others_have() -> None:
    check({"exclude": ["x"]}, {}, "shop.b", are_all=False)
    with pytest.raises(FeedSpecError, match=r"tables\.shop\.b\.columns names x"):
        check({}, {"shop.b": {"exclude": ["x"]}}, "shop.b", are_all=False)


def test_a_table_that_nobody_describes_is_not_judged() -> None:
    check({"exclude": ["nowhere"]}, {}, "shop.a", "shop.unknown")
    check({"exclude": ["nowhere"]}, {}, "shop.a", database=False)


def test_events_describe_tables_where_no_database_is_named() -> None:
    schema = EventSchema(
        connector="postgresql",
        columns=(ColumnSchema(name="id", meaning="int64", is_optional=False),),
        key=("id",),
    )
    with pytest.raises(FeedSpecError, match="names x"):
        check({"exclude": ["x"]}, {}, "shop.a", database=False, schema=schema)
    with pytest.raises(FeedSpecError, match="column id is part of the key"):
        check({"exclude": ["id"]}, {}, "shop.a", database=False, schema=schema)


def test_a_feed_without_column_options_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(column_options, "open_catalogue")
    check({})


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("z = 1", r"where: table shop\.a: the source's table does not have the columns z\. Its columns are id, x"),
        (
            "id = '5'",
            r"where: table shop\.a: = needs values of one type, and has integer and text\. Write numbers with",
        ),
        ("id", r"where: table shop\.a: the expression is of type integer, and a filter must be a condition"),
        ("id = 1 AND y > DATE '2026-01-01'", r"table shop\.a: the source's table does not have the columns y"),
    ],
)
def test_a_filter_that_a_table_contradicts_is_refused(where: str, why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        check({}, where=where)


def test_a_tables_own_filter_takes_the_place_of_the_feeds() -> None:
    with pytest.raises(FeedSpecError, match=r"tables\.shop\.b\.where: table shop\.b: .* Write a date as DATE"):
        check({}, where="x = 'a'", where_of={"shop.b": "y = 'a'"})
    check({}, where="x = 'a'", where_of={"shop.b": "y = DATE '2026-01-31' OR TRUE"})
    check({}, where="x = 'a' OR TRUE", where_of={"shop.b": "TRUE"})


def test_without_a_definition_the_filter_waits_for_the_first_value() -> None:
    check({}, where="z = 1", database=False)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"n": "xx || 'a'"},
            r"columns\.set\.n: table shop\.a: the source's table does not have the columns xx\. Its col",
        ),
        ({"n": "eu"}, r"columns eu\. .*A text is in quotes: \"'eu'\""),
        ({"n": "X"}, "does not have the columns X"),
        ({"n": "x + 1"}, r"\+ needs numbers, and has text"),
        ({"n": "NULL"}, r"always NULL, so its type is not known\. Write CAST\(NULL AS TEXT\)"),
        (
            {"x": "id * 2"},
            "set makes a column x, and the source's table has a column of that name, which the expression",
        ),
        ({"id": "id + 1"}, "column id is part of the key and is computed"),
    ],
)
def test_a_column_that_cannot_be_computed_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        check({"set": given}, {}, "shop.a")
    with pytest.raises(FeedSpecError, match=r"tables\.shop\.a\.columns"):
        check({}, {"shop.a": {"set": given}}, "shop.a")


def test_what_is_computed_fits_the_column_that_the_sink_has() -> None:
    check({"set": {"x": "UPPER(x)", "n": "id * 2"}}, {}, "shop.a")
    with pytest.raises(
        FeedSpecError, match=r"set\.x: table shop\.a: the result is of type integer, and the sink's colu"
    ):
        check({"set": {"x": "LENGTH(x)"}}, {}, "shop.a")
    check({"set": {"x": "LENGTH(x)"}}, {}, "shop.a", database=False)


def seen_of(kinds: dict[str, Kind]) -> dict[str, Seen]:
    """As the newest records of every table's topic show it, without schemas."""
    shown = Seen(columns=frozenset(kinds), kinds={name: frozenset({kind}) for name, kind in kinds.items()})
    return {f"t.{name}": shown for name in TABLES}


JSON = {
    "id": Kind.INTEGER,
    "status": Kind.TEXT,
    "total": Kind.TEXT,
    "day": Kind.INTEGER,
    "raw": Kind.OTHER,
}
ADVICE = r"Name the database that the changes come from in source\.database, or let the connector write schemas"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"where": "total > 10"}, rf"where: table shop\.a: > needs .* the types are: total text\. Events .* {ADVICE}"),
        ({"where": "day > DATE '2026-01-31'"}, rf"where: table shop\.a: column day cannot be typed: .* {ADVICE}"),
        ({"where": "EXTRACT(year FROM day) > 2025"}, rf"column day cannot be typed: EXTRACT needs date .* {ADVICE}"),
        ({"where": "at < TIMESTAMPTZ '2026-01-31 12:00:00Z'"}, "the source's table does not have the columns at"),
        ({"where": "statuss = 'open'"}, r"does not have the columns statuss\. Its columns are day, id, raw, status"),
        ({"where": "raw = 'x'"}, "column raw has a type that expressions do not take"),
        ({"columns": {"set": {"x": "total * 2"}}}, rf"columns\.set\.x: table shop\.a: \* needs numbers.* {ADVICE}"),
        ({"columns": {"set": {"x": "DATE_TRUNC('month', day)"}}}, r"columns\.set\.x: .* column day cannot be typed"),
    ],
)
def test_what_events_without_schemas_cannot_be_typed_as_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        check(options.pop("columns", {}), database=False, seen=seen_of(JSON), **options)


@pytest.mark.parametrize(
    "where",
    [
        "status = 'open'",
        "CAST(total AS NUMERIC) > 10",
        "id > 5",
        "day IS NULL",
        "raw IS NOT NULL",
        "day > 20000",
        "TRUE",
    ],
)
def test_what_values_show_by_themselves_is_accepted(where: str) -> None:
    check({}, database=False, seen=seen_of(JSON), where=where)


def test_without_records_only_what_no_value_can_be_is_refused() -> None:
    check({}, database=False, where="total > 10 AND status = 'open'")
    with pytest.raises(FeedSpecError, match="column day cannot be typed"):
        check({}, database=False, where="day > DATE '2026-01-31'")


def test_values_of_several_types_show_nothing() -> None:
    seen = {"t.shop.a": Seen(columns=frozenset({"x"}), kinds={"x": frozenset({Kind.TEXT, Kind.INTEGER})})}
    check({}, None, "shop.a", database=False, seen=seen, where="x > 10")


def test_a_table_that_the_catalogue_lacks_is_that_of_its_events() -> None:
    with pytest.raises(FeedSpecError, match=r"where: table shop\.gone: > needs .* Grant SELECT on it"):
        check(
            {},
            None,
            "shop.gone",
            seen={"t.shop.gone": Seen(columns=frozenset(JSON), kinds={"total": frozenset({Kind.TEXT})})},
            where="total > 10",
        )


def test_a_whole_decimal_that_is_a_text_needs_the_connectors_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    table = postgres_table(postgres_column("id", "bigint"), postgres_column("n", "numeric(10,0)"), key=("id",))
    monkeypatch.setitem(TABLES, "shop.a", table)
    seen = {"t.shop.a": Seen(columns=frozenset({"id", "n"}), kinds={"n": frozenset({Kind.TEXT})})}
    with pytest.raises(FeedSpecError, match=r"where: table shop\.a: column n .* Set source\.decimal_handling_mode"):
        check({}, None, "shop.a", seen=seen, where="n > 5")
    check({}, None, "shop.a", seen=seen, where="n > 5", decimals="string")
    check({}, None, "shop.a", where="n > 5")


def test_decimals_in_bytes_are_refused_when_the_feed_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (postgres_column("id", "bigint"), postgres_column("n", "numeric(10,2)"))
    monkeypatch.setitem(TABLES, "shop.a", postgres_table(*columns, key=("id",)))
    texts = {"n": frozenset({Kind.TEXT})}
    seen = {"t.shop.a": Seen(columns=frozenset({"id", "n"}), kinds=texts)}
    check({}, None, "shop.a", seen=seen, where="n > 5")
    why = r"where: table shop\.a: column n is a decimal.* decimal\.handling\.mode=string"
    with pytest.raises(FeedSpecError, match=why):
        check({}, None, "shop.a", seen=seen, where="n > 5", decimals="precise")
    seen["t.shop.a"].bytes_of_decimals = frozenset({"n"})
    with pytest.raises(FeedSpecError, match=why):
        check({}, None, "shop.a", seen=seen, where="n > 5")
    check({}, None, "shop.a", seen=seen, where="id > 5")


def test_columns_of_a_catalogue_as_values_of_events_are_read() -> None:
    types = ("numeric(12,2)", "numeric(5)", "numeric", "timestamp without time zone", "timestamp(3) without time zone")
    columns = (postgres_column(f"c{number}", type_) for number, type_ in enumerate(types))
    found = source_columns(postgres_table(*columns, key=("c0",)))
    assert [column.scale for column in found.values()][:3] == [2, 0, None]
    assert [column.is_fine for column in found.values()][3:] == [True, False]
    types = (
        "decimal(12,2)",
        "datetime",
        "datetime(3)",
        "datetime(6)",
        "bigint(20) unsigned",
        "int(10) unsigned",
        "tinyint(1)",
    )
    found = source_columns(mysql_table(*(mysql_column(f"c{n}", type_) for n, type_ in enumerate(types)), key=("c0",)))
    assert [column.is_fine for column in found.values()][1:4] == [False, False, True]
    assert [column.is_unsigned for column in found.values()][4:6] == [True, False]
    assert (found["c0"].scale, found["c6"].kind) == (2, Kind.UNKNOWN)


def test_an_update_may_keep_a_column_that_the_source_has_renamed_since_but_not_add_one() -> None:
    before = {"columns": {"exclude": ["old"]}, "tables": {"shop.a": {"columns": {"exclude": ["former"]}}}}
    check({"exclude": ["old", "y"]}, {}, "shop.b", before=before)
    check({}, {"shop.a": {"exclude": ["former", "x"]}}, "shop.a", before=before)
    with pytest.raises(FeedSpecError, match=r"columns names olds, which the source's table does not have"):
        check({"exclude": ["old", "olds"]}, {}, "shop.b", before=before)
    with pytest.raises(FeedSpecError, match=r"tables\.shop\.a\.columns names old, which"):
        check({}, {"shop.a": {"exclude": ["old", "former"]}}, "shop.a", before=before)
