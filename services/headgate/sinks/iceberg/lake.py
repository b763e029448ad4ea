"""The tables of one Iceberg catalog, their ledgers, and the ledger of feeds.

A ledger is a table of the catalog, below the namespace ``_headgate``, whose properties have its state and its version.
It has a snapshot only where commits are compared by them, and never any rows.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog as PyCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import BooleanType, NestedField
from sqlalchemy.exc import IntegrityError

from headgate.config.partitioning import PartitionField
from headgate.databases.address import Target
from headgate.databases.iceberg.address import CatalogLocation, place_of
from headgate.sinks.contract import SinkConflictError, SinkError, SinkRefusedError
from headgate.sinks.creating import LakeType, quoted_by_spark
from headgate.sinks.iceberg.catalog import Catalog, open_catalog
from headgate.sinks.iceberg.engine import FORMAT_VERSION, IcebergTable
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.partitions import RULES, spec_of
from headgate.sinks.iceberg.transaction import forget_snapshots, move
from headgate.sinks.lake.files import LostFileError
from headgate.sinks.lake.ledger import Feeds, Holdings, Ledger
from headgate.sinks.lake.names import LEDGERS, path_of
from headgate.sinks.lake.panics import panics_as_sink_errors
from headgate.sinks.lake.tables import ConflictError

__all__ = ["IcebergLake"]

_log = logging.getLogger(__name__)

VERSION: Final = "headgate.version"
BY_REST: Final = "headgate.by-rest"
"""The property of a ledger that was created at a REST catalog. Its commits are compared by their snapshots."""

_SCHEMA: Final = Schema(NestedField(1, "nothing", BooleanType()))
"""A table has at least one column."""

COMMENT: Final = "comment"
"""The property in which Spark keeps a table's comment."""

_FORMAT: Final = {"format-version": str(FORMAT_VERSION)}
_SHORT: Final = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "10"}
"""Old metadata files of ledgers are removed with each commit."""


_RESERVED: Final = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""The format's columns of metadata, which each table has."""

_PROMOTED: Final = {("int", "bigint"), ("float", "double")}
"""What version 2 of the format promotes, besides decimals. Smaller integers are int there."""


class _Entry:
    """One version of a ledger."""

    def __init__(self, handle: ExactTable) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        return str(self._handle.metadata.table_uuid)

    @property
    def version(self) -> int:
        return int(self._handle.properties.get(VERSION, "0"))

    @property
    def properties(self) -> Mapping[str, str]:
        return self._handle.properties

    def set_properties(self, properties: Mapping[str, str]) -> None:
        transaction = self._handle.transaction()
        transaction.set_properties({**properties, VERSION: str(self.version + 1)})
        forgotten: list[str] = []
        if self._handle.is_moved_by_snapshots:
            try:
                move(transaction, {})
            except LostFileError as error:  # ten versions later its list is gone, and so is this one's turn
                raise ConflictError from error
            forgotten = forget_snapshots(transaction, self._handle.metadata)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise ConflictError from error
        for file in forgotten:
            try:
                self._handle.io.delete(file)
            except FileNotFoundError:  # removed by another program
                continue
            except (OSError, SinkError) as error:  # the version has landed, and needs none of these files
                _log.warning("%s is not needed any more and cannot be removed: %s", file, error)


class _Log:
    """The table that is a ledger."""

    def __init__(self, catalog: Catalog, place: CatalogLocation, name: tuple[str, ...]) -> None:
        self._catalog = catalog
        self._place = place
        self._name = (LEDGERS, *name)

    @property
    def place(self) -> str:
        return f"table {'.'.join(self._name)} of the catalog in {self._catalog.database_name}"

    def read(self) -> _Entry | None:
        with self._catalog.as_sink_errors(f"reading {self.place}"):
            found = self._catalog.load(self._name)
        if found is None:
            return None
        if found.is_moved_by_snapshots != (BY_REST in found.properties):
            ours, theirs = ("REST", "SQL") if found.is_moved_by_snapshots else ("SQL", "REST")
            raise SinkConflictError(
                f"{self.place} was created through the address of a {theirs} catalog, and this feed's is one of a "
                f"{ours} catalog. Each would let a process write that the other one has fenced. Use one kind of "
                "address for all feeds into the catalog"
            )
        return _Entry(found)

    def create(self, properties: dict[str, str]) -> str:
        kind = {BY_REST: "true"} if self._catalog.is_moved_by_snapshots else {}
        return _create(self._catalog, self._place, self._name, _SCHEMA, {**_SHORT, **kind, **properties, VERSION: "0"})


