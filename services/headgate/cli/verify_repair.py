"""``headgate verify --repair``: rows that differ are copied from the source, through the fence (docs/adr/0110)."""

from collections.abc import Mapping
from typing import Final

from headgate.cli.changes import Destruction, agreed
from headgate.cli.output import note
from headgate.cli.row_copies import copy_rows
from headgate.eventlog.kafka import KafkaLog
from headgate.records.name_lists import number_of
from headgate.records.row_copies import RowCopy
from headgate.runtime.requests import RequestError
from headgate.verify.comparing import RowDifference

__all__ = ["Repairs"]

REPAIRED_ROWS_MAX: Final = 20_000
"""Of one table, which pauses some seconds for each thousand rows. If more differ, copy the whole table."""

REPAIR_SECONDS: Final = 120.0
"""For one request: the table is sealed, its rows are copied, and it replicates again."""


class Repairs:
    """Rows that differ, by table, as far as they can be named by a key."""

    def __init__(self) -> None:
        self._columns: dict[str, tuple[str, ...]] = {}
        self._keys: dict[str, dict[tuple[str, ...], None]] = {}

    def add(self, table: str, difference: RowDifference) -> None:
        """A row of that table differs."""
        keys = self._keys.setdefault(table, {})
        if len(keys) < REPAIRED_ROWS_MAX:
            self._columns[table] = tuple(difference.key)
            keys[tuple(difference.key.values())] = None

    @property
    def counts(self) -> dict[str, int]:
        """Table → how many of its rows would be copied or deleted."""
        return {table: len(keys) for table, keys in self._keys.items()}

    def __str__(self) -> str:
        rows = ", ".join(f"{number_of(count, 'row')} of {table}" for table, count in self.counts.items())
        return f"overwrite {rows} with those of the source"

    def make(self, log: KafkaLog, feed: str, change: Destruction) -> Mapping[str, int]:
        """Copy the rows, after the user has agreed. Table → how many; a table that failed is reported and left out.

        Nothing in a dry run. Raises CommandError.
        """
        repaired: dict[str, int] = {}
        permit = agreed(change, str(self)) if self._keys else None
        if permit is None:
            return repaired
        for table, keys in self._keys.items():
            rows = RowCopy(keys=tuple(keys), columns=self._columns[table], delete=True)
            try:
                copy_rows(log, feed, table, rows, timeout_seconds=REPAIR_SECONDS, permit=permit)
            except RequestError as error:
                note(f"{table} was not repaired: {error}")
            else:
                repaired[table] = len(keys)
        return repaired
