"""A table as it was read, whose commits are tried once."""

from typing import Final

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata

from headgate.sinks.contract import SinkRefusedError

__all__ = ["ExactTable"]

RETRIES: Final = "commit.retry.num-retries"
_PROVIDER: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL


class ExactTable(Table):
    """A table whose commits are made on ``base``, its metadata as read, and tried once.

    ``is_moved_by_snapshots``: its catalog only compares the newest snapshot, so each commit must have one.

    Raises SinkRefusedError for metadata that names a class for pyiceberg to import and call, however it is read.
    """

    def __init__(self, found: Table, *, is_moved_by_snapshots: bool = False) -> None:
        self.base = found.metadata
        self.is_moved_by_snapshots = is_moved_by_snapshots
        properties = {**found.metadata.properties, RETRIES: "0"}
        once = found.metadata.model_copy(update={"properties": properties})
        super().__init__(found.name(), once, found.metadata_location, found.io, found.catalog)

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata as pyiceberg uses it."""
        return self._metadata

    @metadata.setter
    def metadata(self, found: TableMetadata) -> None:
        if found.properties.get(_PROVIDER):
            raise SinkRefusedError(
                f"table {'.'.join(self._identifier)} has the property {_PROVIDER}, which names Python code to run, and "
                "a table must not choose what code Headgate runs. Remove the property (Spark: ALTER TABLE … UNSET "
                f"TBLPROPERTIES ('{_PROVIDER}'))"
            )
        self._metadata = found
