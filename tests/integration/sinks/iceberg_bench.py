"""An Iceberg sink with one table, for tests."""

import os
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as PyTable
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from headgate.sinks.iceberg.engine import IcebergTable
from headgate.sinks.iceberg.lake import IcebergLake
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate.sinks.lake.binding import LEDGER
from headgate.sinks.lake.names import LEDGERS
from headgate.sinks.lake.sink import LakeSink
from integration.sinks.lake_bench import AnyLakeBench
from integration.sinks.lake_stores import PLACE, Store

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


def in_database(url: str, warehouse: Path | str) -> str:
    """The address of a catalog in a database."""
    return f"{url}{'&' if '?' in url else '?'}warehouse={warehouse}"


def new_catalog(uri: str, warehouse: Path | str, name: str = "default", **properties: str) -> SqlCatalog:
    """A catalog as its users create and use it."""
    url = warehouse if isinstance(warehouse, str) else f"file://{warehouse}"
    uri = uri.replace("postgresql:", "postgresql+psycopg:")
    catalog = SqlCatalog(name, uri=uri, warehouse=url, **properties)
    catalog.engine.dispose()
    catalog.engine = create_engine(catalog.engine.url, poolclass=NullPool)
    return catalog


class IcebergBench(AnyLakeBench):
    table_class = IcebergTable
    columns = COLUMNS

    def __init__(self, folder: Path, *, appends: bool, database: str | None = None, store: Store | None = None) -> None:
        """``database``: the URL of an empty one at PostgreSQL, for the catalog; without it that is a SQLite file."""
        file = f"sqlite:///{folder}/lake/catalog.db"
        warehouse: Path | str = folder / "lake" if store is None else PLACE
        dsn = file if database is None and store is None else in_database(database or file, warehouse)
        options = {} if store is None else {"store": store.options}
        (folder / "lake").mkdir(exist_ok=True)
        super().__init__(folder, {"type": "iceberg", "dsn": dsn, **options, **self.place()}, appends=appends)
        self.uri, self.warehouse = file if database is None else database, warehouse
        self.properties = {} if store is None else store.iceberg
        self.catalog = new_catalog(self.uri, warehouse, **self.properties)
        self.catalog.create_namespace("shop")
        self.store = store
        found = self.another().lake()
        assert isinstance(found, IcebergLake)
        self.lake = found
        self.create()
        self.sink = self.another()

    def place(self) -> dict[str, object]:
        """What a feed has of the catalog instead of its database."""
        return {}

    def create(self) -> None:
        schema = self.columns
        for name, type_ in OWN_COLUMNS.items() if self.appends else ():
            schema = schema.append(pa.field(name, type_))
        self.catalog.create_table(self.table, schema, properties={"headgate.key": '["id"]'})

    @property
    def native(self) -> PyTable:
        return self.catalog.load_table(self.table)

    def records(self) -> list[dict[str, object]]:
        """As Polars reads it."""
        import polars

        try:
            table = self.native
        except NoSuchTableError:
            return []
        if table.current_snapshot() is None:
            return []
        with patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):  # it warns without its own
            options = None if self.store is None else self.store.delta
            return polars.scan_iceberg(table, storage_options=options).collect().to_dicts()

    def version(self) -> int:
        snapshot = self.native.current_snapshot()
        return 0 if snapshot is None else snapshot.snapshot_id

    def set_back(self, version: int) -> None:
        self.native.manage_snapshots().set_current_snapshot(snapshot_id=version).commit()

    def compact(self) -> None:
        table = self.native
        table.overwrite(table.scan().to_arrow())

    def drop(self) -> None:
        self.catalog.drop_table(self.table)

    def elsewhere(self) -> tuple[LakeSink, str]:
        """Another catalog of the same database, over the same warehouse."""
        self.register(new_catalog(self.uri, self.warehouse, name="other", **self.properties))
        dsn = str(self.spec["dsn"])
        return self.opened(dsn=f"{dsn}{'&' if '?' in dsn else '?'}catalog=other"), "copies.orders"

    def register(self, other: SqlCatalog) -> None:
        """Have another catalog know the table as it is now."""
        other.create_namespace_if_not_exists("copies")
        if other.table_exists("copies.orders"):
            other.drop_table("copies.orders")
        other.register_table("copies.orders", self.native.metadata_location)

    def remove_ledger(self) -> None:
        for name in (("feeds",), ("tables", "shop", "orders")):
            self.catalog.drop_table((LEDGERS, *name))

    def unbind(self) -> None:
        with self.native.transaction() as change:
            change.remove_properties(LEDGER)
