"""The connector that ``headgate feed init`` writes, given to a real Kafka Connect with Debezium."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from fixtures.capture import Sources
from headgate.cli.main import app
from headgate.config.feed import load_feed

pytestmark = pytest.mark.integration


def test_it_captures_the_tables_to_the_feeds_topics(
    sources: Sources,
    postgres_schema: tuple["psycopg.Connection[Any]", str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, schema = postgres_schema
    connection.execute(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, price numeric DEFAULT 7)")
    connection.execute(f"INSERT INTO {schema}.orders VALUES (1, NULL)")
    connection.execute(f"CREATE PUBLICATION p_{schema} FOR TABLE {schema}.orders")
    (tmp_path / "password").write_text(sources.postgres.password)
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    address = f"postgresql://postgres@127.0.0.1:{sources.postgres.port}/postgres"
    written = CliRunner().invoke(
        app,
        [
            "feed", "init", schema, "--source", address, "--source-password-file", "password",
            "--sink", address, "--sink-password-file", "password", "--tables", f"{schema}.*",
            "--publication", f"p_{schema}", "--slot", f"s_{schema}", "--folder", str(tmp_path),
        ],
    )  # fmt: skip
    assert written.exit_code == 0, written.output
    config: dict[str, str] = json.loads((tmp_path / f"{schema}-connector.json").read_text())
    # The worker of the tests has no provider of secrets.
    password = {"database.password": sources.postgres.password, "slot.drop.on.stop": "true"}
    sources.capture_as_written(schema, config | password)
    (topic,) = load_feed(tmp_path / f"{schema}.yaml").source.topics
    (change,) = sources.changes(topic, 1)
    assert (change.row or {})["price"] is None, "NULL does not become the column's default"
