"""A Delta sink with one table, for tests, in a folder or in an object store."""

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headgate.sinks.delta.engine import DeltaLakeTable
from headgate.sinks.delta.lake import DeltaLake
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate.sinks.lake.binding import LEDGER
from headgate.sinks.lake.names import LEDGERS
from headgate.sinks.lake.sink import LakeSink
from integration.sinks.lake_bench import AnyLakeBench
from integration.sinks.lake_stores import PLACE, Store

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


class DeltaBench(AnyLakeBench):
    table_class = DeltaLakeTable
    columns = COLUMNS

    def __init__(self, folder: Path, *, appends: bool, store: Store | None = None) -> None:
        place = {"dsn": f"file://{folder}/lake"} if store is None else {"dsn": PLACE, "store": store.options}
        super().__init__(folder, {"type": "delta", **place}, appends=appends)
        self.store = store
        found = self.another().lake()
        assert isinstance(found, DeltaLake)
        self.lake = found
        self.create()
        self.sink = self.another()

    @property
    def path(self) -> str:
        return f"{self.folder if self.store is None else PLACE}/shop/orders"

    @property
    def options(self) -> dict[str, str] | None:
        return None if self.store is None else self.store.delta

    @property
    def native(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.options)

    def create(self) -> None:
        schema = self.columns
        for name, type_ in OWN_COLUMNS.items() if self.appends else ():
            schema = schema.append(pa.field(name, type_))
        self.lake.create(self.table, schema, {"headgate.key": '["id"]'}, None)

    def records(self) -> list[dict[str, object]]:
        """As Polars reads it."""
        import polars

        if not DeltaTable.is_deltatable(self.path, storage_options=self.options):
            return []
        return polars.read_delta(self.path, storage_options=self.options).to_dicts()

    def version(self) -> int:
        return self.native.version()

    def set_back(self, version: int) -> None:
        self.native.restore(version)

    def compact(self) -> None:
        self.native.optimize.compact()
        write_deltalake(self.native, self.native.to_pyarrow_table().slice(0, 0), mode="append")

    def drop(self) -> None:
        self._remove(self.path)

    def _remove(self, place: str) -> None:
        if self.store is None:
            shutil.rmtree(place)
        else:
            self.store.remove(place)

    def elsewhere(self) -> tuple[LakeSink, str]:
        return self.opened(dsn=f"{self.spec['dsn']}/shop"), "orders"

    def remove_ledger(self) -> None:
        self._remove(f"{self.folder if self.store is None else PLACE}/{LEDGERS}")

    def unbind(self) -> None:
        self.native.alter.set_table_properties({LEDGER: ""}, raise_if_not_exists=False)
