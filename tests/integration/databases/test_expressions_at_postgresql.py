"""Expressions as we compute them, and as PostgreSQL does."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fixtures.spare_databases import SpareDatabases
from headgate.config.expressions import Expression, parse_expression
from headgate.formats.change import ChangeError, Row
from headgate.formats.expressions.code import compile_expression
from headgate.formats.expressions.values import read_of_event
from support.expressions import COLUMNS, EPOCH, MEANINGS, ROWS, expressions, text_of

pytestmark = pytest.mark.integration

TABLE = """
CREATE TABLE drawn (i bigint, j bigint, n numeric(10, 2), m numeric(10, 4), t text COLLATE "C", u text COLLATE "C",
                    b boolean, c boolean, d date, s timestamp)
"""
READABLE = {name: read_of_event(name, meaning) for name, meaning in MEANINGS.items()}
DRAWN = st.sampled_from(sorted(set(COLUMNS.values()))).flatmap(lambda kind: expressions(kind, 2))
UNSHRUNK = [Phase.explicit, Phase.reuse, Phase.generate]


@pytest.fixture(scope="module")
def database(spare_databases: SpareDatabases) -> Iterator[psycopg.Connection[Any]]:
    with spare_databases.database() as parameters, psycopg.connect(**parameters, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def at_postgresql(database: psycopg.Connection[Any], row: Row, text: str) -> object:
    """The value that PostgreSQL finds, as expressions have it. Raises psycopg.DataError."""
    sent = dict(row)
    sent["d"] = None if sent["d"] is None else EPOCH + timedelta(days=sent["d"])  # type: ignore[arg-type]
    micros = sent["s"]
    sent["s"] = None if micros is None else datetime(1970, 1, 1) + timedelta(microseconds=micros)  # type: ignore[arg-type]
    database.execute("TRUNCATE drawn")
    names = ", ".join(COLUMNS)
    database.execute(f"INSERT INTO drawn ({names}) VALUES ({', '.join(f'%({n})s' for n in COLUMNS)})".encode(), sent)
    ((value,),) = database.execute(f"SELECT {text} FROM drawn".encode())
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return (value - EPOCH).days if isinstance(value, date) else value


def test_values_are_those_that_postgresql_computes(database: psycopg.Connection[Any]) -> None:
    equal = refused = 0

    @settings(max_examples=1_000, deadline=None, phases=UNSHRUNK)
    @given(expression=DRAWN, row=ROWS)
    def compare(expression: Expression, row: Row) -> None:
        nonlocal equal, refused
        text = text_of(expression)
        compute = compile_expression(parse_expression(text), READABLE)
        try:
            wanted = at_postgresql(database, row, text_of(expression, at_postgresql=True))
            found = compute(row)
        except (psycopg.DataError, ChangeError):
            refused += 1  # who refuses first depends on the order in which operands are computed
            return
        assert found == wanted, (text, row)
        assert type(found) is type(wanted) or {type(found), type(wanted)} <= {int, Decimal}
        equal += 1

    compare()
    assert equal > 2 * refused


@pytest.mark.parametrize(
    "text",
    [
        "i = 1 OR i = 2 AND b",
        "NOT i = 1 AND b",
        "NOT b IS NULL",
        "b IS NOT NULL AND NOT c",
        "i + j * 2 > 3",
        "- i + j = 0",
        "i - j - 1 = 0",
        "i / j * j = i",
        "t || u || 'x' = 'abx'",
        "i BETWEEN 1 AND 2 AND b",
        "i NOT BETWEEN 1 AND 2 OR c",
        "t LIKE 'a%' AND u NOT LIKE '_'",
        "(i IN (1, 2)) = b",
        "CASE WHEN b THEN i ELSE j END = 1",
        "CASE i WHEN 1 THEN b WHEN 2 THEN c END",
        "COALESCE(b, c, FALSE) AND i <> 1",
        "i = 1 IS NULL",
        "i NOT IN (1, NULL)",
        "n / 3 > 0.33333333333333333",
        "NOT NOT b",
        "i < j OR t < u",
    ],
)
def test_operators_bind_as_in_postgresql(database: psycopg.Connection[Any], text: str) -> None:
    compute = compile_expression(parse_expression(text), READABLE)
    whole: Row = {"n": Decimal("1.00"), "m": None, "d": None, "s": None}
    for i, j, t, b, c in [
        (i, j, t, b, c)
        for i in (1, 2, None)
        for j in (-1, 1)
        for t in ("a", "b")
        for b in (True, False, None)
        for c in (True, None)
    ]:
        row = whole | {"i": i, "j": j, "t": t, "u": "b", "b": b, "c": c}
        assert compute(row) == at_postgresql(database, row, text), row
