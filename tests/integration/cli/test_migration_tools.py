"""pt-osc through the service: its owner is killed in the middle of the copy, and the next one begins once more.

Writers keep counts of their own all the while: what the table holds in the end is known without asking it.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.eventlog.kafka import KafkaLog
from headgate.migration.shell.reports import PATH
from integration.cli.conftest import Service, headgate
from integration.cli.test_migration import ROWS, Database, Writer, done, expected, state_of, submit
from support.waiting import eventually

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

CHANGE = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7, MODIFY COLUMN v bigint NOT NULL"
SLOWLY = ("--tool-option", "--chunk-size=1000", "--tool-option", "--sleep=0.5")
"""Twenty pieces: the command that has it stand still comes while it copies, on a slow machine too."""


@pytest.fixture
def database(mariadb_database: str, tmp_path: Path, pt_osc: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("HEADGATE_MIGRATION__PT_OSC", str(pt_osc))
    return Database(mariadb_database, tmp_path)


@pytest.fixture
def writer(database: Database) -> Iterator[Writer]:
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40) DEFAULT 'a')")
    database.run(f"INSERT INTO items (id, v) SELECT seq, 0 FROM seq_0_to_{ROWS - 1}")
    writer = Writer(database, 0)
    writer.start()
    yield writer
    writer.stopping.set()
    writer.join(60)


def ended(migration: str) -> dict[str, Any]:
    eventually(lambda: state_of(migration)["state"] not in ("queued", "ready", "running"), "it has ended")
    return state_of(migration)


def test_a_killed_owners_program_is_ended_and_begun_once_more(
    log: KafkaLog, serve: Serve, database: Database, writer: Writer
) -> None:
    first = serve("first", "migration")
    refused = submit(database, "p0", "DROP TABLE items", "--strategy", "pt-osc")
    assert "strategy direct" in refused.output.replace("\n", " ")
    asked = submit(database, "p1", CHANGE, "--strategy", "pt-osc", *SLOWLY)
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("p1")["stage"] == "copying", "its program has reported that it copies")
    # It stands still in the middle of its copy, however long the rest takes.
    done("throttle", "p1", "--ratio", "1")
    shown = state_of("p1")
    program = psutil.Process(json.loads(shown["note"])["pid"])
    eventually(lambda: program.status() == psutil.STATUS_STOPPED, "it stands still")
    standby = serve("second", "migration")
    eventually(lambda: standby.get(f"{PATH}?uuid=p1&status=running")[0] == 421, "it knows who owns")
    assert first.get(f"{PATH}?uuid=p1&status=running")[0] == 403
    assert first.get(f"{PATH}?uuid=p9&status=running")[0] == 404
    assert first.get(f"{PATH}?uuid=p1")[0] == 400

    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(60)
    eventually(lambda: state_of("p1")["retries"] == 1, "it is tried once more")
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
    done("throttle", "p1", "--ratio", "0")
    shown = ended("p1")
    assert (shown["state"], shown["attempt"]) == ("complete", 2), shown
    writer.stopping.set()
    writer.join(60)
    assert writer.errors == []
    assert dict(database.run("SELECT id, v FROM items")) == expected([writer])
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
    asked = submit(database, "c1", CHANGE, "--strategy", "pt-osc", *SLOWLY)
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("c1")["stage"] == "copying", "it copies")
    done("throttle", "c1", "--ratio", "1")
    done("throttle", "c1", "--ratio", "0.5", refused="a ratio of 0 or 1")
    done("force-cutover", "c1", refused="cuts over by itself")
    eventually(lambda: state_of("c1")["throttle_reason"] == "an operator: it stands still", "it is told why")
    done("cancel", "c1")
    assert state_of("c1")["state"] == "cancelled"
    assert (database.names("triggers"), database.names("tables")) == ([], ["items"])
    after = writer.changes
    eventually(lambda: writer.changes > after, "clients write on")
    assert writer.errors == []
