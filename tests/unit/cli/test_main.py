"""The command as a whole."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate import SCHEMA_VERSION, __version__
from headgate.app.exit_codes import ExitCode
from headgate.cli import groups
from headgate.cli.feed import FeedGroup
from headgate.cli.main import INTERRUPTED, LAB_COMMANDS, OWN_COMMANDS, app
from headgate.provisioning.installing import LAB
from support.commands import commands


def test_help_names_every_group_and_command() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    names = "demo up bench serve feed table agent coordinator topic verify why version"
    for name in names.split():
        assert f" {name} " in text


def test_help_lists_commands_in_the_order_in_which_they_are_met() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    listed = re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
    met = ["doctor", "source", "topic", "serve", "feed", "why", "migration", "generation", *LAB_COMMANDS]
    assert [name for name in listed if name in met] == met
    assert listed[-len(LAB_COMMANDS) :] == list(LAB_COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["feed"],
        ["feed", "create"],
        ["generation", "timestamps", "gc"],
        ["verify"],
        *([name] for name in LAB_COMMANDS),
        ["bench", "latency"],
    ],
)
def test_an_option_without_a_value_shows_no_type(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "-h"]).stdout
    assert "--help" in text
    assert "<bool>" not in text
    assert ("--install-completion" in text) == (not command), "at the top only"


def test_an_option_that_may_be_repeated_shows_what_its_value_is() -> None:
    found = [
        f"{name}: {param.opts[0]}"
        for name, command in commands()
        for param in command.params
        if param.param_type_name == "option"
        and "list[" in (param.display_type_rich(ctx=command.context_class(command)) or "")
    ]
    assert found == []


def _typed(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who types this: the installed script, in a process of its own."""
    script = str(Path(sys.executable).with_name("headgate"))
    return subprocess.run(
        [script, *words.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_no_arguments_show_the_help() -> None:
    done = _typed("")
    assert "Usage: headgate" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "at", "offered"),
    [
        ("headgate fe", 1, {"feed"}),
        ("headgate feed pa", 2, {"pause"}),
        ("headgate", 1, {"feed", "serve", "why", "version"}),
        ("headgate feed list --out", 3, {"--output"}),
        ("headgate fead li", 2, set()),
    ],
)
def test_the_tab_key_completes(words: str, at: int, offered: set[str]) -> None:
    done = _typed("", COMP_WORDS=words, COMP_CWORD=str(at), _HEADGATE_COMPLETE="complete_bash")
    assert (done.returncode, done.stderr) == (0, "")
    found = set(done.stdout.split())
    assert offered <= found
    assert offered or not found, "a typo completes to nothing"


