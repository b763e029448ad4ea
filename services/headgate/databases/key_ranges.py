"""Ranges of a table's key: how a large table is read in pieces, each a short statement that an index serves."""

from typing import Any

import msgspec

__all__ = ["Chunk"]


class Chunk(msgspec.Struct, frozen=True):
    """Rows with ``above`` < key <= ``upto``, by the server's own order; None is unbounded."""

    above: tuple[Any, ...] | None
    upto: tuple[Any, ...] | None
