"""A revert of what strategy online has not made: refused, with what to do instead; nothing is touched."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, headgate
from integration.cli.test_migration import Database, database, done, state_of, submit
from support import gh_ost_double
from support.waiting import eventually

__all__ = ["database"]

pytestmark = pytest.mark.integration

Serve = Callable[..., Service]

ADD = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7"


@pytest.fixture
def programs(log: KafkaLog, pt_osc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pt-osc, and what obeys gh-ost's contract; ``log``: it clears the environment first."""
    gh_ost = tmp_path / "gh-ost"
    gh_ost.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{gh_ost_double.__file__}' \"$@\"\n", encoding="utf-8")
    gh_ost.chmod(0o755)
    monkeypatch.setenv("HEADGATE_MIGRATION__PT_OSC", str(pt_osc))
    monkeypatch.setenv("HEADGATE_MIGRATION__GH_OST", str(gh_ost))


def made(database: Database, name: str, statement: str, *options: str) -> None:
    asked = submit(database, name, statement, *options)
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of(name)["ended_ms"], f"{name} has ended")
    assert state_of(name)["state"] == "complete", state_of(name)


def refused(name: str, *words: str) -> None:
    asked = headgate("migration", "revert", name, "--id", f"r-{name}", "--timeout", "120")
    assert asked.exit_code == 40, asked.output
    said = " ".join(asked.output.split())
    for word in words:
        assert word in said, said
    assert headgate("migration", "show", f"r-{name}").exit_code != 0, "a revert that is refused is no migration"


def items(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)")
    database.run("INSERT INTO items VALUES (1, 5), (2, 6)")


def test_what_was_done_directly(log: KafkaLog, serve: Serve, database: Database) -> None:
    serve("owner", "migration")
    direct = ("--strategy", "direct")
    items(database)
    made(database, "a1", ADD, *direct)
    refused("a1", "strategy direct", "was altered in place", "submit the opposite change", "--declarative")
    made(database, "c1", "CREATE TABLE things (id int PRIMARY KEY)", *direct)
    refused("c1", "was not there before", "submit DROP TABLE", "things")
    made(database, "d1", "DROP TABLE things", *direct)
    refused("d1", "nothing of table", "things", "backup")
    made(database, "n1", "DROP TABLE IF EXISTS things", *direct)
    refused("n1", "has changed nothing")
    assert sorted(database.run("SELECT id, v, extra FROM items")) == [(1, 5, 7), (2, 6, 7)]
    made(database, "b1", "ALTER TABLE items DROP COLUMN extra", *direct)
    assert sorted(database.run("SELECT * FROM items")) == [(1, 5), (2, 6)], "what it said to do undoes it"


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.usefixtures("programs")
def test_what_was_done_by_a_program(log: KafkaLog, serve: Serve, database: Database) -> None:
    serve("owner", "migration")
    items(database)
    made(database, "p1", ADD, "--strategy", "pt-osc")
    refused("p1", "strategy pt-osc", "_items_old", "written since", "submit the opposite change", "strategy online")
    done("cleanup", "p1")
    made(database, "g1", "ALTER TABLE items DROP COLUMN extra", "--strategy", "gh-ost")
    (before,) = state_of("g1")["artifacts"]
    refused("g1", "strategy gh-ost", before, "submit the opposite change", "strategy online")
    assert sorted(database.run("SELECT * FROM items")) == [(1, 5), (2, 6)]
