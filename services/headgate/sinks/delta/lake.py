"""One folder of Delta tables: each table, its ledger, and the ledger of feeds."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pyarrow as pa

from headgate.sinks.creating import LakeType, quoted_by_spark
from headgate.sinks.delta.engine import Table, as_sink_errors, create, read
from headgate.sinks.lake.ledger import Feeds, Holdings, Ledger
from headgate.sinks.lake.names import LEDGERS, path_of

__all__ = ["DeltaLake"]

_SCHEMA: Final = pa.schema([pa.field("nothing", pa.bool_())])
"""A table has at least one column."""


class _Log:
    """The Delta log that is a ledger."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        return str(self._folder)

    def read(self) -> Table | None:
        return read(self._folder)

    def create(self, properties: dict[str, str]) -> None:
        create(self._folder, _SCHEMA, properties)


class DeltaLake:
    """Paths below one folder, and reading what is there."""

    kind: Final = "Delta"
    renames: Final = False
    """Columns of a file are found by their names, unless the table maps names, which delta-rs does not write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def widens(old: LakeType, new: LakeType) -> bool:  # noqa: ARG004
        """See Lake. Every file is written again, so any type that holds the values will do."""
        return True

    def where(self, table: str) -> str:
        """See Lake."""
        return str(self.path(table))

    def sql_name(self, table: str) -> str:
        """See Lake."""
        return f"delta.{quoted_by_spark(self.where(table))}"

    def path(self, table: str) -> Path:
        """A table's folder. Raises SinkRefusedError."""
        return self.folder / path_of(table)

    def table(self, table: str) -> Table | None:
        """See Lake."""
        return read(self.path(table))

    def create(self, table: str, columns: pa.Schema, properties: dict[str, str], comment: str | None) -> None:
        """See Lake."""
        create(self.path(table), columns, properties, comment)

    def ledger(self, table: str) -> Ledger[Holdings]:
        """See Lake."""
        return Ledger(_Log(self.folder / LEDGERS / "tables" / path_of(table)), Holdings())

    @property
    def feeds(self) -> Ledger[Feeds]:
        """See Lake."""
        return Ledger(_Log(self.folder / LEDGERS / "feeds"), Feeds())

    def as_sink_errors(self, doing: str) -> AbstractContextManager[None]:
        """See Lake."""
        return as_sink_errors(doing)
