"""An online change, and its revert, of a table whose connector writes Avro with schemas in a registry."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.capture import Sources
from headgate.eventlog.kafka import KafkaLog
from headgate_lab.embedded.ports import free_ports
from headgate_lab.embedded.registry import EmbeddedRegistry
from integration.cli.conftest import headgate
from integration.migration.shop import (
    ROWS,
    Client,
    Serve,
    Shop,
    captured_mariadb,
    captured_postgres,
    done,
    go_on,
    settled,
    state_of,
)
from support.connections import described_registry
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long]

NAMES = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
COLUMNS = "id int PRIMARY KEY, v int NOT NULL, label {}, note varchar(20), price decimal(9,2), at timestamp(3) NULL"


@contextmanager
def captured(kind: str, request: pytest.FixtureRequest, folder: Path, registry: EmbeddedRegistry) -> Iterator[Shop]:
    sources: Sources = request.getfixturevalue("sources")
    config = registry.converter() | NAMES
    if kind == "postgres":
        values = "n, 0, 'label ' || n, NULL, n / 100.0, timestamp '2026-01-02 03:04:05.678'"
        tables = (
            f"CREATE TABLE items ({COLUMNS.format('text')})",
            f"INSERT INTO items SELECT {values} FROM generate_series(0, {ROWS - 1}) n",
        )
        schema: tuple[Any, str] = request.getfixturevalue("postgres_schema")
        yield captured_postgres(sources, schema, folder, tables, "UPDATE items SET v = v WHERE id = 0", **config)
        return
    values = "seq, 0, CONCAT('label ', seq), NULL, seq / 100, '2026-01-02 03:04:05.678'"
    tables = (
        f"CREATE TABLE items ({COLUMNS.format('varchar(40)')})",
        f"INSERT INTO items SELECT {values} FROM seq_0_to_{ROWS - 1}",
    )
    url: str = request.getfixturevalue("mariadb_source")
    change = "UPDATE items SET note = '{}' WHERE id = 0"
    with captured_mariadb(sources, url, folder, tables, change, **config) as shop:
        yield shop


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, schema_registry: EmbeddedRegistry) -> Iterator[Shop]:
    with captured(request.param, request, tmp_path, schema_registry) as found:
        yield found


def test_a_table_whose_changes_are_in_avro_is_changed_and_the_change_reverted(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client], schema_registry: EmbeddedRegistry
) -> None:
    serve("owner", "migration")
    before, registry = shop.columns(), ("--registry", described_registry(schema_registry.url))
    change = "ADD COLUMN extra int NOT NULL DEFAULT 7, DROP COLUMN note"
    (port,) = free_ports(1)
    nobody = f"http://127.0.0.1:{port}"
    for number, (options, why) in enumerate(
        (
            ((), f"topic {shop.topic} is in Avro"),
            (("--registry", described_registry(nobody)), f": the schema registry at {nobody} cannot be used"),
            (("--registry", "nothing"), "--registry: registry 'nothing' is unknown"),
        )
    ):
        asked = shop.submit(f"n{number}", change, *options)
        assert asked.exit_code == 40, asked.output
        assert why in " ".join(asked.output.split()), asked.output
    assert shop.tables() == ["items"]

    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    asked = shop.submit("m1", change, *registry)
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("m1")["ended_ms"], "it has ended", 400)
    assert state_of("m1")["state"] == "complete", state_of("m1")
    assert shop.columns() == {name: kind for name, kind in before.items() if name != "note"} | {"extra": before["id"]}
    go_on(clients)
    shop.run("UPDATE items SET price = 12.34 WHERE id < 300")

    asked = headgate("migration", "revert", "m1", "--id", "r1", "--timeout", "120")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("r1")["ended_ms"], "it has ended", 400)
    assert state_of("r1")["state"] == "complete", state_of("r1")
    expected = settled(clients)
    assert shop.columns() == before
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    gone = "price IS NULL AND at IS NULL"
    assert shop.run(f"SELECT count(*) FROM items WHERE price <> 12.34 AND id < 300 AND NOT ({gone})") == [(0,)]
    done("cleanup", "all")
    assert shop.tables() == ["items"]
