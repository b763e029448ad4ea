"""A SQL catalog whose commits are made on exactly the metadata that was read.

pyiceberg's own requirement, that the table's newest snapshot is the one that was read, does not see a change of
properties, nor a snapshot that was left and came back. Here a commit is refused unless nothing at all has changed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, ValidatableTableRequirement
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headgate.databases.address import Target
from headgate.databases.iceberg.address import Place
from headgate.databases.postgresql.errors import PostgresError
from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError
from headgate.sinks.iceberg.catalog_database import CatalogDatabase, open_database
from headgate.sinks.iceberg.files import ListedFiles
from headgate.sinks.relational.postgresql.faults import sink_error

__all__ = ["ExactCatalog", "ExactTable", "as_sink_errors", "open_catalog"]

ERROR_LENGTH_MAX: Final = 500
"""An error of SQLAlchemy contains the statement."""

RETRIES: Final = "commit.retry.num-retries"
_NO_RIGHT: Final = ("Permission denied", "readonly database", "Read-only file system")


class _Unchanged(ValidatableTableRequirement):
    """That the table's metadata is what was read. The catalog checks it on the version that it replaces."""

    type: str = "headgate-unchanged"
    base: TableMetadata

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as in its base class
        """Raise CommitFailedException otherwise."""
        if base_metadata != self.base:
            raise CommitFailedException("Requirement failed: the table was changed by another commit")


class ExactTable(Table):
    """A table whose commits are made on ``base``, its metadata as read, and tried once."""

    def __init__(self, found: Table) -> None:
        self.base = found.metadata
        properties = {**found.metadata.properties, RETRIES: "0"}
        once = found.metadata.model_copy(update={"properties": properties})
        super().__init__(found.name(), once, found.metadata_location, found.io, found.catalog)


class ExactCatalog(SqlCatalog):
    """See the module."""

    def __init__(self, place: Place, database: CatalogDatabase) -> None:
        MetastoreCatalog.__init__(self, place.catalog, warehouse=f"file://{place.warehouse}")
        self.engine = database.engine
        self._schema_version = database.version
        self.database_name = database.name

    def load(self, identifier: tuple[str, ...]) -> ExactTable | None:
        """A table at its newest version, whose commits are tried once; None if it does not exist."""
        try:
            found = self.load_table(identifier)
        except NoSuchTableError:
            return None
        return ExactTable(found)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See Catalog."""
        assert isinstance(table, ExactTable)  # noqa: S101 - no others are committed to
        unchanged = cast("TableRequirement", _Unchanged(base=table.base))
        return super().commit_table(table, (*requirements, unchanged), updates)

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> FileIO:  # noqa: ARG002
        return ListedFiles(self.properties)  # a table's own properties could name another class


def open_catalog(find: Callable[[], Target], place: Place) -> ExactCatalog:
    """The catalog. Raises SinkRefusedError, SinkError."""
    with as_sink_errors("opening the Iceberg catalog"):
        database = open_database(find, place)
    if not place.warehouse.is_dir():
        raise SinkRefusedError(
            f"warehouse {place.warehouse} of the Iceberg catalog is not a folder on this machine. Create or mount it "
            "wherever coordinators and agents run"
        )
    return ExactCatalog(place, database)


@contextmanager
def as_sink_errors(doing: str) -> Iterator[None]:
    """Raise errors of the library, of the catalog and of files as the SinkError that means the same."""
    try:
        yield
    except (SQLAlchemyError, OSError, ValidationException, RESTError) as error:
        raise _sink_error(error, doing) from error


def _sink_error(error: Exception, doing: str) -> SinkError:
    if isinstance(error, DBAPIError) and isinstance(error.orig, PostgresError):
        return sink_error(error.orig, doing)
    text = f"{doing}: {str(error)[:ERROR_LENGTH_MAX]}"
    if isinstance(error, PermissionError) or any(words in str(error) for words in _NO_RIGHT):
        return SinkRefusedError(f"{text}. Give user {os.geteuid()} of this process the right to write there")
    return SinkUnavailableError(text)
