"""A feed moves to another Kafka cluster as the page says: its commands in order, between two brokers with Connect.

Writers change the source before, between and behind the steps. What the page leaves to its reader is done here: the
services of each cluster, a feed and a connector's configuration in files, and the waits that it names.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import psycopg
import pymysql
import pytest
import yaml

from fixtures.servers import reachable_folder
from fixtures.services import database_connect
from headgate.provisioning.artifacts import ArtifactSet
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres
from support.pages import HOW_TOS, blocks_of
from support.served_process import ServedProcess
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.spark]

PAGE = HOW_TOS / "another-kafka-cluster.md"
COMMAND_SECONDS_MAX = scaled_seconds(300)
TOPIC = "db.shop.orders"

Server = EmbeddedPostgres | EmbeddedMariadb


class Shop:
    """A source and a sink of one kind. ``kind``: the feed's word for the sink."""

    kind: str
    plugin: ArtifactSet
    tables: Sequence[str]

    def __init__(self, source: Server, sink: Server) -> None:
        self.source, self.sink = source, sink
        for server in (source, sink):
            with closing(database_connect(server.dsn())) as session:
                session.cursor().execute("CREATE DATABASE shop")
        self.change(*self.tables)

    def change(self, *statements: str) -> None:
        """What writers do at the source."""
        with closing(database_connect(self.source.dsn("shop"))) as session, closing(session.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)

    def is_equal(self) -> bool:
        return _rows(self.source) == _rows(self.sink)

    def connector(self, _kafka: EmbeddedKafka) -> dict[str, str]:
        raise NotImplementedError


def _rows(server: Server) -> list[Any]:
    with closing(database_connect(server.dsn("shop"))) as session, closing(session.cursor()) as cursor:
        try:
            cursor.execute("SELECT id, what FROM shop.orders ORDER BY id")
        except (psycopg.Error, pymysql.MySQLError):  # the feed has not created it yet
            return []
        return list(cursor.fetchall())


class PostgresShop(Shop):
    kind = "postgresql"
    plugin: ArtifactSet = "debezium-postgres"
    tables = ("CREATE SCHEMA shop", "CREATE TABLE shop.orders (id int PRIMARY KEY, what text)")

    @classmethod
    def started(cls, stack: ExitStack, folder: Path) -> Self:
        return cls(
            stack.enter_context(EmbeddedPostgres(folder / "source", logical=True)),
            stack.enter_context(EmbeddedPostgres(folder / "sink")),
        )

    def connector(self, _kafka: EmbeddedKafka) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.user": "postgres",
            "database.dbname": "shop",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "slot.name": "shop",
            "table.include.list": "shop.orders",
        }


class MariadbShop(Shop):
    kind = "mysql"
    plugin: ArtifactSet = "debezium-mariadb"
    tables = ("CREATE TABLE shop.orders (id int PRIMARY KEY, what varchar(99))",)

    @classmethod
    def started(cls, stack: ExitStack, folder: Path) -> Self:
        return cls(
            stack.enter_context(EmbeddedMariadb(folder / "source", captured=True)),
            stack.enter_context(EmbeddedMariadb(folder / "sink")),
        )

    def connector(self, kafka: EmbeddedKafka) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.user": "root",
            "database.server.id": "4711",
            "database.include.list": "shop",
            "schema.history.internal.kafka.bootstrap.servers": kafka.bootstrap,
            "schema.history.internal.kafka.topic": "history.shop",
        }


class Terminal:
    """Where the page's commands are typed, in a folder with the feed and the connector's configuration."""

    def __init__(self, folder: Path, replaced: Sequence[tuple[str, str]]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADGATE_", "PG"))}
        self.folder = folder
        self.environment = kept | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HEADGATE_SECRETS_DIR": str(folder),
            "HEADGATE_REPLICATION_FACTOR": "1",
            "HEADGATE_HTTP__PORT": "0",
            "HEADGATE_SPARK__MASTER": "local[1]",
        }
        self._replaced = replaced
        self._exported: list[str] = []

    def type(self, text: str) -> str:
        """What the commands print; fails unless each succeeds."""
        for shown, own in self._replaced:
            text = text.replace(shown, own)
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join([*self._exported, text])],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self._exported += [line for line in text.splitlines() if line.startswith("export ")]
        return done.stdout


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(stack: ExitStack, terminal: Terminal, bootstrap: str, name: str, jars: Sequence[Path]) -> None:
    """A coordinator and an agent, until the test ends."""
    environment = terminal.environment | {
        "HEADGATE_BOOTSTRAP": bootstrap, "HEADGATE_SPARK__JARS": ",".join(map(str, jars)),
    }  # fmt: skip
    node = ServedProcess(terminal.folder / f"{name}.log", "node", "--name", name, environment=environment)
    stack.callback(node.kill)


