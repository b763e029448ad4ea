"""The tables of one Iceberg catalog, their ledgers, and the ledger of feeds.

A ledger is a table of the catalog, below the namespace ``_headgate``, whose properties have its state and its version.
It never has a snapshot.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Final

from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, NestedField
from sqlalchemy.exc import IntegrityError

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.address import Place
from headgate.sinks.iceberg.catalog import ExactCatalog, ExactTable, as_sink_errors, open_catalog
from headgate.sinks.iceberg.engine import Table
from headgate.sinks.lake.ledger import Feeds, Holdings, Ledger
from headgate.sinks.lake.names import LEDGERS, path_of
from headgate.sinks.lake.tables import ConflictError

__all__ = ["IcebergLake"]

VERSION: Final = "headgate.version"
_SCHEMA: Final = Schema(NestedField(1, "nothing", BooleanType()))
"""A table has at least one column."""

_SHORT: Final = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "10"}
"""Old metadata files of ledgers are removed with each commit."""


class _Entry:
    """One version of a ledger."""

    def __init__(self, handle: ExactTable) -> None:
        self._handle = handle

    @property
    def version(self) -> int:
        return int(self._handle.properties.get(VERSION, "0"))

    @property
    def properties(self) -> Mapping[str, str]:
        return self._handle.properties

    def set_properties(self, properties: Mapping[str, str]) -> None:
        transaction = self._handle.transaction()
        transaction.set_properties({**properties, VERSION: str(self.version + 1)})
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise ConflictError from error


class _Log:
    """The table that is a ledger."""

    def __init__(self, catalog: ExactCatalog, place: Place, name: tuple[str, ...]) -> None:
        self._catalog = catalog
        self._place = place
        self._name = (LEDGERS, *name)

    @property
    def place(self) -> str:
        return f"table {'.'.join(self._name)} of catalog {self._place.file}"

    def read(self) -> _Entry | None:
        with as_sink_errors(f"reading {self.place}"):
            found = self._catalog.load(self._name)
        return None if found is None else _Entry(found)

    def create(self, properties: dict[str, str]) -> None:
        with as_sink_errors(f"creating {self.place}"):
            with suppress(NamespaceAlreadyExistsError, IntegrityError):  # by another process, just now
                self._catalog.create_namespace_if_not_exists(self._name[:-1])
            try:
                self._catalog.create_table(
                    self._name,
                    _SCHEMA,
                    location=f"file://{self._place.warehouse.joinpath(*self._name)}",
                    properties={**_SHORT, **properties, VERSION: "0"},
                )
            except TableAlreadyExistsError as error:
                raise ConflictError from error


class IcebergLake:
    """See Lake."""

    kind: Final = "Iceberg"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._catalog = open_catalog(place)

    def where(self, table: str) -> str:
        """See Lake."""
        return f"catalog {self._place.catalog} of {self._place.file}, namespace {'.'.join(_identifier(table)[:-1])},"

    def table(self, table: str) -> Table | None:
        """See Lake."""
        with as_sink_errors(f"reading {table}"):
            found = self._catalog.load(_identifier(table))
        return None if found is None else Table(found)

    def ledger(self, table: str) -> Ledger[Holdings]:
        """See Lake."""
        return Ledger(_Log(self._catalog, self._place, ("tables", *_identifier(table))), Holdings())

    @property
    def feeds(self) -> Ledger[Feeds]:
        """See Lake."""
        return Ledger(_Log(self._catalog, self._place, ("feeds",)), Feeds())

    def as_sink_errors(self, doing: str) -> AbstractContextManager[None]:
        """See Lake."""
        return as_sink_errors(doing)


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
