"""Two tables compared on a real PostgreSQL: what is equal, and each way to differ."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headgate.verify.postgresql import UncomparableError, compare_table

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]

SHOP = """
CREATE SCHEMA here; CREATE SCHEMA there;
CREATE TABLE here.t (b text, a int, price numeric, at timestamptz, doc jsonb, payload text, PRIMARY KEY (a, b));
CREATE TABLE there.t (a int, b text, price numeric, at timestamptz, doc jsonb, payload text, PRIMARY KEY (b, a));
INSERT INTO here.t (a, b, price, at, doc, payload)
SELECT n, 'ä' || n % 7, n / 4.0, now() + n * interval '1 microsecond', '{"x": null}', nullif(repeat('é', n % 5), '')
FROM generate_series(1, 2500) AS n;
INSERT INTO there.t (a, b, price, at, doc, payload) SELECT a, b, price, at, doc, payload FROM here.t;
"""


@pytest.fixture
def sides(postgres_database: str) -> Iterator[tuple[Connection, Connection]]:
    with (
        psycopg.connect(postgres_database, autocommit=True) as here,
        psycopg.connect(postgres_database, autocommit=True) as there,
    ):
        here.execute(SHOP)
        here.execute("SET TimeZone TO 'Asia/Tokyo'")
        yield here, there


def test_equal_in_another_order_and_time_zone(sides: tuple[Connection, Connection]) -> None:
    compared = compare_table(*sides, "here.t", "there.t")
    assert (compared.rows, compared.differences) == (2500, 0)
    assert set(compared.columns) == {"a", "b", "price", "at", "doc", "payload"}


@pytest.mark.parametrize(
    ("change", "kind", "columns"),
    [
        ("UPDATE there.t SET price = price + 0.001 WHERE a = 17", "differs", ("price",)),
        ("UPDATE there.t SET payload = '' WHERE a = 15", "differs", ("payload",)),
        ("UPDATE there.t SET at = at + interval '1 microsecond', doc = '{}' WHERE a = 3", "differs", ("at", "doc")),
        ("DELETE FROM there.t WHERE a = 2500", "missing", ()),
        ("INSERT INTO there.t (a, b) VALUES (-1, 'x')", "surplus", ()),
    ],
)
def test_every_difference_is_found(
    sides: tuple[Connection, Connection], change: str, kind: str, columns: tuple[str, ...]
) -> None:
    sides[1].execute(change)
    compared = compare_table(*sides, "here.t", "there.t")
    assert compared.differences == 1
    (example,) = compared.examples
    assert (example.kind, example.columns) == (kind, columns)
    assert set(example.key) == {"a", "b"}


def test_all_are_counted_and_some_are_kept(sides: tuple[Connection, Connection]) -> None:
    sides[1].execute("DELETE FROM there.t")
    compared = compare_table(*sides, "here.t", "there.t")
    assert (compared.rows, compared.differences, len(compared.examples)) == (2500, 2500, 20)


def test_columns_of_one_side_are_named(sides: tuple[Connection, Connection]) -> None:
    sides[0].execute("ALTER TABLE here.t ADD COLUMN more int")
    sides[1].execute("ALTER TABLE there.t ADD COLUMN extra int")
    compared = compare_table(*sides, "here.t", "there.t")
    assert (compared.columns_missing, compared.columns_surplus) == (("more",), ("extra",))


def test_missing_table(sides: tuple[Connection, Connection]) -> None:
    with pytest.raises(UncomparableError, match=r"table there\.u does not exist in the target"):
        compare_table(*sides, "here.t", "there.u")
