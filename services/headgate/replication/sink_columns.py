"""The columns of one table at a feed's sink, for a list of columns that is compared with them row by row."""

import time
from collections.abc import Callable, Collection
from typing import Final

from headgate.formats.change import DATA_ERRORS
from headgate.sinks.contract import SinkUnavailableError

__all__ = ["SinkColumns"]

COLUMNS_SECONDS: Final = 10.0
"""How long columns are taken for those of the sink. Each worker process asks for each of its tables. The source should
not rename a column sooner after it was added at the sink: rows are accepted for so long without it."""


class SinkColumns:
    """Of one table. Not for more than one thread."""

    def __init__(
        self, table: str, read: Callable[[], Collection[str] | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``read`` raises SinkError."""
        self._table, self._read, self._clock = table, read, clock
        self._found: frozenset[str] | None = None
        self._read_at: float | None = None

    def __call__(self) -> frozenset[str] | None:
        """See AtSink. Raises SinkError, never one of DATA_ERRORS: the row that is compared is not at fault."""
        now = self._clock()
        if self._read_at is None or now - self._read_at >= COLUMNS_SECONDS:
            try:
                columns = self._read()
            except DATA_ERRORS as error:
                raise SinkUnavailableError(
                    f"the columns of table {self._table} cannot be read at the sink: {type(error).__name__}: {error}"
                ) from error
            self._found = None if columns is None else frozenset(name.casefold() for name in columns)
            self._read_at = now
        return self._found
