"""Files that a user names on the command line. ``-`` is standard input, as for other programs."""

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import yaml

__all__ = ["GIVEN_BYTES_MAX", "STANDARD_INPUT", "documents_of", "given_bytes", "shown_name"]

STANDARD_INPUT: Final = Path("-")

GIVEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than the feeds of any cluster, and little enough for memory: standard input may never end."""


def given_bytes(file: Path) -> bytes:
    """What the file, or standard input, contains. Raises OSError, also for more than GIVEN_BYTES_MAX."""
    if file != STANDARD_INPUT:
        with file.open("rb") as opened:
            found = opened.read(GIVEN_BYTES_MAX + 1)
    elif sys.stdin is None:  # closed by `<&-`
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    else:
        found = sys.stdin.buffer.read(GIVEN_BYTES_MAX + 1)
    if len(found) > GIVEN_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {GIVEN_BYTES_MAX // 1024 // 1024} MiB")
    return found


def shown_name(file: Path) -> str:
    """What errors call the file."""
    return "standard input" if file == STANDARD_INPUT else str(file)


def documents_of(text: str) -> list[str]:
    """The YAML documents of a text that are not empty, each with its directives. Raises yaml.YAMLError."""
    return [text[start:end] for start, end, is_empty in _documents(text) if not is_empty]


class _Mark(Protocol):
    @property
    def index(self) -> int: ...


def _documents(text: str) -> Iterator[tuple[int, int, bool]]:
    """Where each document begins and ends, and whether it has no value."""
    start, is_empty = 0, True
    for event in yaml.parse(text):
        if isinstance(event, yaml.DocumentStartEvent):
            start, is_empty = _index(event.start_mark), True
        elif isinstance(event, yaml.DocumentEndEvent):
            yield start, _index(event.end_mark), is_empty
        elif not isinstance(event, yaml.ScalarEvent) or event.value or event.style:
            is_empty = False


def _index(mark: _Mark | None) -> int:
    assert mark is not None  # noqa: S101 - the parser gives every event its marks
    return mark.index
