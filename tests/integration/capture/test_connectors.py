"""The connector that ``headgate feed init`` writes, given to a real Kafka Connect with Debezium."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.cli.main import app
from headgate.config.feed import load_feed

pytestmark = pytest.mark.integration


def initialised(name: str, source: str, sink: str, folder: Path, *more: str) -> tuple[dict[str, str], str]:
    """The connector's configuration and the feed's only topic; ``sink`` is a libpq URL."""
    parts = conninfo_to_dict(sink)
    (folder / "sink").write_text(str(parts["password"]))
    databases = ["--source", source, "--source-password-file", "password", "--sink-password-file", "sink"]
    databases += ["--sink", "postgresql://{user}@{host}:{port}/{dbname}".format(**parts)]
    done = CliRunner().invoke(app, ["feed", "init", name, *databases, "--folder", str(folder), *more])
    assert done.exit_code == 0, done.output
    (topic,) = load_feed(folder / f"{name}.yaml").source.topics
    return json.loads((folder / f"{name}-connector.json").read_text()), topic


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    return tmp_path


def test_it_captures_tables_of_a_postgresql_to_the_feeds_topics(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[Any]", str], postgres_database: str, secrets: Path
) -> None:
    connection, schema = postgres_schema
    connection.execute(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, price numeric DEFAULT 7)")
    connection.execute(f"INSERT INTO {schema}.orders VALUES (1, NULL)")
    connection.execute(f"CREATE PUBLICATION p_{schema} FOR TABLE {schema}.orders")
    (secrets / "password").write_text(sources.postgres.password)
    address = f"postgresql://postgres@127.0.0.1:{sources.postgres.port}/postgres"
    names = ["--tables", f"{schema}.*", "--publication", f"p_{schema}", "--slot", f"s_{schema}"]
    config, topic = initialised(schema, address, postgres_database, secrets, *names)
    # The worker of the tests has no provider of secrets.
    own = {"database.password": sources.postgres.password, "slot.drop.on.stop": "true"}
    sources.capture_as_written(schema, config | own)
    (change,) = sources.changes(topic, 1)
    assert (change.row or {})["price"] is None, "NULL does not become the column's default"


def test_it_captures_tables_of_a_mariadb_to_the_feeds_topics(
    sources: Sources, mariadb_source: str, postgres_database: str, secrets: Path
) -> None:
    mariadb_execute(mariadb_source, "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, price int DEFAULT 7)")
    mariadb_execute(mariadb_source, "INSERT INTO orders VALUES (18446744073709551615, NULL)")
    parts = urlsplit(mariadb_source)
    password, name = unquote(parts.password or ""), parts.path.strip("/")
    (secrets / "password").write_text(password)
    address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}/{name}"
    config, topic = initialised(name, address, postgres_database, secrets, "--bootstrap", sources.bootstrap)
    sources.capture_as_written(name, config | {"database.password": password})
    (change,) = sources.changes(topic, 1)
    row, meanings = change.row or {}, change.semantics or {}
    assert meanings["id"] == "org.apache.kafka.connect.data.Decimal(0,20)"
    assert int.from_bytes(b64decode(str(row["id"]))) == 18446744073709551615, "it has not become negative"
    assert row["price"] is None, "NULL does not become the column's default"


def test_a_unique_index_is_the_key_of_a_table_without_another(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[Any]", str], postgres_database: str, secrets: Path
) -> None:
    """As the feed has it that is written. An index that sorts first does not count: its column may be NULL."""
    connection, schema = postgres_schema
    connection.execute(f"CREATE TABLE {schema}.codes (code text NOT NULL, label text, twice int, n int)")
    connection.execute(f"CREATE UNIQUE INDEX a_label ON {schema}.codes (label)")
    connection.execute(f"CREATE UNIQUE INDEX b_code ON {schema}.codes (code)")
    connection.execute(f"ALTER TABLE {schema}.codes REPLICA IDENTITY USING INDEX b_code")
    connection.execute(f"CREATE PUBLICATION p_{schema} FOR TABLE {schema}.codes")
    connection.execute(f"INSERT INTO {schema}.codes VALUES ('a', 'x')")
    (secrets / "password").write_text(sources.postgres.password)
    address = f"postgresql://postgres@127.0.0.1:{sources.postgres.port}/postgres"
    names = ["--tables", f"{schema}.*", "--publication", f"p_{schema}", "--slot", f"s_{schema}"]
    config, topic = initialised(schema, address, postgres_database, secrets, *names)
    own = {"database.password": sources.postgres.password, "slot.drop.on.stop": "true"}
    sources.capture_as_written(schema, config | own)
    sources.changes(topic, 1)
    connection.execute(f"UPDATE {schema}.codes SET code = 'b'")
    assert load_feed(secrets / f"{schema}.yaml").for_table(topic).key == ("code",)
    former, deleted, row = sources.changes(topic, 3)
    assert [former.key, deleted.key, row.key] == [{"code": "a"}, {"code": "a"}, {"code": "b"}]
    assert (deleted.row, (row.row or {})["label"]) == (None, "x")


def test_what_the_source_computes_is_in_a_snapshot_and_not_in_the_log(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[Any]", str]
) -> None:
    connection, schema = postgres_schema
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    connection.execute("INSERT INTO t VALUES (1)")
    sources.capture_postgres(f"g{schema}", schema)
    topic = f"g{schema}.{schema}.t"
    sources.changes(topic, 1)
    connection.execute("INSERT INTO t VALUES (2)")
    assert [change.row for change in sources.changes(topic, 2)] == [{"id": 1, "twice": 2}, {"id": 2}]


def test_what_a_mariadb_computes_is_in_both(sources: Sources, mariadb_source: str) -> None:
    database = mariadb_source.rsplit("/", 1)[1]
    mariadb_execute(
        mariadb_source,
        "CREATE TABLE t (id int PRIMARY KEY, twice int AS (id * 2) STORED, thrice int AS (id * 3) VIRTUAL)",
    )
    mariadb_execute(mariadb_source, "INSERT INTO t (id) VALUES (1)")
    sources.capture_mariadb(f"g{database}", database)
    topic = f"g{database}.{database}.t"
    sources.changes(topic, 1)
    mariadb_execute(mariadb_source, "INSERT INTO t (id) VALUES (2)")
    mariadb_execute(mariadb_source, "UPDATE t SET id = 3 WHERE id = 2")
    assert [change.row for change in sources.changes(topic, 2)] == [
        {"id": number, "twice": 2 * number, "thrice": 3 * number} for number in (1, 2)
    ]
