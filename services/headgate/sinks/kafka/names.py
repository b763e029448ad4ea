"""Names of target topics: a sink table's name, as a topic."""

import re
from typing import Final

from headgate.records.identifiers import parse_identifier
from headgate.sinks.contract import SinkRefusedError

__all__ = ["topic_of"]

LENGTH_MAX: Final = 249
"""Kafka's limit: a topic's name is a part of a file's name."""

_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")


def topic_of(table: str) -> str:
    """The topic of a sink table: its parts, with points between them. Raises SinkRefusedError."""
    name = ".".join(parse_identifier(table))
    if not _LEGAL.fullmatch(name) or len(name) > LENGTH_MAX or name in (".", ".."):
        raise SinkRefusedError(
            f"{table} is not a valid name of a topic: it may have {LENGTH_MAX} letters, digits, points, hyphens and "
            "underscores. Choose another name in sink.table, or in tables for one table"
        )
    return name
