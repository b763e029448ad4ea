"""Types of extensions, in public or in a schema of their own: read, written and compared by their own operators."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from fixtures.installed_postgres import installed_postgres
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import ChangeBatch, OffsetRange
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

EXTENSIONS = ("citext", "hstore", "ltree", "isn")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with installed_postgres("contrib's extensions") as dsn:
        yield dsn


@pytest.fixture
def database(server: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, psycopg.Connection]]:
    """A database with the extensions in the schema of the parameter, and a session whose path has it."""
    name = f"ext_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = psycopg.conninfo.make_conninfo(server, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {request.param}")
        connection.execute(f"SET search_path = public, {request.param}")
        for extension in EXTENSIONS:
            connection.execute(f"CREATE EXTENSION {extension} SCHEMA {request.param}")
        yield dsn, connection


def put(offset: int, k: str, **row: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"k": k}, {"k": k, **row}, None, 0)


def drop(offset: int, k: str) -> Change:
    return Change(0, offset, Operation.DELETE, {"k": k}, None, None, 0)


@pytest.mark.parametrize("database", ["public", "ext"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("citext", ("Ann", "bob", "Zoë")),
        ("ltree", ("top.a", "top.b", "top.c")),
        ("isbn13", ("978-0-306-40615-7", "978-0-393-04002-9", "978-3-16-148410-0")),
        ("name_d", ("x", "y", "z")),
        ("int_d", ("1", "2", "3")),
    ],
)
def test_keys_of_an_extension_s_type(
    database: tuple[str, psycopg.Connection], kind: str, keys: tuple[str, str, str]
) -> None:
    dsn, connection = database
    connection.execute("CREATE DOMAIN name_d AS citext CHECK (length(VALUE) < 9); CREATE DOMAIN int_d AS int")
    connection.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY, v text, h hstore)")
    sink = PostgresSink(RelationalSettings(dsn))
    shape = sink.check(["public.t"])["public.t"]
    assert (shape.key, shape.columns["h"]) == (("k",), "hstore")
    claim = build.claim(topic="shop.t")
    sink.claim(claim)
    a, b, c = keys
    with closing(sink.writer()) as writer:
        writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [put(0, a, v="1", h='"x"=>"1"')]))
        changes = [put(1, b, v="2", h=None), put(2, c, v="3", h=None), drop(3, a), put(4, b, v="4", h=ABSENT)]
        writer.apply(ChangeBatch(claim, {0: OffsetRange(1, 5)}, changes))
        writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 6)}, [drop(5, c)]))
        writer.apply(ChangeBatch(claim, {0: OffsetRange(6, 7)}, [put(6, b, v="5", h=ABSENT)]))
    assert connection.execute("SELECT k::text, v FROM t").fetchall() == [(b, "5")]


@pytest.mark.parametrize("database", ["ext"], indirect=True)
@pytest.mark.parametrize("kind", ["citext", "ltree"])
def test_rows_are_found_by_the_index_of_an_extension_s_type(
    database: tuple[str, psycopg.Connection], kind: str
) -> None:
    """By another operator than the index's own they would be found by reading the whole table."""
    dsn, connection = database
    connection.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY, v text)")
    connection.execute("INSERT INTO t SELECT ('a' || i)::text::" + kind + ", 'x' FROM generate_series(1, 20000) i")
    connection.execute("ANALYZE t")
    sink = PostgresSink(RelationalSettings(dsn))
    claim = build.claim(topic="shop.t")
    sink.claim(claim)
    # A session hands over what it has counted at most once a second, so the index's creation could be counted later.
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_reset()")
    with closing(sink.writer()) as writer:
        writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [drop(0, "a77")]))
    connection.execute("SELECT pg_stat_clear_snapshot()")
    assert connection.execute("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't'").fetchall() == [(0,)]
