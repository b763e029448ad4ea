"""The source table of a change, and how far a table is applied in the source's commit order."""

import msgspec

__all__ = ["SourceTable", "Tail"]

SourceTable = tuple[str | None, ...]
"""The parts of a table's name as the format has them, the largest first: (database, schema, table), or without schema.
A part that the event does not name is None."""


class Tail(msgspec.Struct, frozen=True):
    """Applied up to change number ``order`` of its table in ``transaction`` (0: all before that transaction)."""

    transaction: str
    order: int
