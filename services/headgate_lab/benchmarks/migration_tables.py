"""The tables of ``headgate bench migration``: filled, captured by Debezium, and written to all the while.

A writer keeps count of what it has done, so what a table must hold in the end is known without asking it.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql

from headgate_lab.benchmarks.parts import POSTGRES_SETTINGS, BenchError
from headgate_lab.benchmarks.targets import MARIADB_SETTINGS
from headgate_lab.embedded.clients import mariadb_client, postgres_client
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres

DATABASES: Final = ("postgresql", "mariadb")

COLUMNS: Final = "id bigint PRIMARY KEY, v int NOT NULL, label varchar(40), note varchar(80)"
"""About a hundred bytes a row."""

WARM_UP: Final = "warm_up"
"""A small table, changed first: Spark is up then, in the owner and in the agent."""

WRITERS: Final = 4
LOOK_SECONDS: Final = 0.02

STOP_SECONDS_MAX: Final = 120.0
"""For a statement that waits behind a cut-over, which gives up its lock within seconds."""

FILL_ROWS: Final = 500_000


class BenchDatabase(ABC):
    """One database with the tables of the bench; names are without their schema."""

    name: str
    schema: str
    address: str
    """As --database takes it."""
    password: str

    @abstractmethod
    def connect(self) -> Any:
        """A session, autocommit."""

    @abstractmethod
    def fill(self, table: str, first: int, count: int) -> str:
        """The statement that adds rows with ids from ``first``."""

    @abstractmethod
    def connector(self, tables: str, bootstrap: str) -> Mapping[str, str]:
        """Debezium's configuration; ``tables`` is a regular expression of full names."""

    def make(self, table: str, rows: int) -> None:
        """A filled table."""
        self.run(f"CREATE TABLE {table} ({COLUMNS})")
        for first in range(0, rows, FILL_ROWS):
            self.run(self.fill(table, first, min(FILL_ROWS, rows - first)))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def touch(self, table: str, number: int) -> None:
        """Change one row of the table, so that its topic gets a change."""
        self.run(f"UPDATE {table} SET note = 'seen {number}' WHERE id = 0")

    def topic(self, table: str) -> str:
        """Of the table's changes."""
        return f"{self.name}.{self.schema}.{table}"

    def capture(self, worker: ConnectWorker, bootstrap: str, tables: str = "items_[0-9]+") -> None:
        """Begin to capture the small table and those whose names are like ``tables``, a regular expression."""
        config = {"topic.prefix": self.name, "snapshot.mode": "no_data", "poll.interval.ms": "50"}
        tables = rf"{self.schema}\.({WARM_UP}|{tables})"
        worker.put_connector(self.name, config | dict(self.connector(tables, bootstrap)))
        worker.wait_until_running(self.name)


class _Postgres(BenchDatabase):
    name, schema = "postgresql", "public"

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server, self.password = server, server.password
        self.address = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"

    def connect(self) -> Any:
        return postgres_client(self._server.dsn())

    def fill(self, table: str, first: int, count: int) -> str:
        numbers = f"generate_series({first}, {first + count - 1}) n"
        return f"INSERT INTO {table} SELECT n, 0, 'label ' || n, repeat('x', 60) FROM {numbers}"

    def connector(self, tables: str, bootstrap: str) -> Mapping[str, str]:
        del bootstrap
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "postgres",
            "database.password": self.password,
            "database.dbname": "postgres",
            "table.include.list": tables,
        }


class _Mariadb(BenchDatabase):
    name, schema = "mariadb", "bench"

    def __init__(self, server: EmbeddedMariadb) -> None:
        self._server, self.password = server, server.password
        self.address = f"mysql://root@127.0.0.1:{server.port}/{self.schema}"
        with closing(mariadb_client(server.dsn(), in_database=False)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")

    def connect(self) -> Any:
        return mariadb_client(self._server.dsn(self.schema))

    def fill(self, table: str, first: int, count: int) -> str:
        numbers = f"seq_{first}_to_{first + count - 1}"
        return f"INSERT INTO {table} SELECT seq, 0, CONCAT('label ', seq), REPEAT('x', 60) FROM {numbers}"

    def connector(self, tables: str, bootstrap: str) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "root",
            "database.password": self.password,
            "database.server.id": "4711",
            "table.include.list": tables,
            "schema.history.internal.kafka.bootstrap.servers": bootstrap,
            "schema.history.internal.kafka.topic": "history.bench",
        }


