"""``headgate source check`` at a real PostgreSQL: each fault is planted, found, and gone once its fix is typed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from fixtures.servers import reachable_folder
from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate_lab.embedded.postgres import EmbeddedPostgres
from integration.capture.checking import Checker
from support.managed_postgres import replicating_by_membership

pytestmark = pytest.mark.integration

SHOP = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, code text NOT NULL UNIQUE, note text);
CREATE TABLE shop."Or""der Lines" (id bigint, line int, PRIMARY KEY (id, line));
CREATE TABLE shop.days (day date PRIMARY KEY, n int) PARTITION BY RANGE (day);
CREATE TABLE shop.days_2026 PARTITION OF shop.days FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE VIEW shop.notes AS SELECT note FROM shop.orders;
CREATE ROLE debezium LOGIN PASSWORD 'a secret';
"""


PARTITIONED = """
CREATE TABLE shop.seen (day date, n int) PARTITION BY RANGE (day);
CREATE TABLE shop.seen_2026 PARTITION OF shop.seen FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TABLE shop.seen REPLICA IDENTITY FULL;
"""
"""A partition has a replica identity of its own."""


@contextmanager
def started() -> Iterator[EmbeddedPostgres]:
    with reachable_folder() as folder, EmbeddedPostgres(folder / "postgres") as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(SHOP)
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with started() as server:
        yield server


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "debezium").write_text("a secret\n")
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    return tmp_path


def address(server: EmbeddedPostgres, **changed: str) -> str:
    parts = {"user": "debezium", "host": "127.0.0.1", "port": str(server.port), "database": "postgres"} | changed
    return "postgresql://{user}@{host}:{port}/{database}".format(**parts)


def checker_of(server: EmbeddedPostgres, database: str = "postgres") -> Checker:
    def execute(statement: str) -> None:
        with psycopg.connect(server.dsn(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    return Checker(address(server, database=database), execute, "--password-file", "debezium")


@pytest.fixture
def ready(server: EmbeddedPostgres, secrets: Path) -> Checker:
    """A source that has nothing wrong any more: what a new one prints was typed."""
    checker = checker_of(server)
    if checker.wrong():
        checker.type_fixes()
        server.stop()
        server.start()
    assert checker.wrong() == {}
    return checker


@pytest.mark.usefixtures("secrets")
def test_a_new_server_says_all_that_it_needs_at_once() -> None:
    with started() as server:
        checker = checker_of(server)
        found = checker.wrong()
        assert {name for name, _ in found} == {"wal_level", "replication", "select", "publication"}
        assert "Restart" in found["wal_level", ""]["then"]
        checker.type_fixes()
        # The setting needs the restart that is asked for.
        assert set(checker.wrong()) == {("wal_level", "")}
        server.stop()
        server.start()
        assert checker.wrong() == {}
        assert {check["subject"] for check in checker.check() if check["check"] == "table"} == {
            "shop.days", "shop.orders", 'shop."Or""der Lines"',
        }  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "check", "subject"),
    [
        ("DROP PUBLICATION headgate", "publication", "headgate"),
        ("ALTER PUBLICATION headgate DROP TABLE shop.orders", "publication", "headgate"),
        ("ALTER PUBLICATION headgate SET (publish = 'insert')", "publication", "headgate"),
        ("ALTER PUBLICATION headgate SET (publish_via_partition_root = false)", "publication", "headgate"),
        ("ALTER TABLE shop.orders REPLICA IDENTITY NOTHING", "replica identity", "shop.orders"),
        ("ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey", "replica identity", "shop.orders"),
        ("ALTER ROLE debezium NOREPLICATION", "replication", "debezium"),
        ("REVOKE SELECT ON shop.orders FROM debezium", "select", "debezium"),
        ("REVOKE USAGE ON SCHEMA shop FROM debezium", "select", "debezium"),
        ("CREATE UNLOGGED TABLE shop.fast (id int PRIMARY KEY)", "table", "shop.fast"),
        ("CREATE TABLE shop.audit (at timestamptz)", "primary key", "shop.audit"),
        (PARTITIONED, "primary key", "shop.seen"),
    ],
)
def test_a_fault_is_found_and_gone_once_its_fix_is_typed(
    ready: Checker, server: EmbeddedPostgres, plant: str, check: str, subject: str
) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(plant.encode())
    assert (check, subject) in ready.wrong()
    assert ready.type_fixes()
    assert ready.wrong() == {}


