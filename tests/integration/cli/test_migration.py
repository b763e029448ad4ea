"""A schema change through the service: real broker, real database, writers all the while, the owner killed in between.

The writers keep counts of their own, so what the table holds in the end is known without asking it: every row that was
written is there, once, with the last value written to it; the change is in force; no client has seen an error.
"""

import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from fixtures.services import mariadb_connect
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, headgate
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

ROWS = 20_000
TRIGGERS = ("--strategy", "triggers", "-o", "json")
WRITERS = 3


class Database:
    """One kind of database: a connection, an address without its password, and what the test's statements are there."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.is_mariadb = url.startswith("mysql")
        parts = urlsplit(url)
        self.password_file = folder / "password"
        self.password_file.write_text(unquote(parts.password or ""), encoding="utf-8")
        self.address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
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


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    name = "postgres_database" if request.param == "postgresql" else "mariadb_database"
    return Database(request.getfixturevalue(name), tmp_path)


class Writer(threading.Thread):
    """Inserts, updates and deletes rows of its own until told to stop; knows what they must be in the end."""

    def __init__(self, database: Database, number: int) -> None:
        super().__init__(name=f"writer-{number}")
        self.rows: dict[int, int] = {}
        self.errors: list[str] = []
        self.changes = 0
        self.stopping = threading.Event()
        self._database = database
        self._number = number

    def run(self) -> None:
        connection = self._database.connect()
        chance = random.Random(self._number)  # noqa: S311 - a history is its seed
        try:
            with connection.cursor() as cursor:
                while not self.stopping.wait(0.002):
                    self._change(cursor, chance)
        except (pymysql.Error, psycopg.Error) as error:
            self.errors.append(repr(error))
        finally:
            connection.close()

    def _change(self, cursor: Any, chance: random.Random) -> None:
        # Keys of each writer's own, within the keys that are copied and beyond them.
        key = chance.randrange(2 * ROWS // WRITERS) * WRITERS + self._number
        draw = chance.random()
        if key not in self.rows and key >= ROWS:
            cursor.execute("INSERT INTO items (id, v) VALUES (%s, 1)", (key,))
            self.rows[key] = 1
        elif draw < 0.7:
            if key in self.rows or key < ROWS:
                cursor.execute("UPDATE items SET v = v + 1 WHERE id = %s", (key,))
                self.rows[key] = self.rows.get(key, 0) + (0 if self.rows.get(key) == -1 else 1)
        elif self.rows.get(key) != -1:
            cursor.execute("DELETE FROM items WHERE id = %s", (key,))
            self.rows[key] = -1
        self.changes += 1


@pytest.fixture
def writers(database: Database) -> Iterator[list[Writer]]:
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40) DEFAULT 'a')")
    for start in range(0, ROWS, 1_000):
        database.run("INSERT INTO items (id, v) VALUES " + ", ".join(f"({n}, 0)" for n in range(start, start + 1_000)))
    started = [Writer(database, number) for number in range(WRITERS)]
    for writer in started:
        writer.start()
    yield started
    for writer in started:
        writer.stopping.set()
        writer.join(60)


def state_of(migration: str) -> dict[str, Any]:
    shown = headgate("migration", "show", migration, "-o", "json")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def submit(database: Database, migration: str, statement: str, *options: str) -> Any:
    return headgate(
        *("migration", "submit", statement, "--database", database.address, "--id", migration),
        *("--password-file", str(database.password_file), "--timeout", "120"),
        *(options if "--strategy" in options else ("--strategy", "triggers", *options)),
    )


def done(command: str, *arguments: str, refused: str = "") -> None:
    """A request of the operator's, done; or refused with these words."""
    asked = headgate("migration", command, *arguments, "--timeout", "120")
    assert asked.exit_code == (40 if refused else 0), asked.output
    assert refused in asked.output.replace("\n", " "), asked.output


def expected(writers: list[Writer]) -> dict[int, int]:
    rows = dict.fromkeys(range(ROWS), 0)
    for writer in writers:
        rows.update(writer.rows)
    return {key: value for key, value in rows.items() if value >= 0}


