"""An online change while its owner, agent, Spark, broker or database is killed: it goes on, and nothing is lost."""

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
import pytest

from fixtures.capture import Sources
from fixtures.servers import reachable_folder
from headgate.config.settings import load_settings
from headgate.eventlog.topics import create_topics
from headgate.records.migration_standing import ADDING_KEYS
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres
from integration.cli.conftest import Service
from integration.migration.shop import (
    NO_SNAPSHOT,
    MariadbShop,
    PostgresShop,
    Serve,
    Shop,
    cluster_settings,
    done,
    state_of,
)
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROWS = 20_000
SCHEMA = "shop"

MARIADB_IS_AWAY = (0, 1053, 2003, 2006, 2013)
"""Codes of pymysql: a statement that is refused comes as the same error, with another."""


class Parts(ABC):
    """A broker with its connector, and a database, which can be killed and come back; and the services."""

    shop: Shop

    def __init__(self, kafka: EmbeddedKafka, serve: Serve) -> None:
        self.kafka, self._serve = kafka, serve
        self._count = 0
        self.agent: Service
        self.owner: Service

    @property
    @abstractmethod
    def database(self) -> EmbeddedPostgres | EmbeddedMariadb:
        """The server."""

    @abstractmethod
    def capture(self) -> None:
        """Begin, or go on where it was: Connect runs in the broker's process."""

    def begin(self) -> None:
        self._serve("coordinator", "coordinator")
        self.serve_agent()
        self.serve_owner()

    def serve_agent(self) -> None:
        self._count += 1
        self.agent = self._serve(f"agent-{self._count}", "agent", "--name", f"a{self._count}")

    def serve_owner(self) -> None:
        self._count += 1
        self.owner = self._serve(f"owner-{self._count}", "migration")

    def write(self) -> None:
        """One row more, one less, one other, in one transaction; tried again while the database is away."""

        second = "(SELECT min(id) FROM items WHERE id > (SELECT min(id) FROM items))"

        def is_written() -> bool:
            try:
                with closing(self.shop.connect()) as session:
                    cursor = session.cursor()
                    for statement in (
                        "BEGIN",
                        "UPDATE items SET v = v + 1 WHERE id = (SELECT min(id) FROM items)",
                        "INSERT INTO items (id, v, label) SELECT max(id) + 1, 7, 'new' FROM items",
                        f"DELETE FROM items WHERE id = {second}",
                        "COMMIT",
                    ):
                        cursor.execute(statement)
                    return True
            except psycopg.OperationalError:
                return False
            except (pymysql.OperationalError, pymysql.InterfaceError) as error:
                if error.args[0] not in MARIADB_IS_AWAY:
                    raise
                return False

        eventually(is_written, "the database takes a transaction")


class PostgresParts(Parts):
    def __init__(self, kafka: EmbeddedKafka, serve: Serve, folder: Path, postgres: EmbeddedPostgres) -> None:
        super().__init__(kafka, serve)
        self._postgres = postgres
        with closing(psycopg.connect(postgres.dsn(), autocommit=True)) as session:
            session.execute(f"CREATE SCHEMA {SCHEMA}")
            session.execute(f"CREATE TABLE {SCHEMA}.items (id int PRIMARY KEY, v int NOT NULL, label text)")
            session.execute(f"INSERT INTO {SCHEMA}.items SELECT n, 0, 'label' FROM generate_series(1, {ROWS}) n")
        nobody: Any = None
        self.shop = PostgresShop(Sources(kafka, nobody, postgres, ""), SCHEMA, folder)

    @property
    def database(self) -> EmbeddedPostgres:
        return self._postgres

    def capture(self) -> None:
        sources = Sources(self.kafka, self.kafka.start_connect("debezium-postgres"), self._postgres, "")
        kept = {"slot.drop.on.stop": "false", "errors.max.retries": "-1"}
        sources.capture_postgres(SCHEMA, SCHEMA, **NO_SNAPSHOT, **kept)
        sources.wait_until_captured(self.shop.topic, lambda _: self.write())


class MariadbParts(Parts):
    def __init__(self, kafka: EmbeddedKafka, serve: Serve, folder: Path, mariadb: EmbeddedMariadb) -> None:
        super().__init__(kafka, serve)
        self._mariadb = mariadb
        with closing(MariadbShop(mariadb.dsn("mysql"), folder).connect()) as session:
            session.cursor().execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
        self.shop = MariadbShop(mariadb.dsn(SCHEMA), folder)
        self.shop.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, label varchar(40))")
        self.shop.run(f"INSERT INTO items SELECT seq, 0, 'label' FROM seq_1_to_{ROWS}")

    @property
    def database(self) -> EmbeddedMariadb:
        return self._mariadb

    def capture(self) -> None:
        nobody: Any = None
        sources = Sources(self.kafka, self.kafka.start_connect("debezium-mariadb"), nobody, self._mariadb.dsn())
        sources.capture_mariadb(SCHEMA, SCHEMA, **NO_SNAPSHOT, **{"errors.max.retries": "-1"})
        sources.wait_until_captured(self.shop.topic, lambda _: self.write())


