"""``headgate up --source --sink``: what is wrong at the two databases is said before anything is started.

That it replicates is seen in tests/e2e/test_tutorials.py.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner, Result

from fixtures.spare_databases import SpareDatabases
from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE SCHEMA stock; CREATE TABLE stock.items (id bigint PRIMARY KEY);
"""
PUBLISHED = "CREATE PUBLICATION headgate FOR ALL TABLES"


def url(parameters: Mapping[str, object], **changed: str) -> str:
    return "postgresql://{user}@{host}:{port}/{dbname}".format(**(dict(parameters) | changed))


class Databases:
    """A source that is ready and an empty sink. libpq finds the password in PGPASSFILE."""

    def __init__(self, source: str, sink: str, folder: Path) -> None:
        self.source, self.sink = conninfo_to_dict(source), conninfo_to_dict(sink)
        self.folder = folder

    def up(self, *more: str, source: str | None = None, sink: str | None = None) -> Result:
        given = ["--source", source or url(self.source), "--sink", sink or url(self.sink)]
        return CliRunner().invoke(app, ["up", *given, "--folder", str(self.folder / "made"), *more])


@pytest.fixture
def databases(
    spare_databases: SpareDatabases, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Databases]:
    with psycopg.connect(postgres_database, autocommit=True) as source:
        source.execute(TABLES)
        source.execute(PUBLISHED)
    passwords = tmp_path / "pgpass"
    passwords.touch(mode=0o600)
    passwords.write_text(f"*:*:*:*:{conninfo_to_dict(postgres_database)['password']}\n")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.delenv("HEADGATE_SECRETS_DIR", raising=False)
    with spare_databases.database() as parameters:
        sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        yield Databases(postgres_database, sink, tmp_path)


def words(done: Result) -> str:
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def test_a_source_that_is_not_ready_is_shown_with_its_fix(databases: Databases) -> None:
    done = databases.up("--publication", "other")
    assert done.exit_code == ExitCode.CHECK_FAILED, done.output
    assert 'CREATE PUBLICATION "other" FOR TABLE "public"."orders", "stock"."items";' in words(done)
    assert " ok " not in words(done), "only what is wrong is shown"
    assert not (databases.folder / "made").exists()


def test_a_table_that_cannot_be_created_is_named(databases: Databases) -> None:
    with psycopg.connect(url(databases.source), autocommit=True) as source:
        source.execute("ALTER TABLE orders ADD COLUMN item stock.items")
    done = databases.up()
    assert done.exit_code == ExitCode.DATABASE, done.output
    said = words(done)
    assert "no statement for public.orders, column item: stock.items is not a type" in said
    assert "choose the others with --tables" in said
    assert not (databases.folder / "made").exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"port": "1"}, "cannot open a session at the sink"),
        ({"user": "nobody"}, "password authentication failed"),
        ({"dbname": "shoop"}, 'database "shoop" does not exist'),
        ({"user": "me:secret"}, "--sink has a password in it"),
    ],
)
def test_a_sink_that_cannot_be_opened(databases: Databases, changed: dict[str, str], says: str) -> None:
    done = databases.up(sink=url(databases.sink, **changed))
    assert (done.exit_code, says in words(done)) == (ExitCode.DATABASE, True), done.output
    assert "secret" not in words(done).replace("SECRETS", "")


def test_the_source_is_refused_as_its_own_sink_however_it_is_spelled(databases: Databases) -> None:
    done = databases.up(sink=f"{url(databases.source)}?connect_timeout=7")
    assert (done.exit_code, "the sink is the source itself" in words(done)) == (ExitCode.DATABASE, True), done.output


def test_without_a_password_it_says_where_one_is_looked_for(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    done = databases.up()
    assert (done.exit_code, "in ~/.pgpass, PGPASSFILE or PGPASSWORD" in words(done)) == (ExitCode.DATABASE, True)


def test_rights_that_the_sink_user_lacks_are_found_and_gone_once_the_fix_is_typed(databases: Databases) -> None:
    sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**databases.sink)
    user = "limited_" + str(databases.sink["dbname"])[-12:]
    with psycopg.connect(sink, autocommit=True) as database:
        database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        database.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{databases.sink['password']}'".encode())
        try:
            # Every table is visible in pg_class, whatever the user may do with it.
            found = databases.up("--feed", "shop", sink=url(databases.sink, user=user))
            assert found.exit_code == ExitCode.CHECK_FAILED, found.output
            assert 'GRANT SELECT, INSERT, UPDATE, DELETE ON "public"."orders"' in words(found)
            assert "CREATE SCHEMA headgate AUTHORIZATION" in words(found)
            assert f"GRANT CREATE ON DATABASE {databases.sink['dbname']} TO {user};" in words(found)
        finally:
            database.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


def test_a_dry_run_into_an_empty_sink_starts_and_writes_nothing(databases: Databases) -> None:
    done = databases.up("--dry-run", "--feed", "shop")
    assert (done.exit_code, "would start feed shop" in words(done)) == (0, True), done.output
    assert not (databases.folder / "made").exists()


def test_a_table_without_a_key_that_an_earlier_run_has_created_is_taken_again(databases: Databases) -> None:
    sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**databases.sink)
    for each in (url(databases.source), sink):
        with psycopg.connect(each, autocommit=True) as database:
            database.execute("CREATE TABLE audit_log (at timestamptz, what text)")
    with psycopg.connect(url(databases.source), autocommit=True) as source:
        source.execute("ALTER TABLE audit_log REPLICA IDENTITY FULL")
    done = databases.up("--dry-run", "--feed", "shop")
    assert (done.exit_code, "would start feed shop" in words(done)) == (0, True), done.output


def test_one_of_the_two_alone_is_a_mistake(databases: Databases) -> None:
    done = CliRunner().invoke(app, ["up", "--source", url(databases.source)])
    assert (done.exit_code, "give both --source and --sink" in words(done)) == (ExitCode.USAGE, True)


def test_removal_drops_the_slot_and_the_publication(databases: Databases) -> None:
    source = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**databases.source)
    (databases.folder / "made").mkdir()
    with psycopg.connect(source, autocommit=True) as database:
        name = f"s_{databases.source['dbname']}"
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        asked = databases.up("--remove", "--slot", name)
        assert asked.exit_code == ExitCode.NOT_CONFIRMED, asked.output
        removed = databases.up("--remove", "--slot", name, "--yes")
        assert removed.exit_code == 0, removed.output
        left = database.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() "
            "UNION ALL SELECT pubname FROM pg_publication"
        ).fetchall()
    assert left == []
    assert not (databases.folder / "made").exists()
    assert "nothing was left" in databases.up("--remove", "--slot", name).output
