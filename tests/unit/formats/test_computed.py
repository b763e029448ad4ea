"""Columns that a feed computes, as changes and copied rows get them."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from headgate.config.columns import ColumnOptions
from headgate.formats.change import ABSENT, COMPUTED, CONNECTOR, LACKING, LACKING_NULL, Change, Operation, Row
from headgate.formats.decoding import UndecodableError
from headgate.formats.expressions.computed import SENT_FORMS, TEXT_FORMS, computed_at_database
from headgate.formats.shaping import Shaping

MEANING = {
    CONNECTOR: "postgresql", "id": "int64", "first": "string", "last": "string", "price": "int32",
    "total": "org.apache.kafka.connect.data.Decimal(2)", "day": "io.debezium.time.Date", "bio": "string",
    "at": "io.debezium.time.MicroTimestamp", "instant": "io.debezium.time.ZonedTimestamp", "raw": "bytes",
}  # fmt: skip
ROW: Row = {
    "id": 1, "first": "Ada", "last": None, "price": 7, "total": "AKo=", "day": 19782, "bio": "long",
    "at": 1709208000500000, "instant": "2024-02-29T12:00:00Z", "raw": "AA==",
}  # fmt: skip


def changed(
    columns: dict[str, Any], row: Row, meaning: dict[str, str] | None = MEANING, where: str | None = None
) -> Row:
    shaping = Shaping(ColumnOptions.model_validate(columns), {}, where)
    change = Change(0, 0, Operation.UPSERT, {"id": row.get("id")}, dict(row), None, 0, meaning)
    (found,) = shaping.shaped([change])
    return found.row or {}


def computed(text: str, row: Row = ROW, meaning: dict[str, str] | None = MEANING) -> object:
    return changed({"set": {"new": text}}, row, meaning)["new"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("first || ' ' || last", None),
        ("CONCAT(first, ' ', last)", "Ada "),
        ("COALESCE(last, UPPER(first))", "ADA"),
        ("price * 2", 14),
        ("price > 5", True),
        ("ROUND(total * 1.19, 1)", Decimal("2.0")),
        ("total", Decimal("1.70")),
        ("day", "2024-02-29"),
        ("at", "2024-02-29 12:00:00.5"),
        ("instant", "2024-02-29 12:00:00+00"),
        ("DATE_TRUNC('month', at)", "2024-02-01 00:00:00"),
        ("CAST(EXTRACT(year FROM day) AS INTEGER)", 2024),
        ("'eu'", "eu"),
        ("SPLIT_PART('a@b.example', '@', 2)", "b.example"),
    ],
)
def test_a_value_is_what_sinks_take(text: str, value: object) -> None:
    found = computed(text)
    assert (found, type(found)) == (value, type(value))


def test_the_source_s_values_are_used_also_of_columns_that_do_not_go_to_the_sink() -> None:
    options = {"exclude": ["first"], "rename": {"last": "first"}, "mask": {"bio": None}, "set": {"all": "first || bio"}}
    row = changed(options, ROW)
    assert (row["all"], row["first"], row["bio"]) == ("Adalong", None, None)
    assert changed({"include": ["id"], "set": {"n": "price + 1"}}, ROW) == {"id": 1, "n": 8}


def test_an_expression_replaces_the_column_that_it_names_and_no_other() -> None:
    assert changed({"set": {"first": "LOWER(first)"}}, ROW)["first"] == "ada"
    assert changed({"include": ["id", "first"], "set": {"first": "LOWER(first)"}}, ROW) == {"id": 1, "first": "ada"}
    assert changed({"exclude": ["first"], "set": {"first": "price"}}, ROW)["first"] == 7
    renamed = changed({"rename": {"first": "given"}, "set": {"first": "'x'"}}, ROW)
    assert (renamed["given"], renamed["first"]) == ("Ada", "x")
    with pytest.raises(UndecodableError, match="set makes a column first, and the source's table has a column of that"):
        changed({"set": {"first": "'eu'"}}, ROW)


def test_what_the_sink_gets_has_no_meaning_of_the_replaced_column() -> None:
    shaping = Shaping(ColumnOptions.model_validate({"set": {"day": "CAST(day AS TEXT)", "n": "price"}}), {})
    assert shaping.meaning(MEANING) == {name: meaning for name, meaning in MEANING.items() if name != "day"} | {
        COMPUTED: '{"day":"text","n":"integer"}'
    }
    assert shaping.meaning({CONNECTOR: "postgresql"}) == {CONNECTOR: "postgresql"}  # without a schema, values decide


def test_a_value_that_the_event_leaves_out_leaves_the_column_out_or_is_refused() -> None:
    absent = ROW | {"bio": ABSENT}
    assert computed("UPPER(bio)", absent) is ABSENT
    assert computed("bio IS NULL", absent) is ABSENT
    assert computed("CASE WHEN price = 7 THEN first ELSE bio END", absent) == "Ada"
    with pytest.raises(UndecodableError, match=r"columns\.set\.new: column bio has a large value that did not change"):
        computed("first || bio", absent)
    assert computed("bio || bio", absent, None) is ABSENT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("price / 0", "division by zero"),
        ("CAST(first AS BIGINT)", "the text is not an integer"),
        ("nowhere || 'x'", "the event's table does not have the columns nowhere"),
        ("first + 1", r"\+ needs numbers, and has text"),
        ("raw", "the column has a type that expressions do not take"),
        ("UPPER(raw)", "column raw has a type that expressions do not take"),
        ("SUBSTR(first, 1, -1)", "the length is negative"),
        ("SUBSTR(price, 1)", r"SUBSTR needs text as operand 1, and has integer\. Use CAST\(… AS TEXT\)"),
        ("REPLACE(first, 'a')", "REPLACE needs 3 operands, and has 2"),
        ("EXTRACT(hour FROM day)", "a date has no hour"),
        ("DATE_TRUNC('month', day)", r"needs timestamp as operand 2, and has date\. Use CAST\(… AS TIMESTAMP\)"),
    ],
)
def test_what_cannot_be_computed_makes_a_bad_change_without_its_values(text: str, why: str) -> None:
    with pytest.raises(UndecodableError, match=rf"partition 0, offset 0: columns\.set\.new: .*{why}") as refused:
        computed(text)
    assert "Ada" not in str(refused.value)


def test_without_schemas_the_values_types_count() -> None:
    assert computed("price * 2", {"id": 1, "price": Decimal("1.5")}, None) == Decimal("3.0")
    assert computed("price * 2", {"id": 1, "price": 3}, None) == 6
    assert computed("price * 2", {"id": 1, "price": None}, None) is None
    assert computed("COALESCE(last, 'none')", {"id": 1}, {LACKING: LACKING_NULL}) == "none"
    with pytest.raises(UndecodableError, match="the event's row does not have column price"):
        computed("price * 2", {"id": 1}, None)


def test_each_schema_has_its_own_function() -> None:
    shaping = Shaping(ColumnOptions.model_validate({"set": {"n": "price / 2"}}), {})
    other = MEANING | {"price": "org.apache.kafka.connect.data.Decimal(0)"}
    rows = [({"price": 7}, MEANING), ({"price": "Bw=="}, other), ({"price": 5}, MEANING)]
    changes = [Change(0, n, Operation.UPSERT, {"id": n}, row, None, 0, told) for n, (row, told) in enumerate(rows)]  # type: ignore[arg-type]
    assert [(each.row or {})["n"] for each in shaping.shaped(changes)] == [3, Decimal("3.5"), 2]


def test_deletes_and_rows_outside_the_filter_compute_nothing() -> None:
    shaping = Shaping(ColumnOptions.model_validate({"set": {"n": "1 / price"}}), {}, "price <> 0")
    gone = Change(0, 0, Operation.DELETE, {"id": 1}, None, None, 0, MEANING)
    left = Change(0, 1, Operation.UPSERT, {"id": 1}, {"id": 1, "price": 0}, None, 0, MEANING)
    assert [(each.operation, each.row) for each in shaping.shaped([gone, left])] == [(Operation.DELETE, None)] * 2


def test_a_lone_tombstone_whose_schema_has_the_key_only_computes_nothing() -> None:
    """Compaction leaves it without the delete before it."""
    shaping = Shaping(
        ColumnOptions.model_validate({"set": {"n": "price * 2"}, "mask": {"last": {"constant": "x"}}}), {}
    )
    key_only = {"id": "int64"}
    gone = Change(0, 0, Operation.DELETE, {"id": 1}, None, None, 0, key_only)
    row = Change(0, 1, Operation.UPSERT, {"id": 1}, dict(ROW), None, 0, MEANING)
    found = shaping.shaped([gone, row, msgspec.structs.replace(gone, offset=2)])
    assert [(each.row or {}).get("n") for each in found] == [None, 14, None]
    assert [each.semantics for each in (found[0], found[2])] == [key_only, key_only]


def test_copied_rows_get_the_values_that_were_computed_where_they_were_read() -> None:
    options = {"exclude": ["first"], "rename": {"id": "number"}, "set": {"first": "UPPER(first)", "n": "price + 1"}}
    shaping = Shaping(ColumnOptions.model_validate(options), {})
    assert shaping.row({"id": "1"}, {CONNECTOR: "mysql"}, {"first": "ADA", "n": 8}) == {
        "number": "1", "first": "ADA", "n": 8,
    }  # fmt: skip
    assert shaping.row({"id": "1"}, None, {"n": 8}) == {"number": "1", "n": 8}, "the sink does not have the other one"


@pytest.mark.parametrize(
    ("database", "type_", "text", "expression", "sent", "shown"),
    [
        ("postgresql", "bool", "t", "c", True, "1"),
        ("mysql", "tinyint", "1", "c = 1", True, "1"),
        ("postgresql", "numeric", "1.50", "c + 1", Decimal("2.50"), "2.50"),
        ("mysql", "int", "7", "c * 2", 14, "14"),
        ("postgresql", "date", "2024-02-29", "c", "2024-02-29", "2024-02-29"),
        ("mysql", "datetime", "2024-02-29 12:00:00.500000", "c", "2024-02-29 12:00:00.5", "2024-02-29 12:00:00.5"),
        ("postgresql", "timestamptz", "2024-02-29 12:00:00+00", "c", "2024-02-29 12:00:00+00", "2024-02-29 12:00:00"),
        ("postgresql", "text", None, "c || 'x'", None, None),
    ],
)
def test_texts_of_databases_have_the_same_values(  # noqa: PLR0917 - a table
    database: str, type_: str, text: str | None, expression: str, sent: object, shown: str | None
) -> None:
    for forms, wanted in ((SENT_FORMS, sent), (TEXT_FORMS, shown)):
        compute = computed_at_database({"new": expression}, database, {"c": type_}, forms)["new"]
        assert compute({"c": text}) == wanted