@pytest.fixture(params=["postgres", "mariadb"])
def parts(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    spark_jars: tuple[Path, ...],
    serve: Serve,
) -> Iterator[Parts]:
    with ExitStack() as stack:
        folder = stack.enter_context(reachable_folder())
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka", settings=CALM))
        cluster_settings(monkeypatch, kafka.bootstrap, spark_jars)
        create_topics(load_settings({"shards": 1}))
        found: Parts
        if request.param == "postgres":
            postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", logical=True))
            found = PostgresParts(kafka, serve, folder, postgres)
        else:
            mariadb = stack.enter_context(EmbeddedMariadb(folder / "mariadb", captured=True))
            found = MariadbParts(kafka, serve, folder, mariadb)
        found.capture()
        yield found


def kill_broker(parts: Parts) -> None:
    parts.kafka.kill()
    parts.kafka.start()
    parts.capture()


def kill_database(parts: Parts) -> None:
    parts.database.kill()
    parts.database.start()


def kill_spark(parts: Parts) -> None:
    def jvms() -> list[psutil.Process]:
        return [p for p in psutil.Process(parts.owner.process.pid).children(recursive=True) if p.name() == "java"]

    for process in eventually(jvms, "the owner has a Spark"):
        process.send_signal(signal.SIGKILL)


def kill_owner(parts: Parts) -> None:
    parts.owner.process.send_signal(signal.SIGKILL)
    parts.owner.process.wait(END_SECONDS_MAX)
    parts.serve_owner()


def kill_agent(parts: Parts) -> None:
    parts.agent.process.send_signal(signal.SIGKILL)
    parts.agent.process.wait(END_SECONDS_MAX)
    parts.serve_agent()


BEGINNING = ("starting the feed", "waiting for a change to come through")
"""Before there is a Spark that could be killed; unique keys are added after it has copied every row."""

KILLS = (kill_broker, kill_database, kill_spark, kill_owner, kill_agent)
AT = [
    (at, kill)
    for at in ("beginning", "copying", ADDING_KEYS, "ready", "completing")
    for kill in KILLS
    if (at, kill) not in (("beginning", kill_spark), (ADDING_KEYS, kill_spark))
]


@pytest.mark.parametrize(("at", "kill"), AT)
def test_what_is_killed_comes_back_and_the_change_is_made(parts: Parts, at: str, kill: Callable[[Parts], None]) -> None:
    shop = parts.shop
    parts.begin()
    key = ", ADD CONSTRAINT both_of UNIQUE (id, v)" if at == ADDING_KEYS else ""
    change = f"ADD COLUMN extra int NOT NULL DEFAULT 7{key}"
    asked = shop.submit("k1", change, "--postpone-launch", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    if at in ("copying", ADDING_KEYS):
        done("throttle", "k1", "--ratio", "1")
    done("launch", "k1")
    if at == "beginning":
        eventually(lambda: state_of("k1")["stage"] in BEGINNING, "it has begun", 400)
    elif at == "copying":
        eventually(lambda: state_of("k1")["stage"] == "copying", "the feed was shown to work, and stands still", 400)
    elif at == ADDING_KEYS:
        eventually(lambda: state_of("k1")["stage"] == "copying", "the copy exists", 400)
    else:
        eventually(lambda: state_of("k1")["is_ready_to_complete"], "every row is copied", 400)
    if at == ADDING_KEYS:
        with reading_the_copy(shop):
            done("throttle", "k1", "--ratio", "0")
            eventually(lambda: state_of("k1")["stage"] == ADDING_KEYS, "unique keys wait for the copy's lock", 400)
            kill(parts)
            parts.write()
        _let_complete()
    elif at == "completing":  # the kill comes before, in or after the cut-over
        done("complete", "k1")
        kill(parts)
    else:
        kill(parts)
        parts.write()
        _let_complete()
    eventually(lambda: state_of("k1")["state"] not in ("queued", "ready", "running"), "it has ended", 900)
    parts.write()
    shown = state_of("k1")
    assert shown["state"] == "complete", shown
    ((rows, total, extra, twice),) = shop.run(
        "SELECT count(*), sum(v), min(extra), count(*) - count(DISTINCT id) FROM items"
    )
    assert (extra, twice) == (7, 0)
    # The last transaction came after the cut-over: one row more, one less, one other.
    (old,) = set(re.findall(r"\b_?items_hg[0-9a-f]{8}\w*", str(shown["artifacts"])))
    ((rows_before, total_before),) = shop.run(f"SELECT count(*), sum(v) FROM {old}")
    gone = shop.run(f"SELECT o.v FROM {old} o LEFT JOIN items i USING (id) WHERE i.id IS NULL")
    assert rows == rows_before
    assert total == total_before + 1 + 7 - sum(v for (v,) in gone)
    assert len(gone) == 1


@contextmanager
def reading_the_copy(shop: Shop) -> Iterator[None]:
    """A client reads the copy in a transaction: no key can be added to it, and the feed goes on writing."""
    ((copy,),) = shop.run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' AND table_name LIKE '%items_hg%'"
    )
    with closing(shop.connect()) as session:
        cursor = session.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT 1 FROM {SCHEMA}.{copy} LIMIT 1")
        yield


def _let_complete() -> None:
    eventually(lambda: _asked("throttle", "k1", "--ratio", "0"), "the owner hears of it", 400)
    eventually(lambda: _asked("complete", "k1"), "the owner hears of it", 400)


def _asked(*command: str) -> bool:
    with suppress(AssertionError):
        done(*command)
        return True
    return False
