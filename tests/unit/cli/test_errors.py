"""Expected errors end a command with their code and a message; others keep their traceback."""

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.cli import main
from headgate.cli.lookup import find_feed
from headgate.cli.main import Commands
from headgate.config.feed import FeedSpecError
from headgate.config.settings import SettingsError
from headgate.eventlog.connection import BrokerUnreachableError
from headgate.eventlog.log import FencedError, NewerSchemaError
from headgate.eventlog.sharding import place
from headgate.eventlog.snapshot import read_snapshot
from headgate.eventlog.topics import TopicNotCompactedError
from headgate.observability.probes import PortTakenError
from headgate.provisioning.errors import NoJavaError
from headgate.records.base import Fact
from headgate.records.keys import FeedKey
from headgate.sinks.contract import SinkConflictError, SinkUnavailableError
from headgate.sources.topics import TableClashError
from headgate_lab.memory_log.log import MemoryBroker
from support import build


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
    result = CliRunner().invoke(_command_that_raises(SettingsError("HEADGATE_X: this setting does not exist")), ["one"])
    assert result.exit_code == ExitCode.SETTING
    assert result.stderr == "error: HEADGATE_X: this setting does not exist\n"
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


def _run_main(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """As a shell runs it: exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as ended:
        main.app(list(arguments))
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["feed", "lst"], "command 'lst' is unknown; did you mean 'list'? Choose from init, create"),
        (["topic", "lst"], "command 'lst' is unknown; did you mean 'list'? Choose from "),
        (["feed", "list", "--bogus"], "No such option: --bogus"),
        (["feed", "show"], "Missing argument 'FEED'."),
        (["sim", "--seeds", "x"], "'x' is not allowed: write a whole number"),
        (["sim", "--seeds", "0"], "'0' is not allowed: it must be at least 1"),
        (["chaos", "--sink", "postgresq"], "'postgresq' is unknown; did you mean 'postgresql'? Choose from"),
        (["feed", "resume", "shop", "--from", "yesterday"], "'yesterday' is not earliest or latest"),
    ],
)
@pytest.mark.parametrize("asked", [["-o", "json"], ["-ojson"], ["--output", "yaml"], ["--output=yaml"]])
def test_an_error_of_usage_is_printed_as_results_are(
    arguments: list[str], says: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _run_main(capsys, *arguments, *asked)
    error = yaml.safe_load(err)["error"]
    assert (code, out, error["code"], error["name"]) == (2, "", 2, "usage")
    assert says in error["message"]


def test_an_error_of_usage_on_a_terminal_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ([], ["-o", "table"], ["-o", "json", "-o", "table"], ["--", "-o", "json"]):
        code, _, err = _run_main(capsys, "feed", "shw", *asked)
        assert (code, "Usage: " in err, '{"error"' in err) == (2, True, False)


@pytest.mark.parametrize("command", [["feed", "list"], ["why", "shop"], ["demo"], ["sim"]])
def test_a_wrong_way_of_printing_is_told_with_the_right_ones(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _run_main(capsys, *command, "-o", "jsno")
    words = " ".join(err.replace("│", " ").split())
    assert code == 2
    assert "'jsno' is unknown; did you mean 'json'? Choose from table, json" in words
    assert "Value error" not in words


def test_an_interrupt_is_no_result(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headgate.cli.version.show_object", interrupted)
    assert _run_main(capsys, "version", "-o", "json")[0] == _run_main(capsys, "version")[0] == 130


@pytest.mark.parametrize("given", ["yesterday", "tomorow", "1 hour ago"])
def test_a_time_that_is_none_says_what_can_be_written(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = _run_main(capsys, "feed", "resume", "shop", "--from", given, "-o", "json")
    message = json.loads(err)["error"]["message"]
    assert message.startswith(f"Invalid value for --from: '{given}' is not earliest or latest, and not a file")
    assert "RFC 3339 with a zone, like 2026-11-21T17:00:00Z" in message
    assert "[Errno" not in message


def test_a_control_topic_and_a_feed_that_do_not_exist_are_told_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = _run_main(capsys, "topic", "show", "dispach", "-o", "json")
    assert code == json.loads(err)["error"]["code"] == ExitCode.NOT_FOUND
    assert "control topic 'dispach' is unknown; did you mean 'dispatch'? Choose from" in err
    record = build.feed_recorded(feed_id="0-7")
    broker = MemoryBroker(shards=1)
    broker.client().writer("test").write([place(Fact(FeedKey("orders"), record), 0)], 1)
    with pytest.raises(CommandError, match=r"feed 'order' does not exist\. Did you mean 'orders'"):
        find_feed(read_snapshot(broker.client()), "order")
