"""The databases a bench writes to: how a table is made, what is in it, and how peers find it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pymysql
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from headgate.config.sink_spec import SinkSpec
from headgate.databases.mysql.address import parse_address
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.benchmarks.shapes import RowShape
from headgate_lab.benchmarks.workload import Expected
from headgate_lab.embedded.clients import mariadb_client, postgres_client
from headgate_lab.embedded.mariadb import EmbeddedMariadb

MARIADB_SETTINGS: Final = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "1G"}
"""As much room as the bench's PostgreSQL has; everything else is the server's default."""

_NO_SUCH_TABLE: Final = 1146
_SUMS: Final = "SELECT count(*), coalesce(sum(ver), 0), coalesce(sum(qty), 0) FROM "


class JdbcAddress(msgspec.Struct, frozen=True):
    """For peers in Java; the options of the URL are the peer's own."""

    url: str
    user: str
    password: str


class BenchTarget(ABC):
    """One database. Names of tables are ``schema.table``."""

    name: str
    schema: str
    """Where tables are made."""
    dsn: str

    @property
    @abstractmethod
    def sink(self) -> SinkSpec:
        """The way there for Headgate."""

    @property
    @abstractmethod
    def jdbc(self) -> JdbcAddress:
        """The way there for peers."""

    @abstractmethod
    def create(self, table: str, columns: str) -> None:
        """An empty table, whatever existed there."""

    @abstractmethod
    def found(self, table: str) -> Expected | None:
        """What is in the table now; None while there is none."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove it."""

    def create_shape(self, table: str, shape: RowShape) -> None:
        """An empty table of this shape."""
        self.create(table, shape.ddl(self.name))

    def check(self, table: str, expected: Expected) -> None:
        """Drop the table if it is what was written. Raises BenchError if not."""
        found = self.found(table)
        if found != expected:
            raise BenchError(f"{table} in {self.name} is not what was written: {found}, expected {expected}")
        self.drop(table)


class PostgresTarget(BenchTarget):
    """The bench's PostgreSQL."""

    name = "postgresql"
    schema = "public"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @property
    def sink(self) -> SinkSpec:
        """See BenchTarget."""
        return SinkSpec(type="postgresql", dsn=self.dsn)

    @property
    def jdbc(self) -> JdbcAddress:
        """See BenchTarget."""
        to = conninfo_to_dict(self.dsn)
        url = f"jdbc:postgresql://{to['host']}:{to.get('port', 5432)}/{to['dbname']}"
        return JdbcAddress(url, str(to["user"]), str(to.get("password", "")))

    def create(self, table: str, columns: str) -> None:
        """See BenchTarget."""
        name = sql.Identifier(*table.split("."))
        with postgres_client(self.dsn) as connection:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(columns)))

    def found(self, table: str) -> Expected | None:
        """See BenchTarget."""
        with postgres_client(self.dsn) as connection:
            try:
                row = connection.execute(sql.SQL(_SUMS + "{}").format(sql.Identifier(*table.split(".")))).fetchone()
            except errors.UndefinedTable:
                return None
        return None if row is None else Expected(*map(int, row))

    def drop(self, table: str) -> None:
        """See BenchTarget."""
        with postgres_client(self.dsn) as connection:
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(*table.split("."))))


class MariadbTarget(BenchTarget):
    """An embedded MariaDB, with one database for the tables."""

    name = "mariadb"
    schema = "bench"

    def __init__(self, server: EmbeddedMariadb) -> None:
        self.dsn = server.dsn(self.schema)
        self.address = parse_address(self.dsn)
        with self._connect(in_database=False) as cursor:
            cursor.execute(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")

    @property
    def sink(self) -> SinkSpec:
        """See BenchTarget."""
        return SinkSpec(type="mysql", dsn=self.dsn)

    @property
    def jdbc(self) -> JdbcAddress:
        """See BenchTarget."""
        to = self.address
        return JdbcAddress(f"jdbc:mariadb://{to.host}:{to.port}/{to.database}", to.user, to.password or "")

    def create(self, table: str, columns: str) -> None:
        """See BenchTarget."""
        with self._connect() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            cursor.execute(f"CREATE TABLE {table} ({columns})")

    def found(self, table: str) -> Expected | None:
        """See BenchTarget."""
        with self._connect() as cursor:
            try:
                cursor.execute(_SUMS + table)
            except pymysql.ProgrammingError as error:
                if error.args[0] == _NO_SUCH_TABLE:
                    return None
                raise
            row = cursor.fetchone()
        return None if row is None else Expected(*map(int, row))

    def drop(self, table: str) -> None:
        """See BenchTarget."""
        with self._connect() as cursor:
            cursor.execute(f"DROP TABLE {table}")

    @contextmanager
    def _connect(self, *, in_database: bool = True) -> Iterator["pymysql.cursors.Cursor"]:
        with mariadb_client(self.dsn, in_database=in_database) as connection, connection.cursor() as cursor:
            yield cursor


@contextmanager
def mariadb_target(folder: Path) -> Iterator[MariadbTarget]:
    """A MariaDB of the bench's own, gone at the end."""
    with EmbeddedMariadb(folder, settings=MARIADB_SETTINGS) as server:
        yield MariadbTarget(server)
