"""An online change whose rows all come through Spark: real capture, real lanes, clients all the while, owners killed.

Clients keep counts of their own, so what the table holds in the end is known without asking it.
"""

import json
import random
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_connect
from headgate.config.settings import load_settings
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.topics import create_topics
from integration.cli.conftest import Service, eventually, headgate

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

ROWS = 30_000
CLIENTS = 3

CUTOVER_SECONDS = 20
"""What clients here may wait for, at most: beside other tests, a micro-batch may take as long as the default."""


class Client(threading.Thread):
    """Inserts, updates, deletes, renumbers rows of its own until told to stop; knows what they must be in the end."""

    def __init__(self, shop: "Shop", number: int) -> None:
        super().__init__(name=f"client-{number}")
        self.rows = dict.fromkeys(range(number, ROWS, CLIENTS), 0)
        self.errors: list[str] = []
        self.changes = 0
        self.stopping = threading.Event()
        self._shop, self._number = shop, number
        self._next = ROWS + number

    def run(self) -> None:
        chance = random.Random(self._number)  # noqa: S311 - a history is its seed
        try:
            with closing(self._shop.connect()) as connection, closing(connection.cursor()) as session:
                while not self.stopping.is_set():
                    self._change(session, chance)
                    self.stopping.wait(0.02)
        except (psycopg.Error, pymysql.Error) as error:
            self.errors.append(repr(error))

    def _change(self, session: Any, chance: random.Random) -> None:
        key, draw = chance.choice(list(self.rows)) if self.rows else -1, chance.random()
        if draw < 0.2 or key < 0:
            # A key that was there before comes back as often as a new one comes.
            back = chance.randrange(ROWS // CLIENTS) * CLIENTS + self._number
            key = back if draw < 0.1 and back not in self.rows else self._next
            self._next += CLIENTS if key == self._next else 0
            session.execute("INSERT INTO items (id, v) VALUES (%s, 1)", (key,))
            self.rows[key] = 1
        elif draw < 0.7:
            session.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
            self.rows[key] += 1
        elif draw < 0.9:
            session.execute("DELETE FROM items WHERE id = %s", (key,))
            del self.rows[key]
        else:
            session.execute("UPDATE items SET id = %s WHERE id = %s", (self._next, key))
            self.rows[self._next] = self.rows.pop(key)
            self._next += CLIENTS
        self.changes += 1


class Shop(ABC):
    """A captured table in a schema of its own, and how to ask for changes of it."""

    CHANGE: str
    """What the first test makes of the table: a column more, a wider one, one less."""
    BROADER: str
    """What makes ``v`` broader."""
    BROAD: str
    """The type of the column that the change makes broader."""
    TEXTS: ClassVar[dict[str, str]]
    """Columns and their types as the server says them, but for ``id`` and ``v``."""

    def __init__(self, schema: str, topic: str, address: str, folder: Path, password: str) -> None:
        self.schema, self.topic, self.address = schema, topic, address
        self.password_file = folder / "password"
        self.password_file.write_text(password, encoding="utf-8")

    @abstractmethod
    def connect(self) -> Any:
        """A session in the table's schema, autocommit."""

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, closing(connection.cursor()) as session:
            session.execute(statement)
            return list(session.fetchall()) if session.description else []

    def columns(self) -> dict[str, str]:
        query = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'items'"
        return dict(self.run(f"{query} AND table_schema = '{self.schema}'"))

    def tables(self) -> list[str]:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema ="
        return sorted(name for (name,) in self.run(f"{query} '{self.schema}'"))

    def submit(self, migration: str, change: str, *options: str, topic: str | None = None, table: str = "items") -> Any:
        return headgate(
            *("migration", "submit", f"ALTER TABLE {self.schema}.{table} {change}", "--database", self.address),
            *("--id", migration, "--topic", topic or self.topic, "--password-file", str(self.password_file)),
            *("--timeout", "120", "--cutover-threshold", str(CUTOVER_SECONDS), *options),
        )


class PostgresShop(Shop):
    CHANGE = "ADD COLUMN extra int NOT NULL DEFAULT 7, ALTER COLUMN v TYPE bigint, DROP COLUMN note"
    BROADER = "ALTER COLUMN v TYPE bigint"
    BROAD = "bigint"
    TEXTS: ClassVar = {"label": "text", "note": "character varying"}

    def __init__(self, sources: Sources, schema: str, folder: Path) -> None:
        self._dsn = sources.postgres.dsn()
        address = f"postgresql://postgres@127.0.0.1:{sources.postgres.port}/postgres"
        super().__init__(schema, f"{schema}.{schema}.items", address, folder, sources.postgres.password)

    def connect(self) -> Any:
        return psycopg.connect(self._dsn, autocommit=True, options=f"-c search_path={self.schema}")


class MariadbShop(Shop):
    CHANGE = "ADD COLUMN extra int NOT NULL DEFAULT 7, MODIFY v bigint NOT NULL, DROP COLUMN note"
    BROADER = "MODIFY v bigint NOT NULL"
    BROAD = "bigint"
    TEXTS: ClassVar = {"label": "varchar", "note": "varchar"}

    def __init__(self, url: str, folder: Path) -> None:
        self._url, parts = url, urlsplit(url)
        schema = parts.path.strip("/")
        address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}/{schema}"
        super().__init__(schema, f"{schema}.{schema}.items", address, folder, unquote(parts.password or ""))

    def connect(self) -> Any:
        return mariadb_connect(self._url)


