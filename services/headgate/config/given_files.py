"""Files that a user names on the command line. ``-`` is standard input, as for other programs."""

import re
import sys
from pathlib import Path
from typing import Final

__all__ = ["STANDARD_INPUT", "documents_of", "given_bytes", "shown_name"]

STANDARD_INPUT: Final = Path("-")

_BETWEEN_DOCUMENTS: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_COMMENT: Final = "#"


def given_bytes(file: Path) -> bytes:
    """What the file, or standard input, contains. Raises OSError."""
    return sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()


def shown_name(file: Path) -> str:
    """What errors call the file."""
    return "standard input" if file == STANDARD_INPUT else str(file)


def documents_of(text: str) -> list[str]:
    """The YAML documents of a text that contain more than comments. Lines that begin with ``---`` separate them."""
    found = _BETWEEN_DOCUMENTS.split(text)
    return [each for each in found if any(line.strip() and not line.startswith(_COMMENT) for line in each.splitlines())]