@pytest.mark.parametrize("make", [PostgresShop.started, MariadbShop.started], ids=["postgresql", "mariadb"])
@pytest.mark.timeout(4 * COMMAND_SECONDS_MAX)
def test_a_feed_moves_without_losing_a_change(
    stack: ExitStack, make: Callable[[ExitStack, Path], Shop], spark_jars: tuple[Path, ...]
) -> None:
    folder = stack.enter_context(reachable_folder())
    shop = make(stack, folder)
    old, new = (stack.enter_context(EmbeddedKafka(folder / name, settings=CALM)) for name in ("old", "new"))
    connects: list[ConnectWorker] = [each.start_connect(shop.plugin) for each in (old, new)]
    work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    terminal = Terminal(
        work,
        [
            ("old-broker:9092", old.bootstrap),
            ("new-broker:9092", new.bootstrap),
            ("http://old-connect:8083", connects[0].url),
            ("http://new-connect:8083", connects[1].url),
            ("feed delete shop", "feed delete shop --yes"),
            ("curl ", "curl --silent --show-error --fail-with-body "),
        ],
    )
    _write_files(work, shop, new)
    shop.change(*(f"INSERT INTO shop.orders VALUES ({n}, 'old {n}')" for n in range(1, 41)))
    connects[0].put_connector("shop", _connector(shop, old))
    connects[0].wait_until_running("shop")
    terminal.type(f"export HEADGATE_BOOTSTRAP={old.bootstrap}\nheadgate topic create")
    serve(stack, terminal, old.bootstrap, "old-1", spark_jars)
    eventually(lambda: TOPIC in terminal.type("headgate feed create shop.yaml --dry-run || true"), "the topic exists")
    terminal.type("headgate feed create shop.yaml")
    eventually(shop.is_equal, "the feed runs")

    prepare, stop, drain, start, create, compare = (block.text for block in blocks_of(PAGE))
    terminal.type(prepare)
    serve(stack, terminal, new.bootstrap, "new-1", spark_jars)
    shop.change("UPDATE shop.orders SET what = CONCAT('last ', id) WHERE id < 9")
    shop.change("DELETE FROM shop.orders WHERE id = 20")
    terminal.type(stop)
    shop.change("INSERT INTO shop.orders VALUES (50, 'waits')", "DELETE FROM shop.orders WHERE id = 21")
    shown, deleted = drain.split("headgate feed delete", 1)
    terminal.type(shown)
    lag = "headgate topic list --feed shop -o json"
    eventually(lambda: all(row["lag"] == 0 for row in json.loads(terminal.type(lag))), "everything is applied")
    terminal.type(f"headgate feed delete{deleted}")
    terminal.type(start)
    connects[1].wait_until_running("shop")
    exported, dry, made = create.splitlines()
    terminal.type(exported)
    eventually(lambda: "would be accepted" in terminal.type(f"{dry} || true"), "the topic exists")
    terminal.type(made)
    shop.change("INSERT INTO shop.orders VALUES (51, 'new')", "UPDATE shop.orders SET what = 'new' WHERE id = 50")
    eventually(shop.is_equal, "the feed goes on")
    terminal.type(compare)


def _connector(shop: Shop, kafka: EmbeddedKafka, **more: str) -> dict[str, str]:
    return {
        "topic.prefix": "db",
        "database.hostname": "127.0.0.1",
        "database.port": str(shop.source.port),
        "database.password": shop.source.password,
        "poll.interval.ms": "100",
        "heartbeat.interval.ms": "1000",
        **shop.connector(kafka),
        **more,
    }


def _write_files(work: Path, shop: Shop, new: EmbeddedKafka) -> None:
    """The feed, with its passwords, and the connector as it is to be at the new cluster."""
    more = {"snapshot.mode": "recovery"} if shop.kind == "mysql" else {}
    (work / "shop-connector.json").write_text(json.dumps(_connector(shop, new, **more)), encoding="utf-8")
    ends: dict[str, dict[str, str]] = {}
    for name, server in (("source", shop.source), ("sink", shop.sink)):
        file = work / name
        file.write_text(server.password, encoding="utf-8")
        file.chmod(0o600)
        ends[name] = {"dsn": server.dsn("shop").replace(f":{server.password}@", "@"), "password_file": name}
    source = {"topics": [TOPIC], "format": "debezium-json", "start": "earliest", "database": ends["source"]}
    feed = {"feed": "shop", "source": source, "sink": {"type": shop.kind, **ends["sink"]}}
    (work / "shop.yaml").write_text(yaml.safe_dump(feed), encoding="utf-8")
