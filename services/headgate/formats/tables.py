"""The source table of a change, and the check that a topic contains only one table.

Every format names the table in each event (Debezium in ``source``, Canal and Maxwell beside the row). Two tables with
equal columns in one topic could not be told apart by anything behind the decoder: both would be written to one table.

The first name that is met is the topic's, for as long as the feed reads it. Workers come and go, so it is the sink that
remembers it (sinks/contract.py, ``ChangeBatch.source_table``).
"""

from typing import Final

from headgate.formats.change import ChangeError
from headgate.records.identifiers import show_identifier
from headgate.records.source_tables import SourceTable

__all__ = ["UNNAMED", "OneTable", "show_table"]

UNNAMED: Final[SourceTable] = (None, None, None)
"""Of an event of Debezium that does not name its table, because a transform has taken ``source`` out."""


NAME_LENGTH_MAX: Final = 1000
"""Characters of a name's parts together. Databases allow 128 for a part; what is longer is not a name, and not kept."""


def show_table(table: SourceTable) -> str:
    """For people."""
    return show_identifier([str(part) for part in table if part]) or "a table without name"


class OneTable:
    """The table of a topic: ``name``, or the first one that is met while that is None."""

    def __init__(self, advice: str) -> None:
        """``advice``: how the format's writer gives every table a topic of its own."""
        self._advice = advice
        self.name: SourceTable | None = None

    def check(self, table: SourceTable) -> None:
        """Raises ChangeError for a change of another table."""
        if self.name is None:
            _check_name(table)
            self.name = table
        elif table != self.name:
            raise ChangeError(
                f"the topic carries changes of {show_table(self.name)} and of {show_table(table)}: give every table a "
                f"topic of its own ({self._advice}), or name the tables in source.tables. (If it was renamed: "
                "`headgate feed pause`, then `headgate feed resume --from FILE`, behind the old name's events)"
            )


def _check_name(table: SourceTable) -> None:
    """The part of the name in a field that can have any schema. Raises ChangeError."""
    if not all(part is None or isinstance(part, str) for part in table):
        raise ChangeError("the event does not name its table by texts")
    if sum(len(part) for part in table if part) > NAME_LENGTH_MAX:
        raise ChangeError(f"the event's name of its table is longer than {NAME_LENGTH_MAX} characters")
