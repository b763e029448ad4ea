"""Commands whose output or errors do not arrive: a reader that has gone, a full disk, a closed stream."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import pytest

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.changes import Destruction, permitted
from headgate.cli.output import Output
from headgate.cli.standard_output import NOBODY_READS

SECONDS_MAX: Final = 120
"""A hang is the failure; a busy machine needs some seconds to start Python."""

WRITERS: Final = ("version", "version -o json", "version -o yaml", "--version", "--help", "doctor --help")
"""Some print by a library of their own."""


def typed(words: str, output: int | IO[bytes] | None) -> tuple[int, str]:
    """The exit status and what is on standard error. ``output``: None for a stream that is closed."""
    command = [str(Path(sys.executable).with_name("headgate")), *words.split()]
    if output is None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, timeout=SECONDS_MAX)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("words", WRITERS)
def test_a_reader_that_has_gone_ends_the_command_without_a_word(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert typed(words, writer) == (NOBODY_READS, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", WRITERS)
def test_a_full_disk_is_the_error(words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        status, said = typed(words, full)
    assert status == ExitCode.OUTPUT_LOST
    assert said.count("\n") == 1
    assert "standard output cannot be written: No space left on device" in said
    if "-o" in words:
        assert json.loads(said)["error"]["name"] == "output_lost"


@pytest.mark.parametrize("words", ["version", "version -o json"])
def test_a_closed_stream_is_the_error(words: str) -> None:
    status, said = typed(words, None)
    assert status == ExitCode.OUTPUT_LOST
    assert "standard output cannot be written: it is closed" in said


AWAY: Final = "feed show shop --bootstrap 127.0.0.1:1"
"""Would show on a terminal that Kafka is awaited, and ends with an error."""


@pytest.mark.parametrize("errors", ["2>&-", "2>/dev/full", "<&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (AWAY, ExitCode.BROKER_UNREACHABLE),
        (f"{AWAY} -o json", ExitCode.BROKER_UNREACHABLE),
        ("feed lst", ExitCode.USAGE),
        ("version", ExitCode.DONE),
    ],
)
def test_errors_that_do_not_arrive_leave_the_exit_code(words: str, status: ExitCode, errors: str) -> None:
    assert typed_in_bash(words, errors) == (status, "")


def test_a_reader_of_errors_that_has_gone_leaves_the_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(Path(sys.executable).with_name("headgate")), *AWAY.split()]
    try:
        done = subprocess.run(command, stderr=writer, check=False, timeout=SECONDS_MAX)
    finally:
        os.close(writer)
    assert done.returncode == ExitCode.BROKER_UNREACHABLE


def test_no_question_is_asked_where_standard_input_is_closed() -> None:
    status, said = typed_in_bash("cluster delete --bootstrap 127.0.0.1:1", "<&-")
    assert (status, "Traceback" in said) == (ExitCode.BROKER_UNREACHABLE, False), said


def test_who_may_be_asked_is_known_without_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(CommandError, match="no terminal can be asked") as caught:
        permitted(Destruction(), "delete it", Output.TABLE)
    assert caught.value.code is ExitCode.NOT_CONFIRMED


def typed_in_bash(words: str, redirection: str) -> tuple[int, str]:
    """The exit status, and what is on standard error."""
    command = f"'{Path(sys.executable).with_name('headgate')}' {words} {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=SECONDS_MAX)
    return done.returncode, done.stderr.decode()
