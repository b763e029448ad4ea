"""The neighbours of the cases in both sinks: the rows that are right, and the refusals.

All records of a neighbour in one batch come to the same as one after the other, unless one of them is refused.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from fixtures.services import mariadb_execute, postgres_url
from fixtures.spare_databases import SpareDatabases
from support.neighbours import Execute, Kind, differences, neighbours

pytestmark = pytest.mark.integration

ALL = neighbours()
DATABASE = "neighbours"


class Server:
    """A database of this module's own in one of the sinks."""

    def __init__(self, kind: Kind, dsn: str, execute: Execute) -> None:
        self.kind, self.dsn, self.execute = kind, dsn, execute
        self._done: set[str] = set()

    def prepare(self, name: str) -> None:
        """What the columns of a neighbour need, once."""
        for statement in ALL[name].before.get(self.kind, ()):
            if statement not in self._done:
                self.execute(statement)
                self._done.add(statement)


@pytest.fixture(scope="module")
def postgresql(spare_databases: SpareDatabases) -> Iterator[Server]:
    with spare_databases.database() as given, psycopg.connect(**given, autocommit=True) as connection:

        def execute(statement: str) -> list[tuple]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        yield Server("pg", postgres_url(given), execute)


@pytest.fixture(scope="module")
def mariadb(mariadb_url: str) -> Iterator[Server]:
    with ExitStack() as undone:
        mariadb_execute(mariadb_url, f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        undone.callback(mariadb_execute, mariadb_url, "DROP DATABASE IF EXISTS headgate")
        undone.callback(mariadb_execute, mariadb_url, f"DROP DATABASE {DATABASE}")
        url = mariadb_url + DATABASE
        yield Server("my", url, lambda statement: mariadb_execute(url, statement))


def check(server: Server, name: str) -> None:
    neighbour = ALL[name]
    server.prepare(name)
    right = neighbour.want[server.kind]
    ways = [False, True] if len(neighbour.records) > 1 and not right.refused else [False]
    for at_once in ways:
        found = neighbour.play(server.kind, server.dsn, server.execute, at_once=at_once)
        wrong = differences(found, right)
        assert wrong == []


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if "pg" in each.want])
def test_postgresql(postgresql: Server, name: str) -> None:
    check(postgresql, name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, each in ALL.items() if "my" in each.want])
def test_mariadb(mariadb: Server, name: str) -> None:
    check(mariadb, name)
