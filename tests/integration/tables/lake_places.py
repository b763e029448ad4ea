"""A source and a folder for each kind of lake, for tests of tables that Headgate creates and alters there."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from headgate.config.feed import FeedSpec
from headgate.records.control import SpanPlan


def plan(table: str, topic: str = "") -> SpanPlan:
    return SpanPlan(span=table, topic=topic or f"t.{table}", table=table, start={0: 0})


def said(_topic: str) -> str | None:
    return None


class Place:
    def __init__(self, source: str, folder: Path) -> None:
        self.source, self.folder = source, folder

    def feed(self, mode: str = "upsert", **options: Any) -> FeedSpec:
        return FeedSpec.model_validate(
            {
                "feed": "f",
                "source": {"topic_pattern": r"t\..*", "database": {"dsn": self.source}},
                "sink": {**self.sink, "mode": mode, **options.pop("sink", {})},
                **options,
            }
        )

    @property
    def sink(self) -> dict[str, str]:
        return {"type": "delta", "dsn": f"file://{self.folder}"}

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.folder.joinpath(*name.split(".")))

    def fields(self, name: str) -> list[tuple[str, object, bool]]:
        return fields(self.table(name))

    def comments(self, name: str, column: str) -> tuple[str | None, str | None]:
        """The table's and a column's."""
        found = self.table(name)
        (field,) = (field for field in found.schema().fields if field.name == column)
        return found.metadata().description, field.metadata["comment"]

    def drop(self, name: str) -> None:
        shutil.rmtree(self.folder.joinpath(*name.split(".")))


class IcebergPlace(Place):
    def __init__(self, source: str, folder: Path) -> None:
        super().__init__(source, folder)
        self.catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")

    @property
    def sink(self) -> dict[str, str]:
        return {"type": "iceberg", "dsn": f"sqlite:///{self.folder}/catalog.db"}

    def fields(self, name: str) -> list[tuple[str, object, bool]]:
        found = self.catalog.load_table(name).schema().as_arrow()
        small = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
        return [(field.name, small.get(field.type, field.type), field.nullable) for field in found]

    def comments(self, name: str, column: str) -> tuple[str | None, str | None]:
        table = self.catalog.load_table(name)
        return table.properties.get("comment"), table.schema().find_field(column).doc

    def drop(self, name: str) -> None:
        self.catalog.drop_table(name)


def fields(table: DeltaTable) -> list[tuple[str, object, bool]]:
    schema = pa.schema(table.schema().to_arrow())
    return [(field.name, field.type, field.nullable) for field in schema]
