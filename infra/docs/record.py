"""Record what a command shows on a terminal, as docs/pictures/NAME.ansi.

``make record NAME=why COMMAND='headgate why shop'`` runs it. What was erased or overwritten, such as a spinner, is not
in a recording. ``headgate_lab.pages.pictures`` draws recordings.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

import pyte  # type: ignore[import-not-found,unused-ignore]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"

COLUMNS: Final = 100
LINES: Final = 200
"""More than any command writes that is worth a picture: nothing scrolls away."""

END_SECONDS_MAX: Final = 10.0
"""Its terminal is closed by then, so the command is ending."""

COLOURS: Final = {
    name: str(30 + at) for at, name in enumerate(("black", "red", "green", "brown", "blue", "magenta", "cyan", "white"))
}
"""pyte's names of colours, and the codes of ECMA-48."""


def shown(command: str) -> pyte.Screen:
    """What is on the screen once the command has ended."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(command, shell=True, stdin=theirs, stdout=theirs, stderr=theirs)  # noqa: S602 ours
    os.close(theirs)
    while True:
        try:
            read = os.read(ours, 65_536)
        except OSError:  # the last writer has closed its end
            break
        if not read:
            break
        stream.feed(read)
    os.close(ours)
    process.wait(END_SECONDS_MAX)
    return screen


def line(screen: pyte.Screen, at: int) -> str:
    """One line with the codes of its colours."""
    written, before = "", ""
    for column in range(COLUMNS):
        cell = screen.buffer[at][column]
        codes = [*(["1"] if cell.bold else []), *(["3"] if cell.italics else [])]
        codes += [COLOURS[cell.fg]] if cell.fg in COLOURS else []
        now = ";".join(codes)
        if now != before:
            written += "\033[0m" + (f"\033[{now}m" if now else "")
            before = now
        written += cell.data
    return written.rstrip() + ("\033[0m" if before else "")


def main(name: str, command: str) -> None:
    """Run the command, write its recording."""
    screen = shown(command)
    lines = [line(screen, at) for at in range(LINES)]
    while lines and not lines[-1].removesuffix("\033[0m").strip():
        lines.pop()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.ansi").write_text("\n".join((command, *lines)) + "\n", encoding="utf-8")


main(*sys.argv[1:])
