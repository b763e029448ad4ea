"""The databases of ``headgate chaos --migrations``: the standard tables of each round, their twins, and a connector."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql

from headgate.migration.statements.clauses import DialectName
from headgate_lab.embedded.clients import mariadb_client, postgres_client
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres
from headgate_lab.schema_changes.case import Case
from headgate_lab.schema_changes.cases import TABLES
from headgate_lab.schema_changes.refusal import refusal

__all__ = ["ChangedDatabase", "changed_databases"]

_TRIAL: Final = "trial"
_CONNECTOR: Final = {
    "snapshot.mode": "no_data",
    "poll.interval.ms": "50",
    "errors.max.retries": "-1",
    "decimal.handling.mode": "string",
}


class ChangedDatabase(ABC):
    """One database. Round ``n`` changes the table ``items`` of schema ``r<n>``; its twin is in ``t<n>``."""

    name: str
    dialect: DialectName
    address: str
    password: str
    dropping: str
    """What a DROP SCHEMA needs behind the name to drop the tables too."""

    @abstractmethod
    def connect(self) -> Any:
        """A session, autocommit."""

    @abstractmethod
    def into(self, schema: str) -> str:
        """The statement that makes the schema the session's default."""

    @abstractmethod
    def capture(self, worker: ConnectWorker, bootstrap: str) -> None:
        """Start to capture the tables of all rounds, or continue where a killed connector was."""

    def run(self, schema: str, *statements: str) -> list[tuple[Any, ...]]:
        """Statements with that default schema; the rows of the last one."""
        with closing(self.connect()) as session, closing(session.cursor()) as cursor:
            for statement in (self.into(schema), *statements):
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def make(self, number: int, case: Case) -> None:
        """The tables of a round, as its case needs them."""
        for schema in (f"r{number}", f"t{number}"):
            self._make(schema, case)

    def _make(self, schema: str, case: Case) -> None:
        with closing(self.connect()) as session, closing(session.cursor()) as cursor:
            cursor.execute(f"CREATE SCHEMA {schema}")
        self.run(schema, *TABLES[self.dialect], *case.prepare)

    def error_of(self, case: Case) -> str | None:
        """The server's error if it refuses the case's statement, tried on empty tables that are dropped afterwards."""
        try:
            self._make(_TRIAL, case)
            self.run(_TRIAL, case.statement)
        except (psycopg.Error, pymysql.Error) as error:
            return refusal(error)
        finally:
            with closing(self.connect()) as session, closing(session.cursor()) as cursor:
                cursor.execute(f"DROP SCHEMA IF EXISTS {_TRIAL}{self.dropping}")
        return None

    def topic(self, number: int) -> str:
        """Of the changes of a round's table."""
        return f"{self.name}.r{number}.items"


class _Postgres(ChangedDatabase):
    name, dialect, dropping = "postgresql", "postgres", " CASCADE"

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server, self.password = server, server.password
        self.address = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        self.run("public", *TABLES["postgres"][:2])

    def connect(self) -> Any:
        return postgres_client(self._server.dsn())

    def into(self, schema: str) -> str:
        return f"SET search_path = {schema}"

    def capture(self, worker: ConnectWorker, bootstrap: str) -> None:
        del bootstrap
        if not self.run("public", "SELECT 1 FROM pg_publication WHERE pubname = 'rounds'"):
            found = self.run("public", "SELECT schemaname FROM pg_tables WHERE tablename = 'items' ORDER BY 1")
            tables = ", ".join(f"{schema}.items" for (schema,) in found)
            self.run("public", f"CREATE PUBLICATION rounds FOR TABLE {tables}")
        connector: Mapping[str, str] = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.name": "rounds",
            "publication.autocreate.mode": "disabled",
            "slot.drop.on.stop": "false",
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "postgres",
            "database.password": self.password,
            "database.dbname": "postgres",
            "table.include.list": r"r[0-9]+\.items",
        }
        worker.put_connector(self.name, {**_CONNECTOR, **connector})
        worker.wait_until_running(self.name)


class _Mariadb(ChangedDatabase):
    name, dialect, dropping = "mariadb", "mysql", ""

    def __init__(self, server: EmbeddedMariadb) -> None:
        self._server, self.password = server, server.password
        self.address = f"mysql://root@127.0.0.1:{server.port}/mysql"

    def connect(self) -> Any:
        return mariadb_client(self._server.dsn("mysql"))

    def into(self, schema: str) -> str:
        return f"USE {schema}"

    def capture(self, worker: ConnectWorker, bootstrap: str) -> None:
        connector: Mapping[str, str] = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "root",
            "database.password": self.password,
            "database.server.id": "4711",
            "table.include.list": r"r[0-9]+\.items",
            "schema.history.internal.kafka.bootstrap.servers": bootstrap,
            "schema.history.internal.kafka.topic": "history.rounds",
        }
        worker.put_connector(self.name, {**_CONNECTOR, **connector})
        worker.wait_until_running(self.name)


@contextmanager
def changed_databases(folder: Path) -> Iterator[tuple[ChangedDatabase, ...]]:
    """A PostgreSQL and a MariaDB, empty, gone at the end."""
    with (
        EmbeddedPostgres(folder / "postgres", logical=True) as postgres,
        EmbeddedMariadb(folder / "mariadb", captured=True) as mariadb,
    ):
        yield _Postgres(postgres), _Mariadb(mariadb)
