"""Which table of the source a change is of, and a topic that is to carry one table only.

Every format names the table in each event (Debezium in ``source``, Canal and Maxwell beside the row). Two tables with
equal columns in one topic could not be told apart by anything behind the decoder: both would be written to one table.
"""

from typing import Final

from headgate.changes.change import ChangeError
from headgate.records.identifiers import show_identifier

__all__ = ["UNNAMED", "OneTable", "SourceTable", "show_table"]

SourceTable = tuple[str | None, ...]
"""The parts of a table's name, the largest first, as the format has them: (database, schema, table), or without schema.
What the event does not say is None."""

UNNAMED: Final[SourceTable] = (None, None, None)
"""Of an event of Debezium that does not say it, because a transform has taken ``source`` out."""


def show_table(table: SourceTable) -> str:
    """For people."""
    return show_identifier([str(part) for part in table if part]) or "a table without name"


class OneTable:
    """The table of a topic: the first one that is met."""

    def __init__(self, advice: str) -> None:
        """``advice``: how the format's writer gives every table a topic of its own."""
        self._advice = advice
        self.name: SourceTable | None = None

    def check(self, table: SourceTable) -> None:
        """Raises ChangeError for a change of another table."""
        if self.name is None:
            self.name = table
        elif table != self.name:
            raise ChangeError(
                f"the topic carries changes of {show_table(self.name)} and of {show_table(table)}: give every table a "
                f"topic of its own ({self._advice}), or name the tables in source.tables"
            )
