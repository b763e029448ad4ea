"""A SQL catalog whose commits are made on exactly the metadata that was read.

pyiceberg's own requirement, that the table's newest snapshot is the one that was read, does not see a change of
properties, nor a snapshot that was left and came back. Here a commit is refused unless nothing at all has changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ValidationException
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, ValidatableTableRequirement
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headgate.databases.address import Target
from headgate.databases.iceberg.address import Place
from headgate.databases.postgresql.errors import PostgresError
from headgate.sinks.contract import SinkError, SinkRefusedError
from headgate.sinks.iceberg.catalog_database import CatalogDatabase, open_database
from headgate.sinks.iceberg.files import ListedFiles
from headgate.sinks.lake.files import Files, LocalFiles, local_error
from headgate.sinks.lake.store import StoreFiles
from headgate.sinks.relational.postgresql.faults import sink_error

__all__ = ["ExactCatalog", "ExactTable", "open_catalog"]

RETRIES: Final = "commit.retry.num-retries"
_PROVIDER: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
KEYS_MAX: Final = 4
"""Of a catalog at once: those in use, and those that replace them."""


class _Unchanged(ValidatableTableRequirement):
    """That the table's metadata is what was read. The catalog checks it on the version that it replaces."""

    type: str = "headgate-unchanged"
    base: TableMetadata

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # as in its base class
        """Raise CommitFailedException otherwise."""
        if base_metadata != self.base:
            raise CommitFailedException("Requirement failed: the table was changed by another commit")


class ExactTable(Table):
    """A table whose commits are made on ``base``, its metadata as read, and tried once.

    Raises SinkRefusedError for metadata that names a class for pyiceberg to import and call, however it is read.
    """

    def __init__(self, found: Table) -> None:
        self.base = found.metadata
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


class ExactCatalog(SqlCatalog):
    """See the module. ``files``: the warehouse."""

    def __init__(self, place: Place, database: CatalogDatabase, files: Files) -> None:
        self.files = files
        MetastoreCatalog.__init__(self, place.catalog, warehouse=place.url)
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
        return _listed_files(tuple(self.files.iceberg_properties().items()))

    @contextmanager
    def as_sink_errors(self, doing: str) -> Iterator[None]:
        """Raise errors of the library, of the catalog and of files as the SinkError that means the same."""
        with _as_sink_errors(self.files, doing):
            yield


@lru_cache(KEYS_MAX)
def _listed_files(properties: tuple[tuple[str, str], ...]) -> ListedFiles:
    """Kept, because a client of an object store begins with an empty pool of connections."""
    return ListedFiles(dict(properties))


def open_catalog(find: Callable[[], Target], place: Place) -> ExactCatalog:
    """The catalog. Raises SinkRefusedError, SinkError."""
    local = LocalFiles(Path(place.warehouse))
    with _as_sink_errors(local, "opening the Iceberg catalog"):
        database = open_database(find, place)
    if place.buckets:
        return ExactCatalog(place, database, StoreFiles(find, place.warehouse, is_exclusive=False))
    if not Path(place.warehouse).is_dir():
        raise SinkRefusedError(
            f"warehouse {place.warehouse} of the Iceberg catalog is not a folder on this machine. Create or mount it "
            "wherever coordinators and agents run"
        )
    return ExactCatalog(place, database, local)


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
