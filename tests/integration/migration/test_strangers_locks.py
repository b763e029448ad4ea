"""A migration is its owner's by a row of its own: users without a right on it can neither hold it up nor take part.

Named locks and application names are open to every user of a server (ADR 0099).
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import psycopg
import pytest

from fixtures.services import database_connect
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.strategies.contract import DatabaseUnavailableError, Memory, SupersededError
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.postgresql.holders import end_holders
from headgate.migration.strategies.postgresql.server import PostgresServer
from headgate.migration.strategies.target import NO_CLUSTER, target_of

pytestmark = pytest.mark.integration

MIGRATION = "m"
MARK = sha256(MIGRATION.encode()).hexdigest()[:16]
KEY = f"hashtextextended('headgate migration {MARK}', 0)"
"""What the advisory lock of version 0.1.0 was, and what everybody can compute."""


class Users:
    """A database with a user for migrations, who is no administrator, and others without a right."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.mark = uuid.uuid4().hex[:8]
        self._names: list[str] = []
        self._sessions = ExitStack()
        self.is_mariadb = url.startswith("mysql")
        (folder / "password").write_text("pen", encoding="utf-8")

    @property
    def database(self) -> str:
        return urlsplit(self.url).path.strip("/")

    def run(self, *statements: str) -> None:
        with closing(database_connect(self.url)) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def user(self, name: str, *rights: str) -> str:
        name = f"{name}_{self.mark}"
        password = "IDENTIFIED BY" if self.is_mariadb else "LOGIN PASSWORD"
        kind = "USER" if self.is_mariadb else "ROLE"
        self.run(f"CREATE {kind} {name} {password} 'pen'", *(f"GRANT {right} TO {name}" for right in rights))
        self._names.append(name)
        return name

    def address(self, user: str) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{user}@{parts.hostname}:{parts.port}{parts.path}"

    def server(self, owner: str, migration: str = MIGRATION) -> Any:
        kind: Any = MariadbServer if self.is_mariadb else PostgresServer
        target = target_of(self.address(owner), str(self.folder / "password"))
        return self._sessions.enter_context(closing(kind(migration, target, cluster_id=NO_CLUSTER)))

    def session(self, user: str, name: str = "") -> Any:
        """A session of that user's, at PostgreSQL under that application name."""
        parts = urlsplit(self.url)
        if self.is_mariadb:
            session = database_connect(f"mysql://{user}:pen@{parts.hostname}:{parts.port}/")
        else:
            at = f"postgresql://{user}:pen@{parts.hostname}:{parts.port}{parts.path}"
            session = psycopg.connect(at, autocommit=True, application_name=name)
        return self._sessions.enter_context(closing(session)).cursor()

    def close(self) -> None:
        self._sessions.close()
        for name in self._names:
            if self.is_mariadb:
                self.run(f"DROP USER {name}")
            else:
                self.run(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


@pytest.fixture(params=["postgres_database", "mariadb_database"])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Users]:
    with closing(Users(str(request.getfixturevalue(request.param)), tmp_path)) as found:
        yield found


@pytest.fixture
def owner(users: Users) -> str:
    if users.is_mariadb:
        return users.user("owner", f"ALL ON {users.database}.*", "ALL ON headgate.*")
    return users.user("owner", f"CREATE ON DATABASE {users.database}")


def take_every_lock(stranger: Any, names: list[str], keys: list[tuple[int, int]]) -> None:
    """What somebody without a right takes: locks of names that can be computed, and those that the server shows."""
    if names:
        for name in names:
            stranger.execute("SELECT GET_LOCK(%s, 5)", (name,))
            assert stranger.fetchall() == ((1,),)
        return
    stranger.execute(f"SELECT pg_advisory_lock({KEY})")
    for key in keys:
        stranger.execute("SELECT pg_advisory_lock((%s::bigint << 32) | %s::bigint)", key)


def shown_locks(stranger: Any) -> list[tuple[int, int]]:
    stranger.execute(
        "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND database "
        "= (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return list(stranger.fetchall())


def test_a_stranger_who_takes_every_lock_he_can_name_holds_nothing_up(users: Users, owner: str) -> None:
    """He takes them while one owner follows another, under the name that the first one's sessions had."""
    first, second = users.server(owner), users.server(owner)
    first.take_over(1)
    first.note(Memory(1, 1, "begun"))
    stranger = users.session(users.user("stranger"), f"headgate migration {MARK}")
    names = [f"hg.{MARK}.{part}" for part in ("main", "lock", "rename", "mark", "copy")] if users.is_mariadb else []
    keys = [] if users.is_mariadb else shown_locks(stranger)
    first.close()
    take_every_lock(stranger, names, keys)
    memory = second.take_over(2)
    assert memory is not None
    assert memory.owner_rev == 2
    with second.sessions.part(*["copy"] if users.is_mariadb else []):
        pass
    stranger.execute("SELECT 1")


def test_an_earlier_owner_ends_nothing_and_gets_nothing(users: Users, owner: str) -> None:
    """Nothing is remembered of the migration yet: the row alone says that a later owner has it."""
    early, late = users.server(owner), users.server(owner)
    assert early.take_over(1) is None
    assert late.take_over(2) is None
    with pytest.raises(SupersededError, match="owner 2 has the migration"):
        early.take_over(1)
    with pytest.raises(SupersededError), early.sessions.part(*["copy"] if users.is_mariadb else []):
        pass
    late.sessions.check_ours()


def test_an_owner_that_takes_over_again_ends_its_own_sessions_alone(users: Users, owner: str) -> None:
    """The main session is lost; another migration at the same database goes on."""
    server, other = users.server(owner), users.server(owner, "other")
    server.take_over(1)
    other.take_over(1)
    server.sessions.main.close()
    assert server.take_over(1) is None
    server.sessions.check_ours()
    other.sessions.check_ours()


def test_who_holds_a_migration_and_may_not_be_ended_is_named(users: Users, owner: str) -> None:
    """An earlier owner under another user, who has the rights but is not ours to end."""
    first, second = users.server(owner), users.server(owner)
    first.take_over(1)
    if users.is_mariadb:
        other = users.session(users.user("other"))
        first.close()
        with closing(database_connect(users.url)) as session, session.cursor() as cursor:
            cursor.execute("SELECT word FROM headgate.migration_owner")
            ((word,),) = cursor.fetchall()
        other.execute("SELECT GET_LOCK(%s, 5)", (f"hg.{word}.main",))
        says = r"session \d+ \(.*\) holds the lock of this migration's part main and does not end: KILL \d+"
    else:
        rights = ("USAGE ON SCHEMA headgate", "UPDATE ON headgate.migration_owner")
        users.session(users.user("other", *rights), f"headgate migration {MARK}")
        says = r"sessions of an earlier owner of this migration do not end: pid \d+ \(user other_"
    with pytest.raises(DatabaseUnavailableError, match=says):
        second.take_over(2)


def test_a_forced_cut_over_ends_a_holder_who_has_taken_our_name(postgres_database: str, tmp_path: Path) -> None:
    with closing(Users(postgres_database, tmp_path)) as users:
        users.run("CREATE TABLE items (id int PRIMARY KEY)")
        name = f"headgate migration {MARK}"
        holder = users.session(users.user("holder", "SELECT ON items"), name)
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM items")
        with closing(psycopg.connect(users.url, autocommit=True, application_name=name)) as ours:
            (ended,) = end_holders(cast("BoundedConnection", ours), "public.items")
        assert f"(holder_{users.mark}, {name}; held it)" in ended
