"""Compiled expressions against a slow interpreter, and what they refuse."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from headgate.config.expressions import Call, ColumnReference, Expression, Kind, Literal, parse_expression
from headgate.formats.change import ABSENT, CONNECTOR, LACKING, LACKING_NULL, ChangeError, Row
from headgate.formats.expressions.code import compile_expression
from headgate.formats.expressions.filters import RowFilter, filter_at_database
from headgate.formats.expressions.values import read_of_event
from support.expressions import COLUMNS, MEANINGS, ROWS, RefusedError, expressions, slowly, text_of

READABLE = {name: read_of_event(name, meaning) for name, meaning in MEANINGS.items()}
UNSHRUNK = [Phase.explicit, Phase.reuse, Phase.generate]
"""Expressions are as small as they are drawn: to make a failing one smaller takes minutes."""

DRAWN = st.sampled_from(sorted(set(COLUMNS.values()))).flatmap(lambda kind: expressions(kind, 3))


@settings(max_examples=400, deadline=None, phases=UNSHRUNK)
@given(DRAWN, st.lists(ROWS, min_size=1, max_size=6))
@example(Call("neg", (ColumnReference("i"),)), [dict.fromkeys(COLUMNS) | {"i": -(1 << 63)}])
@example(Call("/", (ColumnReference("i"), ColumnReference("j"))), [dict.fromkeys(COLUMNS) | {"i": -7, "j": 2}])
def test_compiled_expressions_have_the_value_that_a_slow_interpreter_finds(
    expression: Expression, rows: list[Row]
) -> None:
    text = text_of(expression)
    parsed = parse_expression(text)
    compute = compile_expression(parsed, READABLE)
    for row in rows:
        try:
            wanted = slowly(expression, row)
        except RefusedError:
            with pytest.raises(ChangeError):
                compute(row)
            continue
        found = compute(row)
        assert (found, type(found)) == (wanted, type(wanted)), text


def keeps(where: str, row: Row, meaning: dict[str, str] | None = None) -> bool:
    return RowFilter(where).keeps(meaning)(row)


@pytest.mark.parametrize(
    ("where", "row", "is_kept"),
    [
        ("a = 'x'", {"a": "x"}, True),
        ("a = 'x'", {"a": "X"}, False),
        ("a = 'x'", {"a": None}, False),
        ("NOT a = 'x'", {"a": None}, False),
        ("a <> 'x' OR a IS NULL", {"a": None}, True),
        ("a IN ('x', NULL)", {"a": "x"}, True),
        ("a LIKE 'a\\_%'", {"a": "a_b"}, True),
        ("a LIKE 'a\\_%'", {"a": "axb"}, False),
        ("a LIKE '%a%b%'", {"a": "xaxb"}, True),
        ("a LIKE '%a_'", {"a": "aaa\n"}, True),
        ("n BETWEEN 1 AND 2 AND m > 0", {"n": 2, "m": Decimal("0.1")}, True),
        ("n = 1.0", {"n": 1}, True),
        ("m * 3 = 0.3", {"m": Decimal("0.1")}, True),
        ("b", {"b": True}, True),
        ("NOT b", {"b": None}, False),
        ("CASE n WHEN 1 THEN TRUE WHEN 2 THEN FALSE END", {"n": 3}, False),
        ('"Order Id" > 5', {"Order Id": 6}, True),
        ("UPPER(a) = 'STRAßE'", {"a": "straße"}, True),
        ("n = 1 OR big = 'x'", {"n": 1, "big": ABSENT}, True),
        ("TRUE", {}, True),
        ("FALSE", {}, False),
    ],
)
def test_where(where: str, row: Row, is_kept: bool) -> None:
    assert keeps(where, row) is is_kept


@pytest.mark.parametrize(
    ("meaning", "value", "where", "is_kept"),
    [
        ("io.debezium.time.Date", 19_723, "c = DATE '2024-01-01'", True),
        ("io.debezium.time.Timestamp", 1_704_067_200_000, "c = TIMESTAMP '2024-01-01 00:00:00'", True),
        ("io.debezium.time.MicroTimestamp", 1_704_067_200_000_001, "c > TIMESTAMP '2024-01-01'", True),
        ("io.debezium.time.ZonedTimestamp", "2024-01-01T01:00:00+02:00", "c < TIMESTAMPTZ '2024-01-01 00:00Z'", True),
        ("org.apache.kafka.connect.data.Decimal(2)", "AZA=", "c = 4.00", True),
        ("org.apache.kafka.connect.data.Decimal(2)", b"\x01\x90", "c = 4", True),
        ("io.debezium.data.VariableScaleDecimal", {"scale": 1, "value": "KA=="}, "c = 4", True),
        ("float64", 1.5, "c IS NOT NULL", True),
    ],
)
def test_values_are_read_by_the_schema_of_their_event(meaning: str, value: object, where: str, is_kept: bool) -> None:
    assert keeps(where, {"c": value}, {"c": meaning}) is is_kept


@pytest.mark.parametrize(
    ("where", "row", "meaning", "why"),
    [
        ("a > 5", {"a": "6"}, None, "> needs values of one type, and has integer and text. Write numbers without"),
        ("a > 5", {"a": 6.5}, None, "column a has a type that expressions do not take"),
        ("a > 5", {"a": 6.5}, {"a": "double"}, "column a has a type that expressions do not take"),
        ("a > 5", {"a": 6}, {"b": "int32"}, "the event's table does not have the columns a. It has b"),
        ("a > 5", {"b": 6}, None, "the event's row does not have column a"),
        ("a = 'x'", {"a": ABSENT}, None, "column a has a large value that did not change"),
        ("a = 'x'", {"a": ABSENT}, {"a": "string"}, "column a has a large value that did not change"),
        ("a = 'x'", {"a": 7}, {"a": "string"}, "column a has a value that expressions cannot read"),
        ("a", {"a": 7}, None, "of type integer, and a filter must be a condition"),
        ("1 / a = 1", {"a": 0}, None, "division by zero"),
        ("CAST(a AS INTEGER) = 1", {"a": "secret"}, None, "the text is not an integer"),
        ("a > '2024-01-01'", {"a": 5}, {"a": "io.debezium.time.Date"}, "Write a date as DATE '2026-01-31'"),
        ("a * a > 1", {"a": Decimal("1e999999")}, None, "a decimal has more than 1000 digits"),
    ],
)
def test_what_cannot_be_computed_is_refused_without_the_value(
    where: str, row: Row, meaning: dict[str, str] | None, why: str
) -> None:
    with pytest.raises(ChangeError) as refused:
        keeps(where, row, meaning)
    assert why in str(refused.value)
    assert str(refused.value).startswith("where: ")
    assert "secret" not in str(refused.value)


def test_a_column_that_the_writer_leaves_out_because_it_is_null_is_null() -> None:
    assert keeps("a IS NULL", {}, {LACKING: LACKING_NULL, CONNECTOR: "mysql"})
    with pytest.raises(ChangeError, match="does not have column a"):
        keeps("a IS NULL", {}, {CONNECTOR: "mysql"})


@pytest.mark.parametrize(
    ("database", "type_", "text", "where"),
    [
        ("postgresql", "int4", "7", "c = 7"),
        ("postgresql", "bool", "t", "c"),
        ("postgresql", "bool", "1", "c"),
        ("postgresql", "numeric", "1.50", "c = 1.5"),
        ("postgresql", "timestamptz", "2024-01-01 00:00:00+00", "c = TIMESTAMPTZ '2024-01-01 01:00:00+01'"),
        ("postgresql", "timestamptz", "2024-01-01 00:00:00", "c = TIMESTAMPTZ '2024-01-01 01:00:00+01'"),
        ("postgresql", "mood", "happy", "c = 'happy'"),
        ("mysql", "bigint", 7, "c = 7"),
        ("mysql", "datetime", "2024-01-01 00:00:00.000000", "c = TIMESTAMP '2024-01-01'"),
        ("mysql", "double", "1.5", "c IS NOT NULL"),
    ],
)
def test_the_same_of_texts_of_a_database(database: str, type_: str, text: Any, where: str) -> None:
    assert filter_at_database(where, database, {"c": type_})({"c": text})


def test_a_text_that_a_database_writes_otherwise_is_refused() -> None:
    with pytest.raises(ChangeError, match="column c has a value that expressions cannot read"):
        filter_at_database("c > DATE '2024-01-01'", "postgresql", {"c": "date"})({"c": "infinity"})
    with pytest.raises(ChangeError, match="does not have the columns d"):
        filter_at_database("d = 1", "postgresql", {"c": "date"})


def test_a_literal_is_kept_as_it_was_written() -> None:
    assert parse_expression("'a''b'") == Literal(Kind.TEXT, "a'b")
    assert parse_expression("NOT (FALSE)") == Call("not", (Literal(Kind.BOOLEAN, "false"),))
