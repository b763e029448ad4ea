"""A captured table, a cluster, and services for it, each test its own."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fixtures.capture import Sources
from headgate.config.settings import load_settings
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from integration.cli.conftest import serve
from integration.migration.shop import (
    CLIENTS,
    ROWS,
    Client,
    Shop,
    captured_mariadb,
    captured_postgres,
    cluster_settings,
)
from support import gh_ost_double
from support.waiting import END_SECONDS_MAX

__all__ = ["clients", "cluster", "mariadb_shop", "postgres_shop", "role", "serve", "shop"]

COLUMNS = "id int PRIMARY KEY, v int NOT NULL, label {} DEFAULT 'new', note varchar(20)"


@pytest.fixture
def cluster(sources: Sources, monkeypatch: pytest.MonkeyPatch, spark_jars: tuple[Path, ...]) -> Iterator[KafkaLog]:
    """Control topics on the broker that the capture writes to; services that are started find them."""
    cluster_settings(monkeypatch, sources.bootstrap, spark_jars, LEASE_SECONDS=f"{scaled_seconds(5):g}")
    settings = load_settings({"shards": 1})
    create_topics(settings)
    log = open_log(settings)
    yield log
    log.close()


@pytest.fixture
def role(postgres_database: str) -> Iterator[str]:
    """Of PostgreSQL, for one test: roles are the server's, so it is dropped with all it has in the test's database."""
    name = f"{postgres_database.rpartition('/')[2]}_role"
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute(f"CREATE ROLE {name}")
    yield name
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute(f"DROP OWNED BY {name} CASCADE")
        session.execute(f"DROP ROLE {name}")


@pytest.fixture
def postgres_shop(sources: Sources, postgres_schema: tuple[Any, str], tmp_path: Path) -> Shop:
    tables = (
        f"CREATE TABLE items ({COLUMNS.format('text')})",
        f"INSERT INTO items SELECT n, 0, 'label ' || n FROM generate_series(0, {ROWS - 1}) n",
    )
    return captured_postgres(sources, postgres_schema, tmp_path, tables, "UPDATE items SET v = v WHERE id = 0")


@pytest.fixture
def mariadb_shop(sources: Sources, mariadb_source: str, tmp_path: Path) -> Iterator[Shop]:
    tables = (
        f"CREATE TABLE items ({COLUMNS.format('varchar(40)')})",
        f"INSERT INTO items SELECT seq, 0, CONCAT('label ', seq), NULL FROM seq_0_to_{ROWS - 1}",
    )
    change = "UPDATE items SET note = '{}' WHERE id = 0"
    with captured_mariadb(sources, mariadb_source, tmp_path, tables, change) as shop:
        yield shop


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Shop:
    found: Shop = request.getfixturevalue(f"{request.param}_shop")
    return found


@pytest.fixture
def clients(shop: Shop) -> Iterator[list[Client]]:
    started = [Client(shop, number) for number in range(CLIENTS)]
    for client in started:
        client.start()
    yield started
    for client in started:
        client.stopping.set()
        client.join(END_SECONDS_MAX)


@pytest.fixture
def gh_ost(tmp_path: Path) -> Path:
    """A program that keeps gh-ost's published contract."""
    program = tmp_path / "gh-ost"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{gh_ost_double.__file__}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    return program
