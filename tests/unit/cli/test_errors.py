"""Expected errors end a command with their code and a message; others keep their traceback."""

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from headgate.cli import main
from headgate.cli.errors import Commands
from headgate.cli.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.config.feed import FeedSpecError
from headgate.config.settings import SettingsError
from headgate.embedded.errors import NoJavaError
from headgate.eventlog.connection import BrokerUnreachableError
from headgate.eventlog.log import FencedError, NewerSchemaError
from headgate.eventlog.topics import TopicNotCompactedError
from headgate.observability.http import PortTakenError
from headgate.sinks.contract import SinkConflictError, SinkUnavailableError
from headgate.sources.topics import TableClashError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 10),
        (FeedSpecError("x"), 11),
        (PortTakenError("x"), 12),
        (NoJavaError("x"), 13),
        (BrokerUnreachableError("x"), 20),
        (TopicNotCompactedError("x"), 22),
        (NewerSchemaError("x"), 23),
        (FencedError("x"), 24),
        (SinkConflictError("x"), 30),
        (SinkUnavailableError("x"), 31),
        (TableClashError("x"), 32),
        (CommandError(ExitCode.REQUEST_REFUSED, "x"), 40),
    ],
)
def test_code_of_an_expected_error(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def _command_that_raises(error: Exception) -> typer.Typer:
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.command()
    def one() -> None:
        raise error

    @app.command()
    def other() -> None: ...

    return app


def test_expected_error_is_a_line_not_a_traceback() -> None:
    result = CliRunner().invoke(_command_that_raises(SettingsError("HEADGATE_X: no such setting")), ["one"])
    assert result.exit_code == ExitCode.SETTING
    assert result.stderr == "error: HEADGATE_X: no such setting\n"
    assert result.stdout == ""


def test_a_bug_is_not_hidden() -> None:
    result = CliRunner().invoke(_command_that_raises(ZeroDivisionError("a bug")), ["one"])
    assert isinstance(result.exception, ZeroDivisionError)
    assert result.exit_code == ExitCode.BUG


@pytest.mark.parametrize("option", [["-o", "json"], ["-o", "yaml"], []])
def test_an_error_is_printed_as_results_are(option: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(main.app, ["feed", "create", str(tmp_path / "none.yaml"), *option])
    assert (result.exit_code, result.stdout) == (ExitCode.FEED_SPEC, "")
    if not option:
        assert result.stderr.startswith("error: ")
        return
    error = yaml.safe_load(result.stderr)["error"]
    assert (error["code"], error["name"]) == (11, "feed_spec")
    assert "none.yaml: No such file" in error["message"]
    assert option[1] != "json" or json.loads(result.stderr)["error"] == error
