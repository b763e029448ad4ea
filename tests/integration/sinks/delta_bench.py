"""A Delta sink with one table, for tests."""

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headgate.sinks.delta.engine import Table, create
from headgate.sinks.delta.lake import DeltaLake
from headgate.sinks.lake.appended import OWN_COLUMNS
from integration.sinks.lake_bench import AnyLakeBench

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


class DeltaBench(AnyLakeBench):
    table_class = Table
    columns = COLUMNS

    def __init__(self, folder: Path, *, appends: bool) -> None:
        super().__init__(folder, {"type": "delta", "dsn": f"file://{folder}/lake"}, appends=appends)
        self.lake = DeltaLake(self.folder)
        self.create()
        self.sink = self.another()

    @property
    def path(self) -> Path:
        return self.folder / "shop" / "orders"

    def create(self) -> None:
        schema = self.columns
        for name, type_ in OWN_COLUMNS.items() if self.appends else ():
            schema = schema.append(pa.field(name, type_))
        create(self.path, schema, {"headgate.key": '["id"]'})

    def records(self) -> list[dict[str, object]]:
        """As Polars reads it."""
        import polars

        return polars.read_delta(str(self.path)).to_dicts() if self.path.exists() else []

    def version(self) -> int:
        return DeltaTable(self.path).version()

    def set_back(self, version: int) -> None:
        DeltaTable(self.path).restore(version)

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()
        write_deltalake(self.path, DeltaTable(self.path).to_pyarrow_table().slice(0, 0), mode="append")

    def drop(self) -> None:
        shutil.rmtree(self.path)
