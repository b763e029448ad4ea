"""An online change whose broker, database or Spark is killed during the copy: it goes on, and nothing is lost."""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from fixtures.capture import CALM, Sources
from headgate.config.settings import load_settings
from headgate.eventlog.topics import create_topics
from headgate_lab.embedded.broker import EmbeddedKafka
from headgate_lab.embedded.postgres import EmbeddedPostgres
from integration.cli.conftest import Service, eventually
from integration.migration.shop import (
    PostgresShop,
    Serve,
    done,
    state_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROWS = 20_000
SCHEMA = "shop"


class Parts:
    """A broker with its connector, and a database, which can be killed and come back."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka, postgres: EmbeddedPostgres) -> None:
        self.kafka, self.postgres = kafka, postgres
        with psycopg.connect(postgres.dsn(), autocommit=True) as session:
            session.execute(f"CREATE SCHEMA {SCHEMA}")
            session.execute(f"CREATE TABLE {SCHEMA}.items (id int PRIMARY KEY, v int NOT NULL, label text)")
            session.execute(f"INSERT INTO {SCHEMA}.items SELECT n, 0, 'label' FROM generate_series(1, {ROWS}) n")
        self._sources: Sources
        self.capture()
        self.shop = PostgresShop(self._sources, SCHEMA, folder)

    def capture(self) -> None:
        """Begin, or go on where it was: Connect runs in the broker's process."""
        self._sources = Sources(self.kafka, self.kafka.start_connect("debezium-postgres"), self.postgres, "")
        kept = {"snapshot.mode": "no_data", "slot.drop.on.stop": "false", "errors.max.retries": "-1"}
        self._sources.capture_postgres(SCHEMA, SCHEMA, **kept)
        self._sources.wait_until_captured(f"{SCHEMA}.{SCHEMA}.items", lambda _: self.write())

    def write(self) -> None:
        """One row more, one less, one other, in one transaction; tried again while the database is away."""

        def is_written() -> bool:
            with (
                suppress(psycopg.OperationalError),
                closing(psycopg.connect(self.postgres.dsn())) as session,
                session.transaction(),
            ):
                session.execute(f"UPDATE {SCHEMA}.items SET v = v + 1 WHERE id = (SELECT min(id) FROM {SCHEMA}.items)")
                session.execute(f"INSERT INTO {SCHEMA}.items SELECT max(id) + 1, 7, 'new' FROM {SCHEMA}.items")
                session.execute(f"DELETE FROM {SCHEMA}.items WHERE id = (SELECT min(id) + 5 FROM {SCHEMA}.items)")
                return True
            return False

        eventually(is_written, "the database takes a transaction")


@pytest.fixture
def parts(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, spark_jars: tuple[Path, ...]
) -> Iterator[Parts]:
    folder = tmp_path_factory.mktemp("parts")
    for above in (folder, *folder.parents[:2]):
        with suppress(PermissionError):
            above.chmod(0o755)
    with (
        EmbeddedKafka(folder / "kafka", settings=CALM) as kafka,
        EmbeddedPostgres(folder / "postgres", logical=True) as postgres,
    ):
        settings_of = {
            "BOOTSTRAP": kafka.bootstrap,
            "CLUSTER": f"k{random.randrange(10**9)}",  # noqa: S311 - a name
            "REPLICATION_FACTOR": "1",
            "HTTP__PORT": "0",
            "LOG__FORMAT": "json",
            "SPARK__JARS": ",".join(map(str, spark_jars)),
            "SPARK__MASTER": "local[2]",
        }
        for name, value in settings_of.items():
            monkeypatch.setenv(f"HEADGATE_{name}", value)
        create_topics(load_settings({"shards": 1}))
        yield Parts(folder, kafka, postgres)


def kill_broker(parts: Parts, _owner: Service) -> None:
    parts.kafka.kill()
    parts.kafka.start()
    parts.capture()


def kill_database(parts: Parts, _owner: Service) -> None:
    parts.postgres.kill()
    parts.postgres.start()


def kill_spark(_parts: Parts, owner: Service) -> None:
    def jvms() -> list[psutil.Process]:
        return [p for p in psutil.Process(owner.process.pid).children(recursive=True) if p.name() == "java"]

    for process in eventually(jvms, "the owner has a Spark"):
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_broker, kill_database, kill_spark])
def test_what_is_killed_during_the_copy_comes_back_and_the_change_is_made(
    parts: Parts, serve: Serve, kill: Callable[[Parts, Service], None]
) -> None:
    shop = parts.shop
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    owner = serve("owner", "migration")
    asked = shop.submit("k1", "ADD COLUMN extra int NOT NULL DEFAULT 7", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    done("throttle", "k1", "--ratio", "1")
    done("launch", "k1")
    eventually(lambda: state_of("k1")["stage"] == "copying", "the feed has been shown to work, and stands still", 400)
    kill(parts, owner)
    parts.write()
    eventually(lambda: _throttled("k1", "0"), "the owner hears of it", 400)
    eventually(lambda: state_of("k1")["state"] not in ("queued", "ready", "running"), "it has ended", 900)
    parts.write()
    shown = state_of("k1")
    assert shown["state"] == "complete", shown
    old = f"_items_hg{shown['artifacts'][0].split('_hg')[1][:8]}_old"
    found = shop.run("SELECT count(*), sum(v), min(extra), count(*) - count(DISTINCT id) FROM items")
    assert shop.columns()["extra"] == "integer"
    ((rows, total, extra, twice),) = found
    assert (extra, twice) == (7, 0)
    # The last transaction came after the cut-over: one row more, one less, one other.
    ((rows_before, total_before),) = shop.run(f"SELECT count(*), sum(v) FROM {old}")
    gone = shop.run(f"SELECT o.v FROM {old} o LEFT JOIN items i USING (id) WHERE i.id IS NULL")
    assert rows == rows_before
    assert total == total_before + 1 + 7 - sum(v for (v,) in gone)
    assert len(gone) == 1


def _throttled(migration: str, ratio: str) -> Any:
    with suppress(AssertionError):
        done("throttle", migration, "--ratio", ratio)
        return True
    return False
