"""The rows at a sink, for what copies rows to it: a database's own, or those of a sink that is not one."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol, runtime_checkable

from headgate.config.sink_spec import SinkSpec
from headgate.databases.key_ranges import Chunk
from headgate.databases.kinds import KINDS
from headgate.databases.row_source import RowSourceError, Value
from headgate.databases.row_sources import open_row_source
from headgate.sinks.contract import SinkError
from headgate.sinks.registry import open_sink, target_of

__all__ = ["RowReadingSink", "TargetRows", "open_target_rows"]


class TargetRows(Protocol):
    """The tables at a sink, as far as a copy must know them. Methods raise RowSourceError."""

    def columns(self, table: str) -> dict[str, str]:
        """Column → bare type. Of a lake: one of LAKE_TYPES (sinks/creating.py)."""
        ...

    def equality(self, table: str, key: Sequence[str]) -> tuple[str | None, ...]:
        """See RowSource."""
        ...

    def has_rows(self, table: str) -> bool:
        """See RowSource."""
        ...

    def rows_within(
        self, table: str, columns: Sequence[str], key: Sequence[str], chunk: Chunk
    ) -> Iterator[tuple[Value, ...]]:
        """See RowReader. In any order."""
        ...


@runtime_checkable
class RowReadingSink(Protocol):
    """A sink that is not a database, and whose rows can be read."""

    def rows(self) -> TargetRows:
        """Its tables. Their methods raise SinkError as well."""
        ...


@contextmanager
def open_target_rows(spec: SinkSpec) -> Iterator[TargetRows]:
    """The sink's tables, for as long as the block lasts. Raises DatabaseError, RowSourceError."""
    if spec.type in KINDS:
        with open_row_source(target_of(spec)) as rows:
            yield rows
        return
    try:
        with closing(open_sink(spec)) as sink:
            if not isinstance(sink, RowReadingSink):
                raise RowSourceError(f"rows cannot be copied to sinks of type {spec.type}")
            yield sink.rows()
    except SinkError as error:
        raise RowSourceError(str(error)) from error
