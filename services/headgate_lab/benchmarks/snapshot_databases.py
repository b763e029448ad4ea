"""What differs between the databases of ``headgate bench snapshot``: the piped copy, and what peers need to know."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headgate.databases.mysql.address import parse_address
from headgate.provisioning.artifacts import ArtifactSet
from headgate_lab.benchmarks.migration_tables import COLUMNS, BenchDatabase, bench_database
from headgate_lab.benchmarks.targets import JdbcAddress
from headgate_lab.embedded.mariadb_programs import pipe_dump

__all__ = ["SnapshotDatabases", "snapshot_databases"]


class SnapshotDatabases(ABC):
    """A captured source and an empty target of one kind."""

    name: str
    plugin: ArtifactSet
    """Debezium's connector for the source."""

    def __init__(self, source: BenchDatabase, target: BenchDatabase, folder: Path) -> None:
        self.source, self.target, self._folder = source, target, folder

    @property
    @abstractmethod
    def jdbc(self) -> JdbcAddress:
        """The way to the target for Debezium's sink."""

    @abstractmethod
    def own_snapshot(self, table: str, number: int) -> Mapping[str, str]:
        """What Debezium's connector needs beside those of other tables. ``number``: this one's."""

    @abstractmethod
    def pipe(self, table: str) -> None:
        """Create the table at the target, and pipe the source's rows into it by the database's own means."""

    @abstractmethod
    def settle(self) -> None:
        """Have the source's statistics taken, so that this does not happen while something is measured."""

    def has_table(self, table: str) -> bool:
        """Whether the target has it."""
        named = self.target.run("SELECT table_schema, table_name FROM information_schema.tables")
        return (self.target.schema, table) in named


class _Postgres(SnapshotDatabases):
    name = "postgresql"
    plugin = "debezium-postgres"

    @property
    def jdbc(self) -> JdbcAddress:
        port = self.target.address.rpartition(":")[2].partition("/")[0]
        return JdbcAddress(f"jdbc:postgresql://127.0.0.1:{port}/postgres", "postgres", self.target.password)

    def own_snapshot(self, table: str, number: int) -> Mapping[str, str]:
        del number
        return {"slot.name": table, "publication.name": table}

    def pipe(self, table: str) -> None:
        self.target.run(f"CREATE TABLE {table} ({COLUMNS})")
        with (
            closing(self.source.connect()) as left,
            closing(self.target.connect()) as right,
            left.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as rows,
            right.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as into,
        ):
            for data in rows:
                into.write(data)

    def settle(self) -> None:
        self.source.run("VACUUM ANALYZE")


class _Mariadb(SnapshotDatabases):
    name = "mariadb"
    plugin = "debezium-mariadb"

    @property
    def jdbc(self) -> JdbcAddress:
        to = parse_address(self.target.address)
        return JdbcAddress(f"jdbc:mariadb://{to.host}:{to.port}/{to.database}", to.user, self.target.password)

    def own_snapshot(self, table: str, number: int) -> Mapping[str, str]:
        server_id = FIRST_SERVER_ID + number
        return {"database.server.id": str(server_id), "schema.history.internal.kafka.topic": f"history.{table}"}

    def pipe(self, table: str) -> None:
        self.target.run(f"CREATE TABLE {table} ({COLUMNS})")
        pipe_dump(_with_password(self.source), _with_password(self.target), table, self._folder)

    def settle(self) -> None:
        for (table,) in self.source.run(f"SHOW TABLES FROM {self.source.schema}"):
            self.source.run(f"ANALYZE TABLE {table}")


FIRST_SERVER_ID: Final = 5_000
"""Each connector is a replica of the source with a number of its own; that of all captured tables has 4711."""

_KINDS: Final[Mapping[str, type[SnapshotDatabases]]] = {kind.name: kind for kind in (_Postgres, _Mariadb)}


def _with_password(database: BenchDatabase) -> str:
    return database.address.replace("root@", f"root:{database.password}@", 1)


@contextmanager
def snapshot_databases(name: str, folder: Path) -> Iterator[SnapshotDatabases]:
    """Both servers, gone at the end."""
    with bench_database(name, folder / "source") as source, bench_database(name, folder / "target") as target:
        yield _KINDS[name](source, target, folder)
