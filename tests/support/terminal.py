"""A command at a terminal of its own: what it prints there, with what a person types."""

import os
import pty
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from support.waiting import END_SECONDS_MAX

READ_BYTES = 4096
"""Per read; a read may find a part of what was printed, such as the echo of what was typed."""


def at_a_terminal(command: Sequence[str], typed: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
    """All that is printed until the command has ended."""
    printed = bytearray()
    screen, terminal = pty.openpty()
    try:
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
            os.close(terminal)
            os.write(screen, typed)
            # When nobody writes to it any more, reading it is an error on Linux.
            with suppress(OSError):
                while select.select([screen], [], [], END_SECONDS_MAX)[0]:
                    printed += os.read(screen, READ_BYTES)
            process.wait(END_SECONDS_MAX)
    finally:
        os.close(screen)
    return bytes(printed)