@pytest.fixture
def cluster(sources: Sources, monkeypatch: pytest.MonkeyPatch, spark_jars: tuple[Path, ...]) -> Iterator[KafkaLog]:
    """Control topics on the broker that the capture writes to; services that are started find them."""
    settings_of = {
        "BOOTSTRAP": sources.bootstrap,
        "CLUSTER": f"m{random.randrange(10**9)}",  # noqa: S311 - a name
        "REPLICATION_FACTOR": "1",
        "HTTP__PORT": "0",
        "LOG__FORMAT": "json",
        "LEASE_SECONDS": "3",
        "SPARK__JARS": ",".join(map(str, spark_jars)),
        "SPARK__MASTER": "local[2]",
    }
    for name, value in settings_of.items():
        monkeypatch.setenv(f"HEADGATE_{name}", value)
    settings = load_settings({"shards": 1})
    create_topics(settings)
    log = open_log(settings)
    yield log
    log.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    services: list[Service] = []

    def start(name: str, *arguments: str) -> Service:
        services.append(Service(tmp_path, name, *arguments))
        return services[-1]

    yield start
    for service in services:
        service.end()


@pytest.fixture
def postgres_shop(sources: Sources, postgres_schema: tuple[Any, str], tmp_path: Path) -> Shop:
    session, schema = postgres_schema
    session.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, label text DEFAULT 'new', note varchar(20))"
    )
    session.execute(f"INSERT INTO items SELECT n, 0, 'label ' || n FROM generate_series(0, {ROWS - 1}) n")
    sources.capture_postgres(schema, schema, **{"snapshot.mode": "no_data"})
    # The topic comes with the table's first change.
    sources.wait_until_captured(
        f"{schema}.{schema}.items", lambda _: session.execute("UPDATE items SET v = v WHERE id = 0")
    )
    return PostgresShop(sources, schema, tmp_path)


@pytest.fixture
def mariadb_shop(sources: Sources, mariadb_source: str, tmp_path: Path) -> Iterator[Shop]:
    shop = MariadbShop(mariadb_source, tmp_path)
    shop.run(
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, label varchar(40) DEFAULT 'new', note varchar(20))"
    )
    shop.run(f"INSERT INTO items SELECT seq, 0, CONCAT('label ', seq), NULL FROM seq_0_to_{ROWS - 1}")
    sources.capture_mariadb(shop.schema, shop.schema, **{"snapshot.mode": "no_data"})
    sources.wait_until_captured(shop.topic, lambda number: shop.run(f"UPDATE items SET note = '{number}' WHERE id = 0"))
    yield shop
    shop.run("DROP DATABASE IF EXISTS headgate")


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
        client.join(60)


def state_of(migration: str) -> dict[str, Any]:
    shown = headgate("migration", "show", migration, "-o", "json")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def done(command: str, *arguments: str) -> None:
    asked = headgate("migration", command, *arguments, "--timeout", "120")
    assert asked.exit_code == 0, asked.output


def go_on(clients: list[Client]) -> None:
    before = [client.changes for client in clients]
    eventually(lambda: all(c.changes > n for c, n in zip(clients, before, strict=True)), "clients go on")


def settled(clients: list[Client]) -> dict[int, int]:
    """What the table must hold, once the clients have stopped."""
    for client in clients:
        client.stopping.set()
        client.join(60)
    assert [client.errors for client in clients] == [[]] * CLIENTS
    return {key: value for client in clients for key, value in client.rows.items()}


