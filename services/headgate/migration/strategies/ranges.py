"""Reading and writing a range of a table, whatever its server is: what tasks of the copying query call."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headgate.migration.strategies.contract import Chunk
from headgate.migration.strategies.mariadb import ranges as mariadb_ranges
from headgate.migration.strategies.online.range_work import RangeWork
from headgate.migration.strategies.postgresql import ranges as postgresql_ranges


def read_range(work: RangeWork, chunk: Chunk) -> Iterator[bytes]:
    """The range's rows, a line each. Raises DatabaseUnavailableError, RefusedError, LockUnavailableError."""
    return iter(_at(work).read_range(work, chunk))


def write_range(work: RangeWork, chunk: Chunk, lines: Iterable[Sequence[bytes]]) -> int:
    """Write the range's rows, some lines at a time, all or none; how many there were.

    Raises what ``read_range`` does, and SupersededError.
    """
    return int(_at(work).write_range(work, chunk, lines))


def _at(work: RangeWork) -> Any:
    return mariadb_ranges if work.database.startswith(("mysql://", "mariadb://")) else postgresql_ranges
