"""How people write ``partition_by``, and what is refused with a reason."""

import json
from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.partitioning import PartitionField, partition_fields

DSNS = {"iceberg": "sqlite:////lake/c.db", "delta": "file:///lake", "postgresql": "host=db dbname=shop"}


def parsed(by: str, type_: str = "iceberg", tables: str = "") -> FeedSpec:
    """The feed whose YAML has ``by``."""
    return parse_feed(
        "feed: shop\n"
        "source: {topics: [t.s.a], database: {dsn: 'postgresql://reader@db/shop'}}\n"
        f"sink: {{type: {type_}, dsn: '{DSNS[type_]}', partition_by: {by}}}\n"
        f"tables: {{{tables}}}"
    )


@pytest.mark.parametrize(
    ("by", "fields"),
    [
        (
            "[day(created_at), bucket(16, customer_id), region]",
            ("day(created_at)", "bucket(16, customer_id)", "region"),
        ),
        (
            "'day(created_at), bucket(16, customer_id), region'",
            ("day(created_at)", "bucket(16, customer_id)", "region"),
        ),
        ("['bucket(16,customer_id)', ' region ']", ("bucket(16, customer_id)", "region")),
        ("region", ("region",)),
        ("[identity(region)]", ("region",)),
        ("[]", ()),
        ("""['truncate(2, "a,b(")', '"c.d"', 'Größe-1']""", ('truncate(2, "a,b(")', '"c.d"', "Größe-1")),
    ],
)
def test_a_list_and_a_text_are_the_same(by: str, fields: tuple[str, ...]) -> None:
    """YAML divides ``[bucket(16, id)]`` at the comma."""
    spec = parsed(by)
    assert spec.sink.partition_by == fields
    assert parse_feed(spec.to_json()).sink == spec.sink
    assert partition_fields(fields) == partition_fields(partition.text for partition in partition_fields(fields))


def test_fields_are_taken_apart() -> None:
    found = partition_fields(['bucket(4, "a.b")', "hour(at)", "c"])
    assert found == (PartitionField("a.b", "bucket", 4), PartitionField("at", "hour"), PartitionField("c"))


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("[days(at)]", "days in 'days(at)' is not a transform. Did you mean 'day'?"),
        ("[bucket(id, 16)]", "Write bucket(16, id)"),
        ("[bucket(id)]", "bucket takes a number and a column. Write bucket(16, id)"),
        ("['day(3, at)']", "day takes a column only. Write day(at)"),
        ("[bucket(0, id)]", "the number must be at least 1 and at most 2147483647"),
        ("[bucket(2147483648, id)]", "the number must be at least 1 and at most 2147483647"),
        ("[a, b, c, d, e]", "it has 5 fields, and at most 4 are allowed"),
        ("[at, day(at)]", "it names column at twice"),
        ("[At, at]", "it names column At twice"),
        ('""', "it has an empty field. Remove it, or write [] for no partitions"),
        ("['']", "it has an empty field"),
        ("'a,,b'", "it has an empty field"),
        ("'a,'", "it has an empty field"),
        ("[a, '', b]", "it has an empty field"),
        ("[a.b]", "'a.b' is not a column"),
        ("[a b]", "'a b' is not a column"),
        ("[day(at]", "is not a column"),
        ("5", "write a list, like [day(created_at), region]"),
        ("{a: b}", "write a list, like [day(created_at), region]"),
        ("[1]", "write a list, like [day(created_at), region]"),
    ],
)
def test_other_texts_are_refused_with_what_to_write(by: str, why: str) -> None:
    with pytest.raises(FeedSpecError) as refused:
        parsed(by)
    assert "partition_by" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize("text", ['day("' + '"a"' * 3334, "day(" + '"a"' * 3334, "(" * 10_000, '"' * 9_999])
def test_a_text_of_ten_thousand_characters_is_read_once(text: str) -> None:
    """Of a pattern that can match in several ways, 20 quotes took seconds, and each further one twice as long."""
    with pytest.raises(FeedSpecError, match="partition_by"):
        parsed(json.dumps(text))


@pytest.mark.parametrize(
    ("by", "instead"),
    [
        ("day(at)", 'columns.set: {at_day: "CAST(at AS DATE)"}, partition_by: [at_day]'),
        ("month(at)", "at_month: \"CAST(DATE_TRUNC('month', at) AS DATE)\""),
        ("year(at)", 'at_year: "CAST(EXTRACT(year FROM at) AS INTEGER)"'),
        ("'truncate(2, a)'", 'a_truncate: "LEFT(a, 2)"'),
        ("'bucket(16, id)'", "Partition by a column with few values"),
        ("hour(at)", "Partition by a column with few values"),
    ],
)
def test_delta_has_no_transforms(by: str, instead: str) -> None:
    for refused in (lambda: parsed(by, "delta"), lambda: parsed("region", "delta", f"s.a: {{partition_by: {by}}}")):
        with pytest.raises(FeedSpecError) as error:
            refused()
        assert "cannot be used with sinks of type delta, whose partitions are values of columns" in str(error.value)
        assert instead in str(error.value)


@pytest.mark.parametrize("by", ["day(at)", "month(at)", "year(at)", "truncate(2, a)"])
def test_what_is_advised_for_delta_is_taken(by: str) -> None:
    with pytest.raises(FeedSpecError) as refused:
        parsed(f"'{by}'", "delta")
    advised = str(refused.value).rpartition("columns.set: ")[2]
    columns, _, named = advised.partition(", partition_by: ")
    spec = parsed(named, "delta", f"s.a: {{columns: {{set: {columns}}}}}")
    assert spec.sink.partition_by == tuple(spec.tables["s.a"].columns.set)  # type: ignore[union-attr]


def test_a_table_has_partitions_of_its_own_in_place_of_the_feeds() -> None:
    spec = parsed("region", tables="s.a: {partition_by: []}, s.b: {partition_by: [day(at), id]}")
    assert spec.for_table("t.s.a").sink.partition_by == ()
    assert spec.for_table("t.s.b").sink.partition_by == ("day(at)", "id")
    assert spec.for_table("t.s.c").sink.partition_by == ("region",)
    assert parse_feed(spec.to_json()) == spec


def test_it_is_for_lakes_and_for_tables_that_headgate_creates() -> None:
    with pytest.raises(FeedSpecError, match=r"partition_by cannot be used with sinks of type postgresql"):
        parsed("region", "postgresql")
    given: dict[str, Any] = {"feed": "shop", "source": {"topics": ["t.s.a"]}}
    sink = {"type": "iceberg", "dsn": DSNS["iceberg"]}
    for spec, option in (
        ({"sink": {**sink, "partition_by": "region"}}, r"sink\.partition_by"),
        ({"sink": sink, "tables": {"s.a": {"partition_by": ["a"]}}}, r"tables\.s\.a\.partition_by"),
    ):
        with pytest.raises(FeedSpecError, match=f"{option} is for tables that Headgate creates"):
            parse_feed(msgspec.json.encode(given | spec).decode())
