"""Names of tables as folders, which they and their ledgers are in."""

import re
from pathlib import Path
from typing import Final

from headgate.records.identifiers import parse_identifier
from headgate.sinks.contract import SinkRefusedError

__all__ = ["LEDGERS", "path_of"]

LEDGERS: Final = "_headgate"
"""Readers that list folders take names that begin with an underscore for hidden."""

PART_LENGTH_MAX: Final = 128
"""A file's name has at most 255 bytes, and others than Headgate may add to it."""

_LEGAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]*")


def path_of(table: str) -> Path:
    """The table's folder, below the sink's: one folder for each part of its name. Raises SinkRefusedError."""
    parts = parse_identifier(table)
    if not all(map(_is_legal, parts)):
        raise SinkRefusedError(
            f"{table} is not a valid name of a table in a lake: each part begins with a letter or digit "
            f"and has up to {PART_LENGTH_MAX} letters, digits, underscores, points, spaces and hyphens. Choose another "
            "name in sink.table"
        )
    return Path(*parts)


def _is_legal(part: str) -> bool:
    return _LEGAL.fullmatch(part) is not None and len(part) <= PART_LENGTH_MAX and not part.endswith((".", " "))
