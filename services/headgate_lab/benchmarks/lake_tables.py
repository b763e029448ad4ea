"""The tables of a lake that a bench writes to: how each kind is made, where its files are, and what is in it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from headgate.config.sink_spec import SinkSpec
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate_lab.benchmarks.workload import Workload, rows_before

__all__ = ["COLUMNS", "KINDS", "DeltaTables", "IcebergTables", "Tables", "latest_rows", "rows_of"]

NAMESPACE: Final = "bench"

COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("qty", pa.int32()),
        pa.field("ver", pa.int32()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
"""Of the shape ``usual`` (shapes.py)."""

_KEY: Final = {"headgate.key": '["id"]'}
_NUMBER: Final = "number"


def rows_of(workload: Workload) -> pa.Table:
    """The rows that the table has before the workload."""
    found = pa.Table.from_pylist(
        list(rows_before(workload)),
        schema=pa.schema([field.with_type(_as_text(field.type)) for field in COLUMNS]),
    )
    at = pc.strptime(pc.utf8_slice_codeunits(found["at"], 0, 19), "%Y-%m-%dT%H:%M:%S", "us")
    found = found.set_column(found.schema.get_field_index("at"), "at", pc.assume_timezone(at, "UTC"))
    return found.cast(COLUMNS)


def _as_text(type_: pa.DataType) -> pa.DataType:
    return type_ if pa.types.is_integer(type_) else pa.string()


def latest_rows(changes: pa.Table, operation: str, offset: str) -> pa.Table:
    """What a table of changes comes to. All changes of a row are in one partition."""
    by_offset = changes.select(["id", offset]).append_column(_NUMBER, pa.array(range(changes.num_rows), pa.int64()))
    last = by_offset.group_by("id").aggregate([(offset, "max")])
    found = by_offset.join(last, ["id", offset], ["id", f"{offset}_max"], join_type="left semi")
    rows = changes.take(found[_NUMBER].combine_chunks())
    return rows.filter(pc.invert(pc.is_in(rows[operation], pa.array(["d", "delete"]))))


class Tables(ABC):
    """The tables of one kind in a folder. Headgate's are in ``folder``, the recipe's in ``recipe_path``."""

    kind: str
    columns_of_changes = ("op", "offset")
    """Of the recipe's tables of changes: the operation, and where in the partition the change was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The address of Headgate's sink."""

    @abstractmethod
    def create(self, table: str, rows: pa.Table | None) -> None:
        """A table for Headgate: with ``rows``, or for the changes of ``mode: append``."""

    @abstractmethod
    def recipe_path(self, table: str) -> Path:
        """The folder of the recipe's table."""

    @abstractmethod
    def _read(self, path: Path) -> pa.Table: ...

    @abstractmethod
    def _path(self, table: str) -> Path:
        """The folder of Headgate's table."""

    @abstractmethod
    def _live(self, path: Path) -> int: ...

    def sink(self, mode: str, interval_seconds: float) -> SinkSpec:
        """Headgate's sink."""
        return SinkSpec.model_validate(
            {
                "type": self.kind,
                "dsn": self.dsn,
                "mode": mode,
                "commit_interval_seconds": interval_seconds,
                "maintenance": {"scheduled": False},
            }
        )

    def rows(self, table: str, mode: str, *, by_recipe: bool) -> pa.Table:
        """The rows that the table has, or that its changes come to, in the order of their keys."""
        found = self._read(self.recipe_path(table) if by_recipe else self._path(table))
        if mode == "append":
            operation, offset = self.columns_of_changes if by_recipe else ("_operation", "_offset")
            found = latest_rows(found, operation, offset)
        return found.select(COLUMNS.names).cast(_all_optional(COLUMNS)).sort_by("id").combine_chunks()

    def count(self, table: str, *, by_recipe: bool) -> int:
        """How many rows the table has; of changes, all of them."""
        return int(self._read(self.recipe_path(table) if by_recipe else self._path(table)).num_rows)

    def files(self, table: str, *, by_recipe: bool) -> tuple[int, int]:
        """Data files that were written, and those that the newest version has."""
        path = self.recipe_path(table) if by_recipe else self._path(table)
        written = [file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts]
        return len(written), self._live(path)


def _all_optional(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _schema(*, appends: bool) -> pa.Schema:
    own: Iterable[pa.Field] = [pa.field(name, type_) for name, type_ in OWN_COLUMNS.items()] if appends else []
    return pa.schema([*(_all_optional(COLUMNS) if appends else COLUMNS), *own])


class DeltaTables(Tables):
    """Tables of Delta."""

    kind = "delta"

    @property
    def dsn(self) -> str:
        """See Tables."""
        return f"file://{self.folder}"

    def create(self, table: str, rows: pa.Table | None) -> None:
        """See Tables."""
        DeltaTable.create(
            self._path(table), _schema(appends=rows is None), configuration=dict(_KEY), raise_if_key_not_exists=False
        )
        if rows is not None and rows.num_rows:
            write_deltalake(self._path(table), rows, mode="append")

    def _path(self, table: str) -> Path:
        return self.folder / NAMESPACE / table

    def recipe_path(self, table: str) -> Path:
        """See Tables."""
        return self.folder / "recipe" / table

    def _read(self, path: Path) -> pa.Table:
        return DeltaTable(path).to_pyarrow_table()

    def _live(self, path: Path) -> int:
        return len(DeltaTable(path).file_uris())


class IcebergTables(Tables):
    """Tables of Iceberg: Headgate's in a catalog of a SQLite file, the recipe's in Spark's own catalog of folders."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/ours")
        self._catalog.create_namespace(NAMESPACE)

    @property
    def dsn(self) -> str:
        """See Tables."""
        return f"sqlite:///{self.folder}/catalog.db?warehouse={self.folder}/ours"

    def create(self, table: str, rows: pa.Table | None) -> None:
        """See Tables."""
        name, schema = f"{NAMESPACE}.{table}", _schema(appends=rows is None)
        made = self._catalog.create_table(name, schema, properties=dict(_KEY))
        if rows is not None and rows.num_rows:
            made.append(rows)

    def _path(self, table: str) -> Path:
        return Path(self._catalog.load_table(f"{NAMESPACE}.{table}").location().removeprefix("file://"))

    def recipe_path(self, table: str) -> Path:
        """See Tables."""
        return self.folder / "recipe" / NAMESPACE / table

    def _newest(self, path: Path) -> StaticTable:
        def number(file: Path) -> int:
            return int(file.name.split(".")[0].split("-")[0].removeprefix("v"))

        return StaticTable.from_metadata(str(max((path / "metadata").glob("*.metadata.json"), key=number)))

    def _read(self, path: Path) -> pa.Table:
        return self._newest(path).scan().to_arrow()

    def _live(self, path: Path) -> int:
        return len(list(self._newest(path).scan().plan_files()))


KINDS: Final[dict[str, type[Tables]]] = {"delta": DeltaTables, "iceberg": IcebergTables}
