"""``headgate source check`` at a real MariaDB: each fault is planted, found, and gone once its fix is typed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fixtures.servers import reachable_folder
from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate_lab.embedded.clients import mariadb_client
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from integration.capture.checking import Checker

pytestmark = pytest.mark.integration

SHOP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id bigint PRIMARY KEY, code varchar(20) NOT NULL UNIQUE, note text)",
    "CREATE TABLE shop.`Order ``Lines``` (id bigint, line int, PRIMARY KEY (id, line))",
    "CREATE VIEW shop.notes AS SELECT note FROM shop.orders",
    "CREATE USER debezium IDENTIFIED BY 'a secret'",
    "GRANT SELECT ON shop.orders TO debezium",
    "GRANT INSERT ON shop.`Order ``Lines``` TO debezium",
    "GRANT SELECT ON shop.notes TO debezium",
)


def execute(dsn: str, *statements: str) -> None:
    with mariadb_client(dsn) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.rstrip(";"))


@contextmanager
def started() -> Iterator[dict[str, Any]]:
    """The server in use. Whoever restarts it puts the new one there."""
    with reachable_folder() as folder:
        server = EmbeddedMariadb(folder / "mariadb").start()
        found = {"server": server}
        try:
            execute(server.dsn(), *SHOP)
            yield found
        finally:
            found["server"].stop()


@pytest.fixture(scope="module")
def parts() -> Iterator[dict[str, Any]]:
    with started() as found:
        yield found


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "debezium").write_text("a secret\n")
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    return tmp_path


def checker_of(server: EmbeddedMariadb) -> Checker:
    source = f"mysql://debezium@127.0.0.1:{server.port}/shop"
    return Checker(source, lambda statement: execute(server.dsn(), statement), "--password-file", "debezium")


@pytest.fixture
def ready(parts: dict[str, Any], secrets: Path) -> Checker:
    """A source that has nothing wrong any more: what a new one prints was typed."""
    checker = checker_of(parts["server"])
    log = checker.wrong().get(("log_bin", ""))
    if log is not None:
        assert log["fix_in"] == "option file"
        lines = dict(line.split(" = ") for line in log["fix"])
        parts["server"].stop()
        parts["server"] = EmbeddedMariadb(parts["server"].data_dir, settings=lines).start()
        checker = checker_of(parts["server"])
        checker.type_fixes()
    assert checker.wrong() == {}
    return checker


@pytest.mark.usefixtures("secrets")
def test_a_new_server_says_all_that_it_needs_at_once() -> None:
    with started() as parts:
        found = checker_of(parts["server"]).wrong()
    assert {name for name, _ in found} >= {"log_bin", "replication", "select", "snapshot locks"}


@pytest.mark.parametrize(
    ("plant", "check", "subject"),
    [
        ("SET GLOBAL binlog_format = 'STATEMENT'", "binlog_format", ""),
        ("SET GLOBAL binlog_row_image = 'MINIMAL'", "binlog_row_image", ""),
        ("REVOKE REPLICATION SLAVE ON *.* FROM debezium", "replication", "'debezium'@'%'"),
        ("REVOKE BINLOG MONITOR ON *.* FROM debezium", "replication", "'debezium'@'%'"),
        ("REVOKE RELOAD ON *.* FROM debezium", "snapshot locks", "'debezium'@'%'"),
        ("REVOKE SELECT ON shop.`Order ``Lines``` FROM debezium", "select", "'debezium'@'%'"),
    ],
)
def test_a_fault_is_found_and_gone_once_its_fix_is_typed(
    ready: Checker, parts: dict[str, Any], plant: str, check: str, subject: str
) -> None:
    execute(parts["server"].dsn(), plant)
    assert (check, subject) in ready.wrong()
    assert ready.type_fixes()
    assert ready.wrong() == {}


def test_a_unique_index_is_a_key(ready: Checker, parts: dict[str, Any]) -> None:
    execute(parts["server"].dsn(), "CREATE TABLE shop.codes (code int NOT NULL, UNIQUE KEY by_code (code))")
    execute(parts["server"].dsn(), "GRANT SELECT ON shop.codes TO debezium")
    try:
        assert ready.wrong() == {}
        said = {check["subject"]: check["says"] for check in ready.check() if check["check"] == "table"}
        assert said["shop.codes"] == "key (code) of unique index by_code"
    finally:
        execute(parts["server"].dsn(), "DROP TABLE shop.codes")


def test_tables_that_the_connector_cannot_take(ready: Checker, parts: dict[str, Any]) -> None:
    execute(
        parts["server"].dsn(),
        "CREATE TABLE shop.hosts (id int PRIMARY KEY, address inet6)",
        "CREATE TABLE shop.audit (at datetime) ENGINE = MyISAM",
        "GRANT SELECT ON shop.hosts TO debezium",
        "GRANT SELECT ON shop.audit TO debezium",
    )
    try:
        assert set(ready.wrong()) == {("column types", "shop.hosts")}
        warned = {check["check"] for check in ready.check() if check["state"] == "warning"}
        assert {"primary key", "engine"} <= warned
        assert "is a view" in ready.wrong("--tables", "shop.notes")["table", "shop.notes"]["says"]
    finally:
        execute(parts["server"].dsn(), "DROP TABLE shop.hosts, shop.audit")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("mysql://debezium@127.0.0.1:1/shop", "cannot open a session at the source"),
        ("mysql://nobody@127.0.0.1:{port}/shop", "Correct the user in SOURCE, or the password (--password-file)"),
        ("mysql://debezium@127.0.0.1:{port}/shoop", "database shoop at 127.0.0.1:{port}, user debezium"),
        ("mysq://debezium@127.0.0.1:{port}/shop", "Did you mean 'mysql://'?"),
    ],
)
def test_a_source_that_cannot_be_opened(ready: Checker, parts: dict[str, Any], address: str, says: str) -> None:
    source = address.format(port=parts["server"].port)
    done = CliRunner().invoke(app, ["source", "check", source, "--password-file", "debezium"])
    said = says.format(port=parts["server"].port)
    assert (done.exit_code, said in " ".join(done.output.split())) == (ExitCode.DATABASE, True), done.output
