"""pt-osc through the service: its owner is killed in the middle of the copy, and the next one begins once more.

Writers keep counts of their own all the while: what the table holds in the end is known without asking it.
"""

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pymysql
import pytest

from headgate.eventlog.kafka import KafkaLog
from headgate.migration.shell.reports import PATH
from integration.cli.conftest import ANSWER_SECONDS, Service, headgate
from integration.cli.test_migration import Database, done, state_of, submit
from integration.migration.tool_change import Brake
from support.ended import has_ended
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

CHANGE = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7, MODIFY COLUMN v bigint NOT NULL"
CHUNKS = ("--tool-option", "--chunk-size=1000", "--tool-option")
SLOWLY = (*CHUNKS, "--sleep=0.2", "--tool-option", "--tries=copy_rows:1000:0.25")
"""Twenty chunks: the last row is locked long before the copy comes to it, and the copy waits there."""
HALTED = (*CHUNKS, "--sleep=3600")
"""It stands still behind its first chunk, until it is ended."""

TRIGGERS = 3
"""For inserts, updates and deletes."""

ROWS = 20_000
STRIDE = 3
"""The writer changes every third row."""

LAST_ROW = ROWS - 1
"""Not among the rows that the test's writer changes."""


class Writer(threading.Thread):
    """Inserts, updates and deletes rows of its own until told to stop; knows what they must be in the end."""

    def __init__(self, database: Database) -> None:
        super().__init__(name="writer")
        self.rows: dict[int, int] = {}
        self.errors: list[str] = []
        self.changes = 0
        self.stopping = threading.Event()
        self._database = database

    def run(self) -> None:
        connection = self._database.connect()
        chance = random.Random(0)  # noqa: S311 - a history is its seed
        try:
            with connection.cursor() as cursor:
                while not self.stopping.wait(0.002):
                    self._change(cursor, chance)
        except pymysql.Error as error:
            self.errors.append(repr(error))
        finally:
            connection.close()

    def _change(self, cursor: Any, chance: random.Random) -> None:
        # Within the keys that are copied and beyond them.
        key = chance.randrange(2 * ROWS // STRIDE) * STRIDE
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
def database(mariadb_database: str, tmp_path: Path, pt_osc: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("HEADGATE_MIGRATION__PT_OSC", str(pt_osc))
    return Database(mariadb_database, tmp_path)


@pytest.fixture
def writer(database: Database) -> Iterator[Writer]:
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40) DEFAULT 'a')")
    database.run(f"INSERT INTO items (id, v) SELECT seq, 0 FROM seq_0_to_{ROWS - 1}")
    writer = Writer(database)
    writer.start()
    yield writer
    writer.stopping.set()
    writer.join(END_SECONDS_MAX)


@pytest.fixture
def brake(writer: Writer, database: Database) -> Iterator[Brake]:
    made = Brake(database.url, LAST_ROW)
    yield made
    made.release()


def expected(writer: Writer) -> dict[int, int]:
    rows = dict.fromkeys(range(ROWS), 0) | writer.rows
    return {key: value for key, value in rows.items() if value >= 0}


def ended(migration: str) -> dict[str, Any]:
    eventually(lambda: state_of(migration)["state"] not in ("queued", "ready", "running"), "it has ended")
    return state_of(migration)


def test_a_killed_owners_program_is_ended_and_begun_once_more(
    *, log: KafkaLog, serve: Serve, database: Database, writer: Writer, brake: Brake
) -> None:
    first = serve("first", "migration")
    refused = submit(database, "p0", "DROP TABLE items", "--strategy", "pt-osc")
    assert "strategy direct" in refused.output.replace("\n", " ")
    with closing(database.connect()) as watcher, watcher.cursor() as looking:
        asked = submit(database, "p1", CHANGE, "--strategy", "pt-osc", *SLOWLY)
        assert asked.exit_code == 0, asked.output
        eventually(lambda: looking.execute("SHOW TRIGGERS") == TRIGGERS, "its triggers are made, so it copies")
        brake.hold()
    eventually(lambda: state_of("p1")["stage"] == "copying", "its program has reported that it copies")
    done("throttle", "p1", "--ratio", "1")
    shown = state_of("p1")
    program = psutil.Process(json.loads(shown["note"])["pid"])
    eventually(lambda: program.status() == psutil.STATUS_STOPPED, "it stands still")
    brake.release()
    standby = serve("second", "migration")
    eventually(lambda: standby.get(f"{PATH}?uuid=p1&status=running")[0] == 421, "it knows who owns")
    assert first.get(f"{PATH}?uuid=p1&status=running")[0] == 403
    assert first.get(f"{PATH}?uuid=p9&status=running")[0] == 404
    assert first.get(f"{PATH}?uuid=p1")[0] == 400

    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(ANSWER_SECONDS)
    eventually(lambda: state_of("p1")["retries"] == 1, "it is tried once more")
    assert has_ended(program)
    done("throttle", "p1", "--ratio", "0")
    shown = ended("p1")
    assert (shown["state"], shown["attempt"]) == ("complete", 2), shown
    writer.stopping.set()
    writer.join(END_SECONDS_MAX)
    assert writer.errors == []
    assert dict(database.run("SELECT id, v FROM items")) == expected(writer)
    assert database.run("SELECT DISTINCT extra FROM items") == [(7,)]
    assert database.names("triggers") == []
    assert standby.get(f"{PATH}?uuid=p1&status=running")[0] == 403
    said = headgate("migration", "logs", "p1")
    assert "Swapped original and new tables OK." in said.output
    done("cleanup", "p1")
    assert database.names("tables") == ["items"]


def test_an_operator_holds_it_and_cancels_it(log: KafkaLog, serve: Serve, database: Database, writer: Writer) -> None:
    serve("owner", "migration")
    late = submit(database, "c0", CHANGE, "--strategy", "pt-osc", "--postpone-completion")
    assert "cannot be postponed" in late.output.replace("\n", " ")
    asked = submit(database, "c1", CHANGE, "--strategy", "pt-osc", *HALTED)
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("c1")["stage"] == "copying", "it copies")
    done("throttle", "c1", "--ratio", "1")
    done("throttle", "c1", "--ratio", "0.5", refused="a ratio of 0 or 1")
    done("force-cutover", "c1", refused="cuts over by itself")
    eventually(lambda: state_of("c1")["throttle_reason"] == "an operator: it is paused", "it is told why")
    done("cancel", "c1")
    assert state_of("c1")["state"] == "cancelled"
    assert (database.names("triggers"), database.names("tables")) == ([], ["items"])
    after = writer.changes
    eventually(lambda: writer.changes > after, "clients write on")
    assert writer.errors == []
