"""A command that waits shows what for, at a terminal only."""

import ast
import sys
from pathlib import Path

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