def test_late_commands_answer() -> None:
    for command in (["demo", "--help"], ["up", "--help"], ["bench", "pipeline", "--help"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert "Usage:" in result.stdout


def test_what_does_not_exist_is_said_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["fed", "list"])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "command 'fed' is unknown; did you mean 'feed'?" in said
    assert "bench" in said, "the lab's are known as well"


def test_looking_does_not_bring_spark_along() -> None:
    heavy = {"pyspark", "numpy", "aiohttp"}
    code = f"""
import sys
from pkgutil import resolve_name
from headgate.cli.main import OWN_COMMANDS
for command in OWN_COMMANDS.values():
    resolve_name(command.place)
print([name for name in {sorted(heavy)} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


HEAVY = (
    "pyspark",
    "pandas",
    "numpy",
    "pyarrow",
    "aiohttp",
    "pgparse",
    "faust",
    "aiokafka",
    "prometheus_client",
    "psutil",
)
"""What services and the lab need, and no command that only shows something."""

DATABASES = ("psycopg", "pymysql")

CLUSTER = ("confluent_kafka", "fastavro")
"""What a command needs that connects to a cluster."""

FILES = ("pydantic", "yaml", "headgate.config.feed")
"""What a command needs that reads a feed, or converts a value that was typed."""

PEOPLE = ("rich",)
"""What shows tables, help and colours. Errors into a pipe are plain text."""

PLUGS = ("importlib.metadata",)
"""What finds other packages' commands and plugs."""

OWNERS = (
    "headgate.agent",
    "headgate.capture",
    "headgate.coordinator",
    "headgate.databases",
    "headgate.formats",
    "headgate.generation",
    "headgate.migration",
    "headgate.replication",
    "headgate.sinks",
    "headgate.sources",
)
"""Parts of services."""

READERS = (*HEAVY, *DATABASES, *FILES, *PEOPLE, *PLUGS, *OWNERS)
"""What no command needs to find out that it cannot read the log, and no list for programs needs at all."""


@pytest.mark.parametrize(
    ("words", "environment", "unneeded"),
    [
        ((), {}, (*HEAVY, *DATABASES, *CLUSTER, *FILES, *OWNERS)),
        (("--help",), {}, (*HEAVY, *DATABASES, *CLUSTER, *FILES, *OWNERS)),
        (("--version",), {}, (*READERS, *CLUSTER)),
        ((), {"COMP_WORDS": "headgate fe", "COMP_CWORD": "1"}, (*HEAVY, *DATABASES, *CLUSTER, *FILES, *OWNERS)),
        (("feed", "--help"), {}, (*HEAVY, *DATABASES, *CLUSTER, *FILES, *OWNERS)),
        (("feed", "pause", "--help"), {}, (*HEAVY, *DATABASES, *OWNERS)),
        ((), {"COMP_WORDS": "headgate feed pa", "COMP_CWORD": "2"}, (*HEAVY, *DATABASES, *CLUSTER, *OWNERS)),
        (("version",), {}, (*HEAVY, *DATABASES, *PLUGS, *OWNERS)),
        (("feed", "list", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("feed", "list", "-o", "json", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("feed", "show", "shop", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("why", "shop", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("table", "list", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("agent", "list", "--bootstrap", "127.0.0.1:1"), {}, READERS),
        (("migration", "list", "--bootstrap", "127.0.0.1:1"), {}, (*HEAVY, *DATABASES, *FILES, *PEOPLE, *PLUGS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and len(value) < 5 else None,
)
def test_a_command_imports_only_what_it_needs(
    words: tuple[str, ...], environment: dict[str, str], unneeded: tuple[str, ...]
) -> None:
    code = f"""
import sys
sys.argv = ["headgate", *{words!r}]
from headgate.cli.main import app
try:
    app()
finally:
    sys.stderr.write(f"imported: {{[name for name in {unneeded!r} if name in sys.modules]}}")
"""
    variables = environment and {**environment, "_HEADGATE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **variables},
    )
    assert "imported: []" in done.stderr, done.stderr


def test_the_list_says_of_each_command_what_it_says_itself() -> None:
    for name, late in OWN_COMMANDS.items():
        command = groups._imported(name, late)
        assert command.get_short_help_str(1_000) == late.help
    for name, late in FeedGroup.late.items():
        assert groups._imported(name, late).get_short_help_str(1_000) == late.help


def test_a_help_breaks_its_lines_where_the_terminal_does() -> None:
    for words in (["feed", "apply"], ["migration", "submit"], ["generation", "timestamps", "create"]):
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--help"]).stdout.partition("╭")[0]
        for part in re.sub(" +\n", "\n", shown).split("\n\n"):
            for line, following in pairwise(part.strip("\n").splitlines()):
                assert len(line) + len(following.split()[0]) + 1 >= 79, f"{words}: {line!r} could be longer"


def test_version_as_json() -> None:
    result = CliRunner().invoke(app, ["version", "-o", "json"])
    assert json.loads(result.stdout) == {"version": __version__, "schema_version": SCHEMA_VERSION}


def test_a_missing_package_ends_the_commands_that_need_it_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an update of a clone whose environment was not made again."""

    def resolve(place: str) -> Any:
        if place.startswith("headgate.cli.migration"):
            raise ModuleNotFoundError("No module named 'pgparse'", name="pgparse")
        return resolve_name(place)

    monkeypatch.setattr(groups, "resolve_name", resolve)
    groups._imported.cache_clear()
    try:
        shown = CliRunner().invoke(app, [])
        assert (shown.exit_code, " migration " in shown.output) == (2, True)
        result = CliRunner().invoke(app, ["migration", "list", "--watch", "1"])
        assert result.exit_code == ExitCode.SETTING
        assert "the Python package pgparse is not installed. Install Headgate again" in result.stderr
    finally:
        groups._imported.cache_clear()


def test_a_command_of_the_lab_says_how_to_get_it_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli.main._of_others", metadata.EntryPoints)
    result = CliRunner().invoke(app, ["bench", "peers", "--rounds", "3"])
    assert result.exit_code == 2
    assert LAB in result.stderr
    assert " bench " in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_ctrl_c_within_a_librarys_c_code_is_ctrl_c(monkeypatch: pytest.MonkeyPatch, form: list[str]) -> None:
    def interrupted(_cluster: object) -> None:
        # As Python does for a signal that arrives while librdkafka closes a client.
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("headgate.cli.feed_list.connected", interrupted)
    done = CliRunner().invoke(app, ["feed", "list", *form])
    assert (done.exit_code, done.stdout) == (INTERRUPTED, "")


@pytest.mark.parametrize("words", ["topic create", "topic create --dry-run", "topic create --shards 4", "feed list"])
def test_a_command_does_not_wait_for_a_broker_that_refuses_connections(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def unreached(*_: object) -> None:
        raise AssertionError("librdkafka waits for the broker")

    monkeypatch.setattr("headgate.app.cluster.KafkaConnection", unreached)
    done = CliRunner().invoke(app, [*words.split(), "--bootstrap", "127.0.0.1:1"])
    assert (done.exit_code, "127.0.0.1:1 refuses the connection" in done.stderr) == (ExitCode.BROKER_UNREACHABLE, True)
