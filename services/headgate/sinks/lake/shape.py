"""What a lake table is: its columns as Arrow has them, its key, and whether Headgate can write it."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from headgate.config.partitioning import PartitionField, shown_fields
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.lake.appended import FORMER_COLUMNS, OWN_COLUMNS
from headgate.sinks.lake.partition_values import checked_reader
from headgate.sinks.lake.partitioning import PartitionRules, type_problem
from headgate.sinks.lake.tables import Lake, Rule, VersionedTable
from headgate.sinks.lake.type_names import lake_name
from headgate.sinks.lake.values import ReadValue, is_supported

__all__ = ["KEY", "LakeShape", "existing", "shape_of"]

KEY: Final = "headgate.key"
"""The table property with the names of the key's columns, as JSON."""


class LakeShape(msgspec.Struct, frozen=True):
    """``columns``: name → Arrow type. ``key``: empty if the table does not declare it. ``types``: in its kind's words.

    ``appends``: whether the table gets a row for every change, and has Headgate's own columns. ``required``: columns
    that cannot be NULL. ``partitions``: how it is divided, and ``partition_rules`` what that can be. ``folders``,
    ``rules``: as of VersionedTable.
    """

    table_id: str
    columns: dict[str, pa.DataType]
    types: dict[str, str]
    key: tuple[str, ...]
    appends: bool
    required: frozenset[str] = frozenset()
    partitions: tuple[PartitionField, ...] = ()
    partition_rules: PartitionRules | None = None
    folders: Mapping[str, str] = {}
    rules: Sequence[Rule] = ()

    def checked(self, column: str, read: ReadValue) -> ReadValue:
        """``read``, which refuses what the column cannot hold where the table is divided by it."""
        field = next((each for each in self.partitions if each.column == column), None)
        if field is None or self.partition_rules is None:
            return read
        folder, keeps_empty = self.folders.get(column, column), self.partition_rules.keeps_empty
        return checked_reader(read, field, self.columns[column], folder, keeps_empty=keeps_empty)

    @property
    def own_columns(self) -> frozenset[str]:
        """Those that Headgate writes."""
        return frozenset(OWN_COLUMNS) if self.appends else frozenset()


def existing(lake: Lake, name: str, *, appends: bool) -> LakeShape:
    """The shape of a table that exists and can be written. Raises SinkRefusedError, SinkError."""
    table = lake.table(name)
    if table is None:
        raise SinkRefusedError(
            f"table {name} does not exist: {lake.where(name)} has no {lake.kind} table. Create it. If the feed has "
            "written to it before, restore it instead"
        )
    return shape_of(table, name, appends=appends)


def shape_of(table: VersionedTable, name: str, *, appends: bool) -> LakeShape:
    """The same of a version that was read."""
    schema = table.schema
    found = {field.name: field.type for field in schema}
    shape = LakeShape(
        table.id,
        found,
        table.types,
        table.key,
        appends,
        frozenset(field.name for field in schema if not field.nullable),
        table.partitions,
        table.partition_rules,
        table.folders,
        table.rules,
    )
    for column, type_ in found.items():
        if not is_supported(type_):
            raise SinkRefusedError(
                f"table {name}, column {column}: its type {shape.types[column]} cannot be written. Give it the "
                "type string"
            )
    table.check(name, appends=appends)
    _check_partitions(name, shape, table.partition_rules)
    _check_own_columns(name, found, table, appends=appends)
    return shape


def _check_own_columns(name: str, found: Mapping[str, pa.DataType], table: VersionedTable, *, appends: bool) -> None:
    """Raise SinkRefusedError for a table that lacks Headgate's own columns, or has them and must not."""
    if not appends:
        if all(column in found or FORMER_COLUMNS.get(column) in found for column in OWN_COLUMNS):
            raise SinkRefusedError(
                f"table {name} has the columns of a table with sink.mode: append, and the feed has upsert. Correct "
                "sink.mode, or choose another name in sink.table"
            )
        return
    missing = [column for column, type_ in OWN_COLUMNS.items() if not _is(found.get(column), type_)]
    if not missing:
        return
    column = missing[0]
    former = FORMER_COLUMNS.get(column)
    if former is not None and column not in found and _is(found.get(former), OWN_COLUMNS[column]):
        raise SinkRefusedError(
            f"table {name} has the column {former}, which is called {column} since Spark does not read an Iceberg "
            f"table with a column {former}. {table.renaming(former, column)}"
        )
    wanted = ", ".join(f"{column} {_SQL[column]}" for column in OWN_COLUMNS)
    raise SinkRefusedError(
        f"table {name} lacks column {column}, or it has another type. With sink.mode: append a table needs the "
        f"columns {wanted}"
    )


def _check_partitions(name: str, shape: LakeShape, rules: PartitionRules) -> None:
    """Raise SinkRefusedError for a table whose rows a library would lose or change on their way to a partition."""
    columns = [field.column for field in shape.partitions]
    for field in shape.partitions:
        type_ = shape.columns.get(field.column)
        why = None if type_ is None else type_problem(field, lake_name(type_), rules)
        if columns.count(field.column) > 1:
            why = f"column {field.column} is in it twice, which Headgate does not write"
        if why is not None:
            raise SinkRefusedError(
                f"table {name} is partitioned by {shown_fields(shape.partitions)}, and it cannot be written: "
                f"{field.text}: {why}. Create the table with other partitions, and copy its rows"
            )


def _is(found: pa.DataType | None, wanted: pa.DataType) -> bool:
    """Whether it is that type; of texts there are large ones."""
    return found in ({wanted, pa.large_string()} if wanted == pa.string() else {wanted})


_SQL: Final = {
    "_operation": "string",
    "_topic": "string",
    "_topic_partition": "int",
    "_offset": "bigint",
    "_committed_at": "timestamp",
}
