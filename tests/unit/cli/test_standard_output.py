"""Commands whose output does not arrive: a reader that has gone, a full disk, a closed stream."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import pytest

from headgate.app.exit_codes import ExitCode
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
