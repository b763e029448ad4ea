"""A SQL catalog whose commits are made on exactly the metadata that was read.

pyiceberg's own requirement, that the table's newest snapshot is the one that was read, does not see a change of
properties, nor a snapshot that was left and came back. Here a commit is refused unless nothing at all has changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ValidationException
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, ValidatableTableRequirement
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headgate.databases.address import Target
from headgate.databases.iceberg.address import CATALOG, CatalogLocation
from headgate.databases.postgresql.errors import PostgresError
from headgate.sinks.contract import SinkError, SinkRefusedError
from headgate.sinks.iceberg.catalog_database import CatalogDatabase, open_database
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.files import ListedFiles, listed_files
from headgate.sinks.iceberg.rest_catalog import ExactRestCatalog, rest_errors, token_option
from headgate.sinks.lake.files import Files, LocalFiles, local_error
from headgate.sinks.lake.store import StoreFiles
from headgate.sinks.relational.postgresql.faults import sink_error

__all__ = ["Catalog", "ExactCatalog", "open_catalog"]


class _Unchanged(ValidatableTableRequirement):
    """That the table's metadata is what was read. The catalog checks it on the version that it replaces."""

    type: str = "headgate-unchanged"
    base: TableMetadata

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as in its base class
        """Raise CommitFailedException otherwise."""
        if base_metadata != self.base:
            raise CommitFailedException("Requirement failed: the table was changed by another commit")


class ExactCatalog(SqlCatalog):
    """See the module. ``files``: the warehouse."""

    is_moved_by_snapshots: Final = False

    def __init__(self, place: CatalogLocation, database: CatalogDatabase, files: Files) -> None:
        self.files = files
        MetastoreCatalog.__init__(self, place.catalog or CATALOG, warehouse=place.url)
        self.engine = database.engine
        self._schema_version = database.version
        self.database_name = database.name

    @property
    def properties(self) -> dict[str, str]:
        """By which pyiceberg makes what it writes a new table's metadata with: keys may have been replaced."""
        return {
            **self._given,
            PY_IO_IMPL: f"{ListedFiles.__module__}.{ListedFiles.__qualname__}",
            **self.files.iceberg_properties(),
        }

    @properties.setter
    def properties(self, given: dict[str, str]) -> None:
        self._given = given

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
        # A table's own properties could name another class.
        return listed_files(tuple(self.files.iceberg_properties().items()))

    @contextmanager
    def as_sink_errors(self, doing: str) -> Iterator[None]:
        """Raise errors of the library, of the catalog and of files as the SinkError that means the same."""
        with _as_sink_errors(self.files, doing):
            yield


Catalog = ExactCatalog | ExactRestCatalog


def open_catalog(find: Callable[[], Target], place: CatalogLocation) -> Catalog:
    """The catalog. Raises SinkRefusedError, SinkError."""
    doing = "opening the Iceberg catalog"
    if place.rest is not None:
        with rest_errors(place.rest, token_option(find, place), doing):
            return ExactRestCatalog(find, place, _files(find, place))
    with _as_sink_errors(LocalFiles(Path(place.warehouse)), doing):
        database = open_database(find, place)
    return ExactCatalog(place, database, _files(find, place))


def _files(find: Callable[[], Target], place: CatalogLocation) -> Files:
    """The warehouse. Raises SinkRefusedError for a folder that does not exist."""
    if place.buckets:
        return StoreFiles(find, place.warehouse, is_exclusive=False)
    if not Path(place.warehouse).is_dir():
        raise SinkRefusedError(
            f"warehouse {place.warehouse} of the Iceberg catalog is not a folder on this machine. Create or mount it "
            "wherever coordinators and agents run"
        )
    return LocalFiles(Path(place.warehouse))


@contextmanager
def _as_sink_errors(files: Files, doing: str) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, ValidationException, RESTError) as error:
        raise _sink_error(error, doing) from error
    except OSError as error:
        raise files.sink_error(error, doing) from (None if files.hides_causes else error)


def _sink_error(error: Exception, doing: str) -> SinkError:
    if isinstance(error, DBAPIError) and isinstance(error.orig, PostgresError):
        return sink_error(error.orig, doing)
    return local_error(error, doing)
