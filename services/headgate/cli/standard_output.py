"""Standard output that cannot be written: a reader that has gone (``| head``), a full disk, a closed stream.

Libraries that print take an error of the stream for their own: one ends the process with status 1, which stands for a
bug. So what the stream raises is an error of this module, which they do not know.
"""

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from headgate.app.command_error import ExitCode
from headgate.cli.output import complain
from headgate.cli.standard_error import to_nowhere

_DESCRIPTOR: Final = 1

NOBODY_READS: Final = 141
"""The exit status of a command whose reader has gone, as in shells: 128 and the number of SIGPIPE."""


class OutputLostError(Exception):
    """What a command printed did not arrive. ``reason``: the system's words; None if its reader has gone."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or "nothing reads the output any more")
        self.reason = reason


class _Stream(io.TextIOWrapper):
    """A text stream whose errors are OutputLostError."""

    def write(self, text: str) -> int:
        with _as_lost():
            return super().write(text)

    def flush(self) -> None:
        with _as_lost():
            super().flush()


@contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = None if error.errno == errno.EPIPE else error.strerror or str(error)
        raise OutputLostError(reason) from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Print to standard output for as long as the block lasts; where that fails, end the process with its status."""
    stream = sys.stdout
    if stream is None:
        _end(OutputLostError("it is closed"))
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        yield  # another program's stream, in which this command runs
        return
    sys.stdout = checked = _Stream(stream.buffer, stream.encoding, stream.errors, write_through=True)
    try:
        try:
            yield
        finally:
            checked.flush()
    except OutputLostError as error:
        _end(error)


def _end(error: OutputLostError) -> NoReturn:
    to_nowhere(_DESCRIPTOR)
    if error.reason is None:
        sys.exit(NOBODY_READS)
    message = (
        f"standard output cannot be written: {error.reason}. What the command does may be done; see it with its "
        "group's `list` or `show` command"
    )
    complain(message, int(ExitCode.OUTPUT_LOST), ExitCode.OUTPUT_LOST.name.lower())
    sys.exit(int(ExitCode.OUTPUT_LOST))
