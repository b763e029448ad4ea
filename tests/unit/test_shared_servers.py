"""Tests run beside each other at servers that take their time.

Who asks what the sessions of a database server do says of which database: one that did not took another test's lock
for its own, once in some hundred runs. And whoever changes something at a broker waits until the broker goes by it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from support.pages import ROOT

ASKS = re.compile(r"pg_stat_activity|pg_locks|processlist", re.IGNORECASE)

NARROWED = re.compile(
    r"datname = (current_database\(\)|current_catalog|%s)|db = DATABASE\(\)|WHERE id = %s|Binlog Dump|SHOW PROCESSLIST",
    re.IGNORECASE,
)
"""To a database or a session. Who reads the binary log belongs to no database, and SHOW PROCESSLIST is how a user who
has no rights looks for others."""


def texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_who_asks_what_sessions_do_says_of_which_database() -> None:
    asking = {
        (path.relative_to(ROOT).as_posix(), text)
        for folder in ("integration", "support", "fixtures")
        for path in (ROOT / "tests" / folder).rglob("*.py")
        for text in texts(path)
        if ASKS.search(text)
    }
    assert len(asking) > 5, "nothing is found any more"
    assert [(path, text) for path, text in sorted(asking) if not NARROWED.search(text)] == []


KILLS_ITS_BROKER = {
    "integration/cli/test_broker_gone.py::broker",
    "integration/embedded/test_servers.py::test_the_broker_keeps_its_records_over_stop_and_kill",
}
"""Who makes a broker with sessions of 1.5 s, after which one that was killed is let back in."""


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node


def brokers(function: ast.FunctionDef) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "EmbeddedKafka":
            yield node


def test_a_broker_that_is_never_killed_may_miss_heartbeats() -> None:
    """On busy cores one was late by its 1.5 s: no partition had a leader, and no topic could be created."""
    made = {
        f"{path.relative_to(folder).as_posix()}::{function.name}": list(brokers(function))
        for folder in (ROOT / "tests", ROOT / "services")
        for path in folder.rglob("*.py")
        if "EmbeddedKafka(" in path.read_text(encoding="utf-8")
        for function in functions(path)
    }
    assert sum(map(len, made.values())) > 15, "nothing is found any more"
    hasty = {
        place
        for place, calls_of in made.items()
        if any("settings" not in {keyword.arg for keyword in call.keywords} for call in calls_of)
    }
    assert hasty == KILLS_ITS_BROKER


CHANGES = {
    **dict.fromkeys(
        ("incremental_alter_configs", "create_partitions", "create_topics", "delete_topics"), "support/topic_changes.py"
    ),
    **dict.fromkeys(("create_acls", "delete_acls"), "support/access.py"),
}
"""Calls that a broker answers before it goes by them → the one place that makes them and waits."""


@cache
def calls() -> Mapping[str, set[str]]:
    """Path → the methods that it calls."""
    return {
        path.relative_to(ROOT / "tests").as_posix(): {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        for path in (ROOT / "tests").rglob("*.py")
    }


@pytest.mark.parametrize(("call", "place"), CHANGES.items())
def test_who_changes_something_at_a_broker_waits_until_it_is_so(call: str, place: str) -> None:
    assert [path for path, methods in calls().items() if call in methods] == [place]


def test_whether_a_process_has_ended_is_asked_in_one_step() -> None:
    """``is_running()`` and then ``status()`` raised NoSuchProcess for one that was collected in between."""
    asking = [path for path in (ROOT / "tests").rglob("*.py") if "STATUS_ZOMBIE" in path.read_text(encoding="utf-8")]
    assert [path.name for path in asking if path != Path(__file__)] == ["test_demo.py"], "use support.ended"


def test_services_are_started_in_one_place() -> None:
    """It keeps their logs, says what a service that has ended has said, and kills what is left."""
    served = re.compile(r'"headgate",\s*"serve"')
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if served.search(path.read_text(encoding="utf-8"))]
    assert [name for name in found if name != Path(__file__).name] == [], "use support.served_process"
