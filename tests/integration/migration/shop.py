"""A captured table with clients that write to it all the while, and the command that changes it.

Clients keep counts of their own, so what the table holds in the end is known without asking it.
"""

import json
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from fixtures.capture import Sources
from fixtures.services import mariadb_connect
from headgate.app.exit_codes import ExitCode
from integration.cli.conftest import Service, headgate
from support.connections import described
from support.waiting import END_SECONDS_MAX, eventually

Serve = Callable[..., Service]

ROWS = 30_000
CLIENTS = 3

CUTOVER_SECONDS = 20
"""What clients here may wait for, at most: beside other tests, a micro-batch may take as long as the default."""

NO_SNAPSHOT = {"snapshot.mode": "no_data", "decimal.handling.mode": "string"}
"""And decimals in digits, as `headgate feed init` has them."""


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
    MORE_DIGITS: str
    """What gives ``price``, a decimal(10,2) of the test's own, two more digits."""
    BROAD: str
    """The type of the column that the change makes broader."""
    TEXTS: ClassVar[dict[str, str]]
    """Columns and their types as the server says them, but for ``id`` and ``v``."""

    def __init__(self, schema: str, topic: str, address: str, folder: Path, password: str) -> None:
        self.schema, self.topic, self.address = schema, topic, address
        self.password_file = folder / "password"
        self.password_file.write_text(password, encoding="utf-8")
        self.connection = described(address, self.password_file)

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
            *("migration", "submit", f"ALTER TABLE {self.schema}.{table} {change}", "--database", self.connection),
            *("--id", migration, "--topic", topic or self.topic),
            *("--yes", "--timeout", "120", "--cutover-threshold", str(CUTOVER_SECONDS), *options),
        )


class PostgresShop(Shop):
    CHANGE = "ADD COLUMN extra int NOT NULL DEFAULT 7, ALTER COLUMN v TYPE bigint, DROP COLUMN note"
    BROADER = "ALTER COLUMN v TYPE bigint"
    MORE_DIGITS = "ALTER COLUMN price TYPE decimal(12,4)"
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
    MORE_DIGITS = "MODIFY price decimal(12,4)"
    BROAD = "bigint"
    TEXTS: ClassVar = {"label": "varchar", "note": "varchar"}

    def __init__(self, url: str, folder: Path) -> None:
        self._url, parts = url, urlsplit(url)
        schema = parts.path.strip("/")
        address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}/{schema}"
        super().__init__(schema, f"{schema}.{schema}.items", address, folder, unquote(parts.password or ""))

    def connect(self) -> Any:
        return mariadb_connect(self._url)


def captured_postgres(
    sources: Sources, schema: tuple[Any, str], folder: Path, tables: Sequence[str], change: str, **config: str
) -> Shop:
    """A shop whose tables are made by these statements; ``change`` (formatted with a number) changes a row of items."""
    session, name = schema
    for statement in tables:
        session.execute(statement)
    sources.capture_postgres(name, name, **NO_SNAPSHOT, **config)
    # The topic comes with the table's first change.
    sources.wait_until_captured(f"{name}.{name}.items", lambda number: session.execute(change.format(number)))
    return PostgresShop(sources, name, folder)


@contextmanager
def captured_mariadb(
    sources: Sources, url: str, folder: Path, tables: Sequence[str], change: str, **config: str
) -> Iterator[Shop]:
    """The same at a MariaDB."""
    shop = MariadbShop(url, folder)
    for statement in tables:
        shop.run(statement)
    sources.capture_mariadb(shop.schema, shop.schema, **NO_SNAPSHOT, **config)
    sources.wait_until_captured(shop.topic, lambda number: shop.run(change.format(number)))
    yield shop
    shop.run("DROP DATABASE IF EXISTS headgate")


def cluster_settings(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, spark_jars: tuple[Path, ...], **more: str
) -> None:
    """A cluster of its own on that broker, for this process and for services that it starts."""
    settings_of = {
        "BOOTSTRAP": bootstrap,
        "CLUSTER": f"m{random.randrange(10**9)}",  # noqa: S311 - a name
        "REPLICATION_FACTOR": "1",
        "HTTP__PORT": "0",
        "LOG__FORMAT": "json",
        "SPARK__JARS": ",".join(map(str, spark_jars)),
        "SPARK__MASTER": "local[2]",
    }
    for name, value in (settings_of | more).items():
        monkeypatch.setenv(f"HEADGATE_{name}", value)


def state_of(migration: str) -> dict[str, Any]:
    """Asked again while the broker does not answer: on a busy machine it may take longer than the command waits."""

    def answered() -> Any:
        shown = headgate("migration", "show", migration, "-o", "json")
        return None if shown.exit_code == ExitCode.BROKER_UNREACHABLE else shown

    shown = eventually(answered, "the broker answers")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def done(command: str, *arguments: str) -> None:
    agreed = ("--yes",) if command in ("cleanup", "force-cutover") else ()
    asked = headgate("migration", command, *arguments, *agreed, "--timeout", "120")
    assert asked.exit_code == 0, asked.output


def go_on(clients: list[Client]) -> None:
    before = [client.changes for client in clients]
    eventually(lambda: all(c.changes > n for c, n in zip(clients, before, strict=True)), "clients go on")


def settled(clients: list[Client]) -> dict[int, int]:
    """What the table must hold, once the clients have stopped."""
    for client in clients:
        client.stopping.set()
        client.join(END_SECONDS_MAX)
    assert [client.errors for client in clients] == [[]] * CLIENTS
    return {key: value for client in clients for key, value in client.rows.items()}