def test_rows_come_through_spark_while_the_owner_is_killed_and_the_feed_falls_behind(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    agent = serve("agent", "agent", "--name", "a")
    first = serve("first", "migration")
    before = shop.columns()
    asked = shop.submit("m1", shop.CHANGE, "--postpone-launch", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    done("throttle", "m1", "--ratio", "1")
    done("launch", "m1")
    eventually(lambda: state_of("m1")["stage"] == "copying", "the feed has been shown to work, and stands still")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(30)

    serve("second", "migration")
    done("throttle", "m1", "--ratio", "0")
    eventually(lambda: state_of("m1")["is_ready_to_complete"], "the copy is ready", 400)
    agent.process.send_signal(signal.SIGSTOP)
    done("complete", "m1")
    eventually(lambda: state_of("m1")["throttle_reason"], "it is seen that the feed is behind")
    go_on(clients)
    assert state_of("m1")["cutover_attempts"] == 0, "the table was not locked in vain"
    agent.process.send_signal(signal.SIGCONT)
    eventually(lambda: state_of("m1")["state"] != "running", "it has ended", 400)
    go_on(clients)
    expected = settled(clients)
    shown = state_of("m1")
    assert shown["state"] == "complete", shown
    assert shown["attempt"] == 1, "the second owner went on with what the first had begun"
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    is_int = before["id"]
    assert shop.columns() == {"id": is_int, "v": shop.BROAD, "label": shop.TEXTS["label"], "extra": is_int}
    assert shop.run("SELECT DISTINCT extra FROM items") == [(7,)]
    feeds = json.loads(headgate("feed", "list", "-o", "json").stdout)
    assert feeds == [], "the feed into the copy is gone"
    done("cleanup", "m1")
    assert shop.tables() == ["items"]


@pytest.mark.long
def test_a_feed_that_is_resumed_during_the_copy_ends_it_and_another_try_renames(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    asked = shop.submit("r1", "RENAME COLUMN label TO title", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    done("throttle", "r1", "--ratio", "1")
    done("launch", "r1")
    eventually(lambda: state_of("r1")["stage"] == "copying", "the feed stands still")
    (feed,) = json.loads(headgate("feed", "list", "-o", "json").stdout)
    resumed = headgate("feed", "resume", feed["feed"], "--timeout", "120")
    assert resumed.exit_code == 0, resumed.output
    done("throttle", "r1", "--ratio", "0")
    eventually(lambda: state_of("r1")["state"] == "failed", "it has ended", 400)
    assert "resumed" in state_of("r1")["message"]
    assert shop.columns() == before
    assert json.loads(headgate("feed", "list", "-o", "json").stdout) == []

    done("retry", "r1")
    eventually(lambda: state_of("r1")["state"] not in ("queued", "ready", "running"), "it has ended", 400)
    expected = settled(clients)
    shown = state_of("r1")
    assert (shown["state"], shown["attempt"]) == ("complete", 2), shown
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    is_int = before["id"]
    assert shop.columns() == {"id": is_int, "v": is_int, "title": shop.TEXTS["label"], "note": shop.TEXTS["note"]}
    assert shop.run("SELECT id FROM items WHERE (title LIKE 'label %' OR title = 'new') IS NOT TRUE") == []


def test_what_cannot_be_followed_is_refused_and_nothing_is_touched(cluster: KafkaLog, serve: Serve, shop: Shop) -> None:
    serve("owner", "migration")
    shop.run("CREATE TABLE elsewhere (id int PRIMARY KEY)")
    refusals = [
        (("ADD COLUMN c int",), {"topic": "nothing"}, "does not exist"),
        (("DROP COLUMN id",), {}, "no unique key without NULLs"),
        (("ADD UNIQUE (v)",), {}, "rows that are equal in (v)"),
        (("DROP COLUMN v", "--keep-way-back"), {}, "NOT NULL without a default"),
    ]
    if isinstance(shop, PostgresShop):
        refusals.append((("ADD COLUMN c int",), {"table": "elsewhere"}, "in no publication"))
    else:
        shop.run("CREATE TABLE key_alone (id int PRIMARY KEY)")
        refusals.append((("ADD COLUMN c int",), {"table": "key_alone"}, "no column beside its key"))
    before = shop.tables()
    for number, (change, options, why) in enumerate(refusals):
        asked = shop.submit(f"n{number}", *change, **options)
        assert asked.exit_code == 40, (change, options, asked.output)
        assert why in " ".join(asked.output.split()), asked.output
    without = headgate(
        *("migration", "submit", f"ALTER TABLE {shop.schema}.items ADD COLUMN c int", "--database", shop.address),
        *("--password-file", str(shop.password_file), "--timeout", "120"),
    )
    assert without.exit_code == 40
    assert "--topic" in without.output
    assert shop.tables() == before


@pytest.mark.long
def test_a_table_that_was_truncated_since_is_left_alone_and_an_empty_one_is_changed(
    cluster: KafkaLog, serve: Serve, shop: Shop
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    asked = shop.submit("t1", "ADD COLUMN extra int", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("t1")["is_ready_to_complete"], "it waits for its completion", 400)
    shop.run("TRUNCATE items")
    done("complete", "t1")
    eventually(lambda: state_of("t1")["state"] == "failed", "it has ended", 400)
    assert "truncated" in state_of("t1")["message"]
    assert (shop.columns(), shop.run("SELECT count(*) FROM items")) == (before, [(0,)])

    done("retry", "t1")
    eventually(lambda: state_of("t1")["state"] not in ("queued", "ready", "running"), "it has ended", 400)
    assert state_of("t1")["state"] == "complete", state_of("t1")
    assert shop.columns() == before | {"extra": before["id"]}
    assert shop.run("SELECT count(*) FROM items") == [(0,)]
