"""The Delta tables of one place: each table, its ledger, and the ledger of feeds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from headgate.config.partitioning import PartitionField
from headgate.sinks.creating import LakeType, quoted_by_spark
from headgate.sinks.delta.engine import OWN_NAMES, PARTITION_RULES, DeltaLakeTable, as_sink_errors, create, read
from headgate.sinks.lake.files import Files
from headgate.sinks.lake.ledger import Feeds, Holdings, Ledger
from headgate.sinks.lake.names import LEDGERS, path_of
from headgate.sinks.lake.panics import panics_as_sink_errors

__all__ = ["DeltaLake"]

_SCHEMA: Final = pa.schema([pa.field("nothing", pa.bool_())])
"""A table has at least one column."""


class _Log:
    """The Delta log that is a ledger."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    @property
    def place(self) -> str:
        return self._files.where(self._path)

    def read(self) -> DeltaLakeTable | None:
        return read(self._files, self._path, is_small=True)

    def create(self, properties: dict[str, str]) -> str:
        return create(self._files, self._path, _SCHEMA, properties)


class DeltaLake:
    """Paths below one place, and reading what is there."""

    kind: Final = "Delta"
    partition_rules: Final = PARTITION_RULES
    renames: Final = False
    """Columns of a file are found by their names, unless the table maps names, which delta-rs does not write."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @staticmethod
    def name_problem(name: str) -> str | None:
        """See Lake."""
        if name.startswith(OWN_NAMES):
            return (
                f"the name {name!r} begins with {OWN_NAMES}, as those that delta-rs adds to rows while it merges them"
            )
        return None

    @staticmethod
    def widens(old: LakeType, new: LakeType) -> bool:  # noqa: ARG004
        """See Lake. Every file is written again, so any type that holds the values will do."""
        return True

    def where(self, table: str) -> str:
        """See Lake."""
        return self._files.where(path_of(table))

    def sql_name(self, table: str) -> str:
        """See Lake."""
        return f"delta.{quoted_by_spark(self.where(table))}"

    def table(self, table: str) -> DeltaLakeTable | None:
        """See Lake."""
        return read(self._files, path_of(table))

    def create(
        self,
        table: str,
        columns: pa.Schema,
        properties: dict[str, str],
        comment: str | None,
        partitions: Sequence[PartitionField] = (),
    ) -> None:
        """See Lake."""
        create(self._files, path_of(table), columns, properties, comment, partitions=partitions)

    def check_place(self, *, again: bool) -> None:
        """See Lake."""
        self._files.check(again=again)

    def ledger(self, table: str) -> Ledger[Holdings]:
        """See Lake."""
        return Ledger(_Log(self._files, Path(LEDGERS, "tables") / path_of(table)), Holdings())

    @property
    def feeds(self) -> Ledger[Feeds]:
        """See Lake."""
        return Ledger(_Log(self._files, Path(LEDGERS, "feeds")), Feeds())

    @contextmanager
    def as_sink_errors(self, doing: str) -> Iterator[None]:
        """See Lake."""
        with panics_as_sink_errors(doing), as_sink_errors(self._files, doing):
            yield

    def close(self) -> None:
        """See Lake. Its library's connections end with its tables."""
