"""A command that waits shows what for, at a terminal only."""

import ast
import sys
from pathlib import Path
from typing import Final

import pytest

from headgate import cli
from headgate.cli.waiting import waiting
from support.terminal import at_a_terminal

WAITS = """
import sys
from threading import enumerate as threads
from headgate.cli.output import Output, errors_as, note
from headgate.cli.waiting import waiting

errors_as(Output(sys.argv[1]))
with waiting("the coordinator to pause feed shop", quiet_seconds=0.0) as on_status:
    on_status("2 tables are draining")
    for thread in threads():
        if thread.name == "spinner":
            thread.join(60)  # then it is drawn
note("feed shop: done")
"""


def command(output: str) -> list[str]:
    return [sys.executable, "-c", WAITS, output]


def test_a_terminal_shows_what_is_awaited_and_its_status() -> None:
    printed = at_a_terminal(command("table")).decode()
    assert "Waiting for the coordinator to pause feed shop: 2 tables are draining" in printed
    assert printed.rstrip().endswith("feed shop: done")


def test_programs_see_no_spinner_even_at_a_terminal() -> None:
    assert "Waiting" not in at_a_terminal(command("json")).decode()


def test_a_pipe_has_no_spinner(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("Kafka", quiet_seconds=0.0) as on_status:
        on_status("nothing")
    assert capsys.readouterr() == ("", "")


def test_each_command_that_asks_an_owner_shows_that_it_waits() -> None:
    """Requests are sent by cli/requests.py alone, which shows the spinner."""
    folder = Path(cli.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if path.name == "requests.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in ("headgate.runtime.requests", "headgate.runtime"):
                sent = {each.name for each in node.names} & {"ask", "ask_all", "requests"}
                assert not sent, f"{path.name}: send requests by headgate.cli.requests, which shows that it waits"


SLOW: Final = {
    "read_source": "cli/source.py",
    "kafka_findings": "the brokers",
    "read_target_tables": "two databases",
    "standings": "a schema registry",
    "add_schemas": "a schema registry",
    "create_access_rules": "the brokers",
    "next_heartbeat": "a lease",
    "delete_topics": "the brokers",
    "resolve": "a sink's database",
    "run": "the database of a migration",
    "read_to_end": "the control topics",
}
"""What takes longer than a second where a server is slow or far away, and who answers."""


def test_whatever_waits_for_a_server_shows_a_spinner() -> None:
    folder = Path(cli.__file__).parent
    found, bare = set(), []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        shown = {id(node) for block in ast.walk(tree) if is_shown(block) for node in ast.walk(block)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in SLOW:
                found.add(name)
                bare += [] if id(node) in shown else [f"{path.name}:{node.lineno} {name}"]
            if name == "read_snapshot" and path.name not in ("names.py", "snapshots.py"):
                bare += [] if "headgate.cli.snapshots import" in path.read_text(encoding="utf-8") else [path.name]
    assert bare == []
    assert found == set(SLOW), "what is not called any more is removed from the list"


def is_shown(block: ast.AST) -> bool:
    """Whether it is a ``with waiting(…)``, or with what is made of that."""
    if not isinstance(block, ast.With):
        return False
    calls = [item.context_expr for item in block.items]
    names = {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    return bool(names & {"waiting", "waiting_for_kafka", "reading_topics"})
