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
    assert meanings["id"] == "org.apache.kafka.connect.data.Decimal(0)"
    assert int.from_bytes(b64decode(str(row["id"]))) == 18446744073709551615, "it has not become negative"
    assert row["price"] is None, "NULL does not become the column's default"
