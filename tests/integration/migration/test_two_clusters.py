"""Migrations of two Headgate clusters at one database do not meet, also when both have the same id."""

from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from fixtures.services import SpareDatabases, database_connect
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import MigrationWork
from headgate.migration.strategies.contract import Memory
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.mariadb.sessions import PARTS
from headgate.migration.strategies.postgresql.cutover import slot_name
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.target import target_of
from headgate.migration.strategies.tools.pt_osc import PtOscStrategy
from headgate.migration.strategies.tools.tool import Tools
from headgate.records.migration import MigrationStrategy
from support.connections import described
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration

CLUSTERS = ("MkU3OEVBNTcwNTJENDM2Qg/headgate.", "MkU3OEVBNTcwNTJENDM2Qg/other.")
LOCK_NAME_MAX = 64
"""Of GET_LOCK."""


@pytest.fixture(params=["postgres_database", "mariadb_database"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def address(url: str, folder: Path) -> tuple[str, Path]:
    parts = urlsplit(url)
    password = folder / "password"
    password.write_text(unquote(parts.password or ""), encoding="utf-8")
    return f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}", password


def execute(session: Any, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_a_migration_of_the_same_id_ends_nothing_of_another_cluster(url: str, tmp_path: Path) -> None:
    """The first one's statement waits for its table while the second one begins, completes, and cleans up."""
    at, password = address(url, tmp_path)
    connection = described(at, password)

    def record(table: str) -> Any:
        spec = MigrationSpec(
            statement=f"ALTER TABLE {table} ADD c int",
            database=connection,
            strategy=MigrationStrategy.DIRECT,
            cutover_threshold_seconds=30.0,
        )
        return recorded(written(spec), table=table)

    first, second = (MigrationWork(cluster_id=cluster) for cluster in CLUSTERS)
    waiting, running = record("items"), record("others")

    def outcome(work: MigrationWork, of: Any, owner_rev: int) -> Any:
        told = work.run(fx.WatchMigration("m", of, owner_rev=owner_rev))
        return None if isinstance(told, fx.Progressed) else told

    with closing(database_connect(url)) as client, closing(first), closing(second):
        execute(client, "CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE others (id int PRIMARY KEY)")
        execute(client, "START TRANSACTION", "SELECT * FROM items")
        assert isinstance(first.run(fx.StartMigration("m", waiting, owner_rev=1)), fx.Progressed)
        assert isinstance(second.run(fx.StartMigration("m", running, owner_rev=7)), fx.Progressed)
        done: Any = eventually(lambda: outcome(second, running, 7), "the second one ends")
        assert isinstance(done, fx.Completed), done
        assert outcome(first, waiting, 1) is None
        execute(client, "COMMIT")
        done = eventually(lambda: outcome(first, waiting, 1), "the first one ends")
        assert isinstance(done, fx.Completed), done
        execute(client, "SELECT c FROM items", "SELECT c FROM others")


def test_what_is_named_by_a_migration_says_whose_it_is(url: str, tmp_path: Path) -> None:
    """Copies, rehearsals and slots, and the longest names that clusters and migrations may have."""
    at, password = address(url, tmp_path)
    target, migration = target_of(at, str(password)), "m" * 200
    kind: Any = PostgresServer if at.startswith("postgres") else MariadbServer
    longest = (*CLUSTERS, f"{'c' * 22}/{'n' * 200}.")
    servers = [kind(name, target, cluster_id=cluster) for cluster in longest for name in (migration, "m")]
    try:
        for rev, server in enumerate(servers):
            assert server.take_over(1 + rev) is None, "nothing is remembered of it"
            server.note(Memory(1 + rev, 1 + rev, "begun"))
        assert [server.take_over(100).attempt for server in servers] == [1 + rev for rev in range(len(servers))]
        assert len({server.mark for server in servers}) == len(servers)
        assert servers[0].of("m").migration == servers[1].migration
        if kind is MariadbServer:
            assert max(len(server.sessions.lock_name(part)) for server in servers for part in PARTS) <= LOCK_NAME_MAX
            tools = Tools(lambda _: "token", "http://127.0.0.1", tmp_path / "tools")
            folders = [PtOscStrategy(server, "m", tools)._folder().path for server in servers]
            assert len(set(folders)) == len(servers), "a program that is left over is found, and ended, by its folder"
    finally:
        for server in servers:
            server.close()


def test_slots_of_two_databases_have_names_of_their_own(spare_databases: SpareDatabases) -> None:
    """Slots are the server's. Two migrations of one id may be cut over at the same moment."""
    with spare_databases.database() as one, spare_databases.database() as other:
        names = set()
        for parameters in (one, other):
            with psycopg.connect(**parameters) as session:
                names.add(slot_name(cast("BoundedConnection", session), "0" * 8))
    assert len(names) == 2
    assert all(name.startswith("headgate_00000000_") for name in names)