@contextmanager
def bench_database(name: str, folder: Path) -> Iterator[BenchDatabase]:
    """An empty one, gone at the end."""
    if name == "postgresql":
        with EmbeddedPostgres(folder, logical=True, settings=POSTGRES_SETTINGS) as postgres:
            yield _Postgres(postgres)
    else:
        with EmbeddedMariadb(folder, captured=True, settings=MARIADB_SETTINGS) as mariadb:
            yield _Mariadb(mariadb)


class Writers:
    """Clients that update, insert and delete single rows of a table at an even rate until ``stop``.

    ``waits`` are (when it began, seconds that it took) of each statement, by ``time.monotonic``.
    """

    def __init__(self, database: BenchDatabase, table: str, rows: int, per_second: int) -> None:
        """They begin at once."""
        self.waits: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._one = [
            _Writer(self, database, table, rows, per_second=per_second / WRITERS, number=n) for n in range(WRITERS)
        ]
        for writer in self._one:
            writer.start()

    def await_statements(self, since: float) -> None:
        """Return when each writer has started a statement after ``since`` (monotonic) and ended it, or has failed."""
        while any(writer.begun_last <= since and writer.is_alive() for writer in self._one):
            time.sleep(LOOK_SECONDS)

    def stop(self) -> tuple[int, int]:
        """How many rows there must be, and the sum of ``v``. Raises BenchError if a statement has failed."""
        self._stopping.set()
        for writer in self._one:
            writer.join(STOP_SECONDS_MAX)
            if writer.is_alive():
                raise BenchError(f"a client's statement has not ended within {STOP_SECONDS_MAX:g} s: the server hangs")
        errors = [writer.error for writer in self._one if writer.error is not None]
        if errors:
            raise BenchError(f"a client's statement has failed: {errors[0]}")
        return sum(writer.rows for writer in self._one), sum(writer.sum for writer in self._one)

    @property
    def stopping(self) -> threading.Event:
        """Set when they are to end."""
        return self._stopping


class _Writer(threading.Thread):
    """Rows whose id is its number, modulo the number of writers. ``rows`` and ``sum``: what has come since.

    ``begun_last``: when the last statement that is done began.
    """

    def __init__(
        self, all_of_them: Writers, database: BenchDatabase, table: str, rows: int, *, per_second: float, number: int
    ) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.rows, self.sum = 0, 0
        self.begun_last = 0.0
        self.error: Exception | None = None
        self._all, self._database, self._table = all_of_them, database, table
        self._per_second, self._number, self._next = per_second, number, rows + number
        self._count = max(1, rows // WRITERS)
        self._own: list[int] = []

    def run(self) -> None:
        chance = random.Random(self._number)  # noqa: S311 - a load is its seed
        begun, done = time.monotonic(), 0
        try:
            with closing(self._database.connect()) as connection, closing(connection.cursor()) as session:
                while not self._all.stopping.is_set():
                    ahead = begun + done / self._per_second - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                    before = time.monotonic()
                    self._write(session, chance)
                    self._all.waits.append((before, time.monotonic() - before))
                    self.begun_last = before
                    done += 1
        except (psycopg.Error, pymysql.Error) as error:
            self.error = error

    def _write(self, session: Any, chance: random.Random) -> None:
        draw = chance.random()
        if draw < 0.2:
            session.execute(f"INSERT INTO {self._table} (id, v, label) VALUES ({self._next}, 1, 'new')")
            self._own.append(self._next)
            self._next += WRITERS
            self.rows, self.sum = self.rows + 1, self.sum + 1
        elif draw < 0.3 and self._own:
            session.execute(f"DELETE FROM {self._table} WHERE id = {self._own.pop()}")
            self.rows, self.sum = self.rows - 1, self.sum - 1
        else:
            key = chance.randrange(self._count) * WRITERS + self._number
            session.execute(f"UPDATE {self._table} SET v = v + 1 WHERE id = {key}")
            self.sum += 1