class IcebergLake:
    """See Lake."""

    kind: Final = "Iceberg"
    partition_rules: Final = RULES
    renames: Final = True

    def __init__(self, find: Callable[[], Target]) -> None:
        target = find()
        self._place = place_of(target.dsn, target.options)
        self._catalog = open_catalog(find, self._place)

    @staticmethod
    def name_problem(name: str) -> str | None:
        """See Lake."""
        if name.casefold() in _RESERVED:
            return (
                f"Iceberg has a column {name.casefold()} of its own, and Spark does not read tables that have another"
            )
        return None

    @staticmethod
    def widens(old: LakeType, new: LakeType) -> bool:
        """See Lake. The format's rules: files are not written again, and read as the wider type."""
        if "decimal" in (old.name, new.name):
            return old.name == new.name and old.numbers[1] == new.numbers[1]
        return (old.name, new.name) in _PROMOTED

    def where(self, table: str) -> str:
        """See Lake."""
        namespace = ".".join(_identifier(table)[:-1])
        name = "" if self._place.catalog is None else f" {self._place.catalog}"
        return f"catalog{name} in {self._catalog.database_name}, namespace {namespace},"

    def sql_name(self, table: str) -> str:
        """See Lake. A session of Spark has its own name for the catalog."""
        return ".".join(map(quoted_by_spark, _identifier(table)))

    def create(
        self,
        table: str,
        columns: pa.Schema,
        properties: dict[str, str],
        comment: str | None,
        partitions: Sequence[PartitionField] = (),
    ) -> None:
        """See Lake."""
        described = {} if comment is None else {COMMENT: comment}
        fields = pa.schema([_with_doc(field) for field in columns])
        # Ids, because a partition names its column by one.
        schema = assign_fresh_schema_ids(PyCatalog._convert_schema_if_needed(fields, FORMAT_VERSION))
        settings = {**described, **properties, **_FORMAT}
        _create(self._catalog, self._place, _identifier(table), schema, settings, partitions=partitions)

    def check_place(self, *, again: bool) -> None:
        """See Lake."""
        self._catalog.files.check(again=again)

    def table(self, table: str) -> IcebergTable | None:
        """See Lake."""
        with self._catalog.as_sink_errors(f"reading {table}"):
            found = self._catalog.load(_identifier(table))
        return None if found is None else IcebergTable(found)

    def ledger(self, table: str) -> Ledger[Holdings]:
        """See Lake."""
        return Ledger(_Log(self._catalog, self._place, ("tables", *_identifier(table))), Holdings())

    @property
    def feeds(self) -> Ledger[Feeds]:
        """See Lake."""
        return Ledger(_Log(self._catalog, self._place, ("feeds",)), Feeds())

    @contextmanager
    def as_sink_errors(self, doing: str) -> Iterator[None]:
        """See Lake."""
        with panics_as_sink_errors(doing), self._catalog.as_sink_errors(doing):
            yield

    def close(self) -> None:
        """See Lake."""
        self._catalog.close()


def _create(
    catalog: Catalog,
    place: CatalogLocation,
    name: tuple[str, ...],
    schema: Schema,
    properties: dict[str, str],
    *,
    partitions: Sequence[PartitionField] = (),
) -> str:
    """Create a table, and its namespace, and return its id. Raises ConflictError if the table exists, SinkError."""
    with catalog.as_sink_errors(f"creating table {'.'.join(name)} of the catalog in {catalog.database_name}"):
        with suppress(NamespaceAlreadyExistsError, IntegrityError):  # by another process, just now
            catalog.create_namespace_if_not_exists(name[:-1])
        try:
            made = catalog.create_table(
                name,
                schema,
                location="/".join([place.url, *name]),
                partition_spec=spec_of(schema, partitions) if partitions else UNPARTITIONED_PARTITION_SPEC,
                properties=properties,
            )
        except TableAlreadyExistsError as error:
            raise ConflictError from error
    return str(made.metadata.table_uuid)


def _with_doc(field: pa.Field) -> pa.Field:
    """The field with its comment where pyiceberg looks for it."""
    comment = (field.metadata or {}).get(b"comment")
    return field if comment is None else field.with_metadata({"doc": comment})


def _identifier(table: str) -> tuple[str, ...]:
    parts = path_of(table).parts
    if len(parts) == 1:
        raise SinkRefusedError(
            f"table {table} has no namespace, and tables of an Iceberg catalog need one. Write sink.table as "
            "namespace.table"
        )
    if any("." in part for part in parts):
        raise SinkRefusedError(
            f"table {table}: names in an Iceberg catalog must not contain points. Choose another name in sink.table"
        )
    return parts
