"""The three ways to ask which tables a publication has: each knows what its place needs, and they agree otherwise."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import headgate
from headgate.databases.address import Target
from headgate.databases.postgresql.publications import (
    publications_of,
    published_among,
    published_tables,
    published_whole,
)
from headgate.databases.postgresql.session import PostgresSession, open_connection

pytestmark = pytest.mark.integration

TABLES = ("plain", "filtered", "in_part", "of_schema", "divided", "divided_1", "private")
VERSION = 150_000


@pytest.fixture
def session(postgres_database: str) -> Iterator[PostgresSession]:
    with psycopg.connect(postgres_database, autocommit=True) as client:
        for table in ("plain", "filtered", "in_part", "private"):
            client.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        client.execute("CREATE SCHEMA s")
        client.execute("CREATE TABLE s.of_schema (id int PRIMARY KEY)")
        client.execute("CREATE TABLE s.divided_of_schema (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        client.execute("CREATE TABLE divided (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        client.execute("CREATE TABLE divided_1 PARTITION OF divided FOR VALUES FROM (0) TO (9)")
        client.execute("CREATE PUBLICATION whole FOR TABLE plain, divided, filtered WHERE (id < 3)")
        client.execute("CREATE PUBLICATION inserts FOR TABLE in_part WITH (publish = 'insert')")
        client.execute("CREATE PUBLICATION schemas FOR TABLES IN SCHEMA s")
    opened = open_connection(Target(postgres_database), application_name="test", lock_seconds=5)
    with closing(PostgresSession(opened)) as session:
        yield session


def schema_of(table: str) -> str:
    return "s" if table == "of_schema" else "public"


def test_of_one_table(session: PostgresSession) -> None:
    found = {table: publications_of(session.execute, VERSION, schema_of(table), table) for table in TABLES}
    assert found == {
        "plain": [("whole", "")],
        "filtered": [("whole", "rows (it has a WHERE)")],
        "in_part": [("inserts", "update, delete")],
        "of_schema": [("schemas", "")],
        "divided": [("whole", "")],
        "divided_1": [],
        "private": [],
    }


def test_of_some_tables(session: PostgresSession) -> None:
    oids = {f"{schema_of(t)}.{t}": t for t in TABLES}
    numbers = {session.execute("SELECT %s::regclass::oid", (full,))[0][0]: name for full, name in oids.items()}
    whole = {numbers[number] for number in published_whole(session.execute, numbers)}
    assert whole == {"plain", "filtered", "of_schema", "divided", "divided_1"}, "by its partition, or its parent"
    among = published_among(session.execute, [(schema_of(t), t) for t in TABLES])
    assert [name for _, name in among] == ["divided_1", "filtered", "in_part", "plain", "of_schema"]


def test_of_all_tables(session: PostgresSession) -> None:
    found = {(row[0], row[2], row[3]) for row in published_tables(session.execute, VERSION)}
    assert found == {
        ("whole", "plain", False),
        ("whole", "filtered", True),
        ("whole", "filtered", False),
        ("whole", "divided", False),
        ("whole", "divided_1", False),
        ("inserts", "in_part", False),
        ("schemas", "of_schema", False),
        ("schemas", "divided_of_schema", False),
    }


def test_no_other_module_asks(session: PostgresSession) -> None:
    del session
    product = Path(headgate.__file__).parent
    asking = [file.name for file in product.rglob("*.py") if "pg_publication_tables" in file.read_text("utf-8")]
    assert asking == ["publications.py"]
