"""Two tables compared on real databases: what is equal, and each way to differ."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.databases.address import Target
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.contract import UncomparableError
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide

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
        here.execute(f"ALTER DATABASE {here.info.dbname} SET TimeZone TO 'Asia/Tokyo'")
        yield here, there


def side_of(connection: Connection, **more: str) -> PostgresSide:
    """A side at the database of that connection."""
    return PostgresSide(Target(make_conninfo(connection.info.dsn, password=connection.info.password, **more)))


def compare(connections: tuple[Connection, Connection], source: str, target: str) -> TableCompared:
    with closing(side_of(connections[0])) as here, closing(side_of(connections[1])) as there:
        return compare_table(here, there, source, target)


def test_equal_in_another_order_and_time_zone(sides: tuple[Connection, Connection]) -> None:
    compared = compare(sides, "here.t", "there.t")
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
    compared = compare(sides, "here.t", "there.t")
    assert compared.differences == 1
    (example,) = compared.examples
    assert (example.kind, example.columns) == (kind, columns)
    assert set(example.key) == {"a", "b"}


def test_rows_of_tables_that_inherit_are_not_compared_and_those_of_partitions_are(
    sides: tuple[Connection, Connection],
) -> None:
    here, _ = sides
    here.execute("CREATE TABLE there.child () INHERITS (there.t)")
    here.execute("INSERT INTO there.child (a, b) VALUES (-1, 'x')")
    here.execute("CREATE TABLE there.parted (a int, b text, PRIMARY KEY (a)) PARTITION BY RANGE (a)")
    here.execute("CREATE TABLE there.part PARTITION OF there.parted DEFAULT")
    here.execute("CREATE TABLE here.whole (a int PRIMARY KEY, b text)")
    here.execute("INSERT INTO here.whole VALUES (1, 'x')")
    here.execute("INSERT INTO there.parted VALUES (1, 'x')")
    compared = compare(sides, "here.t", "there.t")
    assert (compared.rows, compared.differences) == (2500, 0)
    compared = compare(sides, "here.whole", "there.parted")
    assert (compared.rows, compared.differences) == (1, 0)


def test_a_column_that_the_key_only_includes_is_compared_as_a_value(sides: tuple[Connection, Connection]) -> None:
    for connection, schema, value in zip(sides, ("here", "there"), (1, 2), strict=True):
        connection.execute(f"CREATE TABLE {schema}.covered (id int, v int, PRIMARY KEY (id) INCLUDE (v))")
        connection.execute(f"INSERT INTO {schema}.covered VALUES (7, {value})")
    compared = compare(sides, "here.covered", "there.covered")
    assert [(found.kind, found.key, found.columns) for found in compared.examples] == [("differs", {"id": "7"}, ("v",))]


def test_all_are_counted_and_some_are_kept(sides: tuple[Connection, Connection]) -> None:
    sides[1].execute("DELETE FROM there.t")
    compared = compare(sides, "here.t", "there.t")
    assert (compared.rows, compared.differences, len(compared.examples)) == (2500, 2500, 20)


def test_columns_of_one_side_are_named(sides: tuple[Connection, Connection]) -> None:
    sides[0].execute("ALTER TABLE here.t ADD COLUMN more int")
    sides[1].execute("ALTER TABLE there.t ADD COLUMN extra int")
    compared = compare(sides, "here.t", "there.t")
    assert (compared.columns_missing, compared.columns_surplus) == (("more",), ("extra",))


def test_columns_whose_values_are_written_differently_are_named_and_not_compared(
    sides: tuple[Connection, Connection],
) -> None:
    here, there = sides
    columns = "id int PRIMARY KEY, tags int[], raw bytea, n numeric(9,2), d jsonb, t timetz"
    here.execute(f"CREATE TABLE here.typed ({columns})".encode())
    here.execute("INSERT INTO here.typed VALUES (1, '{1,2}', 'ab', 1.5, '{\"a\":1}', '01:02:03+02')")
    there.execute("CREATE TABLE there.typed (id int PRIMARY KEY, tags jsonb, raw text, n text, d json, t text)")
    there.execute("INSERT INTO there.typed VALUES (1, '[1,2]', 'YWI=', '1.50', '{\"a\":1}', '23:02:03Z')")
    compared = compare(sides, "here.typed", "there.typed")
    assert compared.columns_unlike == {"tags": "_int4 and jsonb", "raw": "bytea and text", "t": "timetz and text"}
    assert (compared.rows, compared.differences, compared.columns) == (1, 0, ("id", "n", "d"))
    there.execute("ALTER TABLE there.typed DROP CONSTRAINT typed_pkey, ADD PRIMARY KEY (raw)")
    with pytest.raises(UncomparableError, match="key column raw is bytea and text"):
        compare(sides, "here.typed", "there.typed")


def test_missing_table(sides: tuple[Connection, Connection]) -> None:
    with pytest.raises(UncomparableError, match=r"table there\.u does not exist in the target"):
        compare(sides, "here.t", "there.u")


MYSQL_COLUMNS = """a int, b varchar(20) COLLATE utf8mb4_bin, price decimal(12,4), at datetime(6), doc json,
    payload longblob, sold boolean, ratio double, PRIMARY KEY (b, a)"""
POSTGRES_COLUMNS = """a int, b text, price numeric, at timestamptz, doc jsonb, payload bytea, sold boolean,
    ratio double precision, PRIMARY KEY (b, a)"""


def _fill(url: str, table: str) -> None:
    rows = [
        (
            n,
            f"{'äA'[n % 2]}{n % 7}",
            n / 4,
            f"2026-01-02 03:04:05.{n % 10}",
            '{"x": [null, 1.5], "a": 2}',
            bytes([n % 256]),
        )
        for n in range(1, 1200)
    ]
    with mariadb_connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} ({MYSQL_COLUMNS})")
        cursor.executemany(
            f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, _binary %s, a % 2, a / 8)".replace("a % 2", "a %% 2"),
            rows,
        )


def test_mariadb_on_both_sides(mariadb_database: str) -> None:
    for table in ("here", "there"):
        _fill(mariadb_database, table)
    sides = (MysqlSide(Target(mariadb_database)), MysqlSide(Target(mariadb_database)))
    name = mariadb_database.rsplit("/", 1)[1]
    compared = compare_table(*sides, f"{name}.here", f"{name}.there")
    assert (compared.rows, compared.differences) == (1199, 0)
    mariadb_execute(mariadb_database, "UPDATE there SET price = price + 0.0001, payload = x'00' WHERE a = 17")
    mariadb_execute(mariadb_database, "DELETE FROM there WHERE a = 18")
    mariadb_execute(mariadb_database, "INSERT INTO there (a, b) VALUES (-1, 'Z')")
    compared = compare_table(*sides, f"{name}.here", f"{name}.there")
    assert sorted((e.kind, e.columns) for e in compared.examples) == [
        ("differs", ("price", "payload")),
        ("missing", ()),
        ("surplus", ()),
    ]
    with pytest.raises(UncomparableError, match="does not exist in the source"):
        compare_table(*sides, f"{name}.nowhere", f"{name}.there")
    for side in sides:
        side.close()


def test_mariadb_against_postgresql(mariadb_database: str, postgres_database: str) -> None:
    """The same values, each as its database writes them, are equal; other values are not."""
    _fill(mariadb_database, "t")
    name = mariadb_database.rsplit("/", 1)[1]
    rows = mariadb_execute(mariadb_database, "SELECT * FROM t")
    with psycopg.connect(postgres_database, autocommit=True) as there:
        there.execute("SET TimeZone TO 'UTC'")
        there.execute(f"CREATE TABLE t ({POSTGRES_COLUMNS})")
        with there.cursor() as cursor:
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s, %s::int::boolean, %s)", rows)
        there.execute(f"ALTER DATABASE {there.info.dbname} SET TimeZone TO 'Asia/Tokyo'")
        sides = (MysqlSide(Target(mariadb_database)), side_of(there))
        compared = compare_table(*sides, f"{name}.t", "public.t")
        assert (compared.rows, compared.differences) == (1199, 0), compared.examples[:2]
        there.execute("UPDATE public.t SET sold = NOT sold, at = at + interval '1 microsecond', doc = '{}' WHERE a = 5")
        compared = compare_table(*sides, f"{name}.t", "public.t")
        (example,) = compared.examples
        assert (example.kind, set(example.columns)) == ("differs", {"sold", "at", "doc"})
        for side in sides:
            side.close()


TYPES_HERE = """k decimal(10,2) PRIMARY KEY, b bit(8), t time(3), f float, d double, n decimal(65,30)"""
TYPES_THERE = """k numeric PRIMARY KEY, b bit(8), t interval, f real, d double precision, n numeric"""

LONG = "12345678901234567890123456789012345.11"


def test_types_that_mariadb_and_postgresql_write_differently(mariadb_database: str, postgres_database: str) -> None:
    """bit below its width, a negative time, floats of one and two words, 35 digits before the point, a numeric key."""
    name = mariadb_database.rsplit("/", 1)[1]
    mariadb_execute(mariadb_database, f"CREATE TABLE types ({TYPES_HERE})")
    mariadb_execute(
        mariadb_database,
        f"INSERT INTO types VALUES (10.50, b'101', '-01:00:00', 0.1, 1.2345678901234567e19, {LONG}), "
        f"(9.00, b'0', '838:59:59.5', 16777216, 0.1, -{LONG}), (2.10, NULL, NULL, NULL, NULL, NULL)",
    )
    with psycopg.connect(postgres_database, autocommit=True) as there:
        there.execute(f"CREATE TABLE types ({TYPES_THERE})")
        there.execute(
            f"INSERT INTO types VALUES (10.5, b'00000101', '-01:00:00', 0.1, 1.2345678901234567e19, {LONG}), "
            f"(9, b'00000000', '838:59:59.5', 16777216, 0.1, -{LONG}), (2.1, NULL, NULL, NULL, NULL, NULL)"
        )
        sides = (MysqlSide(Target(mariadb_database)), side_of(there))
        compared = compare_table(*sides, f"{name}.types", "public.types")
        assert (compared.rows, compared.differences) == (3, 0), compared.examples
        there.execute("UPDATE public.types SET n = n + 1000, b = b'00001010', t = -t, f = 0.10000001 WHERE k = 10.5")
        (example,) = compare_table(*sides, f"{name}.types", "public.types").examples
        assert set(example.columns) == {"n", "b", "t", "f"}
        for side in sides:
            side.close()


@pytest.mark.parametrize(
    ("types", "values"),
    [
        (("int(5) zerofill", "int"), ("42", "43")),
        (("bigint(20) unsigned zerofill", "numeric(20,0)"), ("18446744073709551615", "1")),
        (("decimal(8,2) zerofill", "numeric(8,2)"), ("42.5", "42.25")),
    ],
)
def test_zeros_in_front_of_a_number_are_no_difference(
    mariadb_database: str, postgres_database: str, types: tuple[str, str], values: tuple[str, str]
) -> None:
    (here, there), (value, other) = types, values
    name = mariadb_database.rsplit("/", 1)[1]
    mariadb_execute(mariadb_database, f"CREATE TABLE filled (k {here} PRIMARY KEY, v {here})")
    mariadb_execute(mariadb_database, f"INSERT INTO filled VALUES ({value}, {value})")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE filled (k {there} PRIMARY KEY, v {there})")
        connection.execute(f"INSERT INTO filled VALUES ({value}, {value})")
        sides = (MysqlSide(Target(mariadb_database)), side_of(connection))
        compared = compare_table(*sides, f"{name}.filled", "public.filled")
        assert (compared.rows, compared.differences) == (1, 0), compared.examples
        connection.execute(f"UPDATE filled SET v = {other}")
        (example,) = compare_table(*sides, f"{name}.filled", "public.filled").examples
        assert example.columns == ("v",)
        for side in sides:
            side.close()


def test_an_address_is_compared_as_events_have_it(sides: tuple[Connection, Connection]) -> None:
    for connection, schema, kind in zip(sides, ("here", "there"), ("inet", "varchar(50)"), strict=True):
        connection.execute(f"CREATE TABLE {schema}.host (k {kind} PRIMARY KEY, v {kind})")
        connection.execute(f"INSERT INTO {schema}.host VALUES ('10.0.0.1', '::1'), ('10.0.0.0/8', '::1/64')")
    assert compare(sides, "here.host", "there.host").differences == 0
    sides[1].execute("UPDATE there.host SET v = '::1/128' WHERE k = '10.0.0.1'")
    assert [each.columns for each in compare(sides, "here.host", "there.host").examples] == [("v",)]


def test_a_number_is_compared_by_value_also_between_two_of_a_kind(sides: tuple[Connection, Connection]) -> None:
    sides[0].execute("UPDATE here.t SET price = 22.0000000000000000 WHERE a = 17")
    sides[1].execute("UPDATE there.t SET price = 22 WHERE a = 17")
    assert compare(sides, "here.t", "there.t").differences == 0


def test_tables_without_a_key_are_compared_as_multisets(sides: tuple[Connection, Connection]) -> None:
    for connection, schema in zip(sides, ("here", "there"), strict=True):
        connection.execute(f"CREATE TABLE {schema}.log (at timestamptz, what text)")
        connection.execute(f"INSERT INTO {schema}.log SELECT '2026-01-01 00:00Z', nullif('x' || n % 3, 'x0') "
                           "FROM generate_series(1, 99) n ORDER BY random()")  # fmt: skip
    compared = compare(sides, "here.log", "there.log")
    assert (compared.rows, compared.differences, compared.keyless) == (99, 0, True)
    sides[1].execute("DELETE FROM there.log WHERE ctid = (SELECT min(ctid) FROM there.log WHERE what IS NULL)")
    compared = compare(sides, "here.log", "there.log")
    assert [each.kind for each in compared.examples] == ["missing"]


def test_a_right_that_is_missing_names_database_and_user(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("CREATE TABLE secret (a int PRIMARY KEY)")
        ((user, database),) = owner.execute("SELECT current_user, current_database()").fetchall()
        owner.execute("CREATE ROLE headgate_reader NOLOGIN")
        try:
            with closing(side_of(owner, options="-c role=headgate_reader")) as side:
                refused = f"database {database} at .*, user {user}: permission denied"
                with pytest.raises(UncomparableError, match=refused):
                    compare_table(side, side, "public.secret", "public.secret")
        finally:
            owner.execute("DROP ROLE headgate_reader")