def test_a_slot_that_cannot_be_used(ready: Checker, server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot('taken')")
        try:
            assert set(ready.wrong("--slot", "taken")) == {("slot", "taken")}
        finally:
            connection.execute("SELECT pg_drop_replication_slot('taken')")


def test_a_managed_server_gives_replication_by_membership(ready: Checker, server: EmbeddedPostgres) -> None:
    given = "mdb_replication"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {given}".encode())
        try:
            connection.execute("CREATE DATABASE managed TEMPLATE postgres")
            connection.execute("ALTER ROLE debezium NOREPLICATION")
            managed = checker_of(server, "managed")
            replicating_by_membership(server.dsn("managed"), given)
            assert managed.wrong()["replication", "debezium"]["fix"] == [f"GRANT {given} TO debezium;"]
            assert managed.type_fixes()
            assert managed.wrong() == {}
            assert ready.wrong()["replication", "debezium"]["fix"] == ["ALTER ROLE debezium REPLICATION;"]
        finally:
            connection.execute("ALTER ROLE debezium REPLICATION")
            for statement in ("DROP DATABASE IF EXISTS managed WITH (FORCE)", f"DROP ROLE {given}"):
                connection.execute(statement.encode())
    assert "Slot Of Headgate" not in server.log_file.read_text("utf-8"), "the check leaves no error in the server's log"


def test_a_view_is_refused_by_its_name_and_left_out_by_a_pattern(ready: Checker) -> None:
    assert "is a view" in ready.wrong("--tables", "shop.notes")["table", "shop.notes"]["says"]
    assert ready.wrong("--tables", "shop.*") == {}


def _typed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["source", "check", *words])
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_it_is_shown_with_the_statement_to_type(ready: Checker, server: EmbeddedPostgres) -> None:
    where = (address(server), "--password-file", "debezium", "--publication", "other", "--tables", "shop.orders")
    code, text = _typed(*where)
    assert code == ExitCode.CHECK_FAILED
    assert 'wrong publication other: does not exist CREATE PUBLICATION "other" FOR TABLE "shop"."orders";' in text
    assert "ok wal_level: logical" in text


@pytest.mark.parametrize(
    ("changed", "password_file", "says"),
    [
        ({"host": "no.such.host.invalid"}, "debezium", "this machine cannot find the host"),
        ({"port": "1"}, "debezium", "cannot open a session at the source"),
        ({"database": "shoop"}, "debezium", 'run as an administrator: CREATE DATABASE "shoop"'),
        ({}, "wrong", "Correct the user in SOURCE, or the password (--password-file)"),
        ({}, "none", "--password-file none: cannot read"),
        ({"user": "debezium:secret"}, "debezium", "SOURCE has a password in it"),
    ],
)
def test_a_source_that_cannot_be_opened(
    server: EmbeddedPostgres, secrets: Path, changed: dict[str, str], password_file: str, says: str
) -> None:
    (secrets / "wrong").write_text("another")
    ended, text = _typed(address(server, **changed), "--password-file", password_file)
    assert (ended, says in text) == (ExitCode.DATABASE, True), text
    assert "secret" not in text.replace("folder for secrets", "")


def test_tables_that_are_not_there(ready: Checker, server: EmbeddedPostgres, secrets: Path) -> None:
    code, text = _typed(address(server), "--password-file", "debezium", "--tables", "shop.ordres")
    assert code == ExitCode.NOT_FOUND
    assert "no table matches 'shop.ordres'. Did you mean 'shop.orders'" in text


def test_an_empty_database(ready: Checker, server: EmbeddedPostgres, secrets: Path) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty")
    code, text = _typed(address(server, database="empty"), "--password-file", "debezium")
    assert "the database has no tables that this user can see" in text
    assert "FOR ALL TABLES" in text
    assert code == ExitCode.CHECK_FAILED


def test_a_name_without_a_file_of_connections(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_CONNECTIONS")
    code, text = _typed("shop")
    assert code == ExitCode.DATABASE
    assert "SOURCE: connection 'shop' is unknown, because HEADGATE_CONNECTIONS is not set" in text


def test_no_arguments_show_what_is_missing() -> None:
    code, text = _typed()
    assert (code, "Missing argument 'SOURCE'" in text) == (ExitCode.USAGE, True)