def test_a_change_by_triggers_under_writers_survives_its_owner(
    log: KafkaLog, serve: Serve, database: Database, writers: list[Writer]
) -> None:
    first = serve("first", "migration")
    asked = submit(database, "m1", database.statement, "--chunk-rows", "200", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    # It stands still after its first range, so that the owner is killed in the middle of the copy.
    done("throttle", "m1", "--ratio", "1")
    done("launch", "m1")
    eventually(lambda: state_of("m1")["rows_copied"] > 0, "it copies")
    assert state_of("m1")["rows_copied"] < ROWS
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(ANSWER_SECONDS)
    assert state_of("m1")["state"] == "running"

    serve("second", "migration")
    done("throttle", "m1", "--ratio", "0")
    eventually(lambda: state_of("m1")["state"] not in ("queued", "ready", "running"), "it has ended")
    after = [writer.changes for writer in writers]
    eventually(lambda: all(w.changes > n for w, n in zip(writers, after, strict=True)), "they write after the cut-over")
    for writer in writers:
        writer.stopping.set()
        writer.join(60)

    shown = state_of("m1")
    assert shown["state"] == "complete", shown
    assert shown["attempt"] == 1, "the second owner went on with the copy of the first"
    assert [writer.errors for writer in writers] == [[]] * WRITERS
    assert dict(database.run("SELECT id, v FROM items")) == expected(writers)
    assert database.run("SELECT DISTINCT extra FROM items") == [(7,)]
    done("cleanup", "m1")
    assert state_of("m1")["artifacts"] == []
    assert database.names("tables") == ["items"]


def test_an_owner_frozen_before_the_cut_over_has_no_part_in_it_any_more(
    log: KafkaLog, serve: Serve, database: Database, writers: list[Writer]
) -> None:
    first = serve("first", "migration")
    asked = submit(database, "f1", database.statement, "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("f1")["is_ready_to_complete"], "it waits for its completion")
    first.process.send_signal(signal.SIGSTOP)
    serve("second", "migration")
    done("complete", "f1")
    eventually(lambda: state_of("f1")["state"] == "complete", "the second owner has cut over")
    first.process.send_signal(signal.SIGCONT)
    after = [writer.changes for writer in writers]
    eventually(lambda: all(w.changes > n for w, n in zip(writers, after, strict=True)), "they write after the cut-over")
    for writer in writers:
        writer.stopping.set()
        writer.join(60)
    assert state_of("f1")["attempt"] == 1, "the second owner went on with the copy of the first"
    assert database.names("triggers") == []
    assert [writer.errors for writer in writers] == [[]] * WRITERS
    assert dict(database.run("SELECT id, v FROM items")) == expected(writers)


def test_a_cancelled_change_is_undone_and_can_be_retried(
    log: KafkaLog, serve: Serve, database: Database, writers: list[Writer]
) -> None:
    serve("owner", "migration")
    password = ("--password-file", str(database.password_file))
    plan = headgate("migration", "plan", database.statement, "--database", database.address, *password, *TRIGGERS)
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.stdout)["action"] == "alter"
    assert database.names("tables") == ["items"], "a plan leaves nothing"

    asked = submit(database, "c1", database.statement, "--chunk-rows", "200", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    done("throttle", "c1", "--ratio", "1")
    done("launch", "c1")
    eventually(lambda: state_of("c1")["rows_copied"] > 0, "it copies")
    done("cancel", "c1")
    assert state_of("c1")["state"] == "cancelled"
    assert database.names("triggers") == []
    (_, name) = state_of("c1")["artifacts"][0].split(".")
    assert database.names("tables") == sorted(["items", name])

    done("throttle", "c1", "--ratio", "0", refused="cancelled already")
    done("retry", "c1")
    done("throttle", "c1", "--ratio", "0")
    eventually(lambda: state_of("c1")["state"] not in ("queued", "ready", "running"), "it has ended")
    for writer in writers:
        writer.stopping.set()
        writer.join(60)
    shown = state_of("c1")
    assert (shown["state"], shown["retries"], shown["attempt"]) == ("complete", 1, 2), shown
    done("cancel", "c1", refused="it came too late: c1 is complete")
    assert [writer.errors for writer in writers] == [[]] * WRITERS
    assert dict(database.run("SELECT id, v FROM items")) == expected(writers)


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
        "ALTER TABLE items RENAME TO things": "RENAME of a table",
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
