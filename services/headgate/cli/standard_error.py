"""Standard error that cannot be written: a full disk, a reader that has gone, a closed stream.

What is lost there changes neither what a command does nor its exit code, which programs read.
"""

import io
import os
import sys
from typing import Final

__all__ = ["lossy_errors", "to_nowhere"]

_DESCRIPTOR: Final = 2


class _Stream(io.TextIOWrapper):
    """A text stream whose text goes to /dev/null from the first error on."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            to_nowhere(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            to_nowhere(self.fileno())


def lossy_errors() -> None:
    """Make this process's standard error such a stream, for as long as the process lasts."""
    stream = sys.stderr
    if stream is None:
        # The next file or connection would get the descriptor, and what libraries print to it.
        to_nowhere(_DESCRIPTOR)
        sys.stderr = open(_DESCRIPTOR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    elif stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper):  # else another program's stream
        sys.stderr = _Stream(stream.buffer, stream.encoding, stream.errors, line_buffering=True)


def to_nowhere(descriptor: int) -> None:
    """Let what is written to the descriptor be lost. The interpreter flushes its streams at its end, and would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
