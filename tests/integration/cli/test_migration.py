"""Schema changes through the service: what is refused leaves the table as it was, and direct ones are tracked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from fixtures.services import mariadb_connect
from headgate.app.exit_codes import ExitCode
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, headgate
from support.connections import described
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]


class Database:
    """One kind of database: a connection, an address without its password, and what the test's statements are there."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.is_mariadb = url.startswith("mysql")
        parts = urlsplit(url)
        self.password_file = folder / "password"
        self.password_file.write_text(unquote(parts.password or ""), encoding="utf-8")
        self.address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        self.connection = described(self.address, self.password_file)
        self.statement = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7, " + (
            "MODIFY COLUMN v bigint NOT NULL, RENAME COLUMN s TO title"
            if self.is_mariadb
            else "ALTER COLUMN v TYPE bigint"
        )

    def connect(self) -> Any:
        return mariadb_connect(self.url) if self.is_mariadb else psycopg.connect(self.url, autocommit=True)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def names(self, kind: str) -> list[str]:
        """Of the tables, or triggers, in the schema of the test's table."""
        column = {"tables": "table", "triggers": "trigger"}[kind]
        schema = "DATABASE()" if self.is_mariadb else "'public'"
        found = self.run(f"SELECT {column}_name FROM information_schema.{kind} WHERE {column}_schema = {schema}")
        return sorted(name for (name,) in found)


# What is refused and done at either database is in integration/migration: test_statements.py, test_direct.py.
@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    name = "postgres_database" if request.param == "postgresql" else "mariadb_database"
    return Database(request.getfixturevalue(name), tmp_path)


def state_of(migration: str) -> dict[str, Any]:
    shown = headgate("migration", "show", migration, "-o", "json")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def submit(database: Database, migration: str, statement: str, *options: str) -> Any:
    return headgate(
        *("migration", "submit", statement, "--database", database.connection, "--id", migration),
        *("--timeout", "120", "--yes"),
        *(options if "--strategy" in options else ("--topic", "topic", *options)),
    )


def held_by(migration: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and holds of `headgate why`."""
    why = headgate("why", migration, "-o", "json")
    assert why.exit_code in (ExitCode.DONE, ExitCode.HELD), why.output
    holds: list[dict[str, Any]] = json.loads(why.stdout)["reasons"]
    return why.exit_code, holds


def done(command: str, *arguments: str, refused: str = "") -> None:
    """A request of the operator's, done; or refused with these words."""
    agreed = ("--yes",) if command in ("cleanup", "force-cutover") else ()
    asked = headgate("migration", command, *arguments, *agreed, "--timeout", "120")
    assert asked.exit_code == (40 if refused else 0), asked.output
    assert refused in asked.output.replace("\n", " "), asked.output


def test_what_cannot_be_done_is_refused_and_the_table_is_untouched(
    log: KafkaLog, serve: Serve, database: Database
) -> None:
    serve("owner", "migration")
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40))")
    database.run("INSERT INTO items VALUES (1, 5, 'x'), (2, 5, 'y')")
    database.run("CREATE TABLE keyless (v int)")
    narrow = "MODIFY COLUMN v smallint NOT NULL" if database.is_mariadb else "ALTER COLUMN v TYPE smallint"
    refused = {
        "ALTER TABLE items ADD COLUMN": "",
        "ALTER TABLE nothing ADD COLUMN c int": "does not exist",
        "ALTER TABLE keyless ADD COLUMN c int": "no primary or unique key",
        f"ALTER TABLE items {narrow}": "--allow-lossy",
        "ALTER TABLE items ADD CONSTRAINT u UNIQUE (v)": "equal in (v)",
        "ALTER TABLE items ADD COLUMN c int; DROP TABLE items": "one statement",
        "ALTER TABLE items RENAME TO things": "is refused. It takes no time",
    }
    before = database.run("SELECT * FROM items ORDER BY id")
    for number, (statement, why) in enumerate(refused.items()):
        asked = submit(database, f"r{number}", statement)
        assert asked.exit_code == 40, (statement, asked.output)
        assert why in asked.output.replace("\n", " "), (statement, asked.output)
    assert database.run("SELECT * FROM items ORDER BY id") == before


def test_direct_changes_are_tracked(log: KafkaLog, serve: Serve, database: Database) -> None:
    serve("owner", "migration")
    for number, statement in enumerate(
        ("CREATE TABLE things (id int PRIMARY KEY)", "ALTER TABLE things ADD COLUMN c int", "DROP TABLE things")
    ):
        name = f"d{number}"
        asked = submit(database, name, statement, "--strategy", "direct")
        assert asked.exit_code == 0, asked.output
        eventually(lambda name=name: state_of(name)["state"] == "complete", f"{statement} is complete")
    again = submit(database, "d9", "CREATE TABLE IF NOT EXISTS items (id int)", "--strategy", "direct")
    assert again.exit_code == 0
    missing = submit(database, "d10", "DROP TABLE things", "--strategy", "direct")
    assert missing.exit_code == 40


def test_why_says_what_a_change_waits_for_until_nothing_holds_it(
    log: KafkaLog, serve: Serve, database: Database
) -> None:
    owner = serve("owner", "migration")
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40))")
    asked = submit(database, "m1", database.statement, "--strategy", "direct", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    code, (hold,) = held_by("m1")
    assert (code, hold["stage"]) == (ExitCode.HELD, "launch")
    shown = headgate("why", "m1")
    assert (shown.exit_code, "headgate migration launch m1" in " ".join(shown.output.split())) == (ExitCode.HELD, True)
    misspelt = headgate("why", "m1x")
    assert (misspelt.exit_code, "Known are: m1" in misspelt.output) == (ExitCode.NOT_FOUND, True), misspelt.output
    owner.end()
    eventually(lambda: [hold["stage"] for hold in held_by("m1")[1]] == ["owner", "launch"], "its owner is gone")
    serve("next", "migration")
    done("launch", "m1")
    eventually(lambda: state_of("m1")["state"] == "complete", "it is done")
    assert held_by("m1") == (ExitCode.DONE, [])
