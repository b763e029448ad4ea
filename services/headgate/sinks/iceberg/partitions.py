"""Partition specs of Iceberg tables, and which partitions may have a row."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from headgate.config.partitioning import IDENTITY, PartitionField
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.lake.partitioning import PartitionRules, type_problem
from headgate.sinks.lake.type_names import lake_name

__all__ = ["RULES", "UNCHANGED", "Pruning", "fields_of", "spec_of"]

_DATES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_EXACT: Final = frozenset({"tinyint", "smallint", "int", "bigint", "decimal", "string"})

RULES: Final = PartitionRules(
    "Iceberg",
    {
        IDENTITY: _EXACT | _DATES | {"boolean", "binary"},
        "year": _DATES,
        "month": _DATES,
        "day": _DATES,
        "hour": _DATES - {"date"},
        "bucket": _EXACT | _DATES | {"binary"},
        "truncate": _EXACT,
    },
    keeps_empty=True,
    needs_others=False,
)
"""The format also takes floats, whose rows with NaN pyiceberg loses, and truncated binaries, which it cannot write."""

_PLAIN: Final[dict[str, Transform[Any, Any]]] = {
    IDENTITY: IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
UNCHANGED: Final = (IdentityTransform, VoidTransform)
"""Their fields may have the name of their own column."""

_FIRST_ID: Final = 1000
"""Of a spec's fields, as the format has it."""

_SUFFIXES: Final = {"truncate": "trunc"}
"""As Spark names fields; those of other transforms have the transform's name."""


def spec_of(schema: Schema, fields: Sequence[PartitionField]) -> PartitionSpec:
    """The spec of a new table with these fields. ``schema``: with ids."""
    columns = {column.name for column in schema.fields}
    return PartitionSpec(
        *(
            SpecField(
                schema.find_field(field.column).field_id, _FIRST_ID + at, _transform(field), _name(field, columns)
            )
            for at, field in enumerate(fields)
        )
    )


def _transform(field: PartitionField) -> Transform[Any, Any]:
    if field.number is None:
        return _PLAIN[field.transform]
    return BucketTransform(field.number) if field.transform == "bucket" else TruncateTransform(field.number)


def _name(field: PartitionField, columns: Iterable[str]) -> str:
    """The field's name, which must not be that of another column."""
    if field.transform == IDENTITY:
        return field.column
    name = f"{field.column}_{_SUFFIXES.get(field.transform, field.transform)}"
    return next(each for at in count() if (each := f"{name}_{at}" if at else name) not in columns)


def fields_of(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """The fields of a table's spec. One that no feed can name has the format's own name of its transform."""
    return tuple(_field(field, schema) for field in spec.fields)


def _field(field: SpecField, schema: Schema) -> PartitionField:
    column = schema.find_column_name(field.source_id) or field.name
    if isinstance(field.transform, BucketTransform):
        return PartitionField(column, "bucket", field.transform.num_buckets)
    if isinstance(field.transform, TruncateTransform):
        return PartitionField(column, "truncate", field.transform.width)
    return PartitionField(column, str(field.transform))


class Pruning:
    """Which files may have a row with one of the keys, by the partitions that the key's columns decide on.

    A row may be in any partition of the other columns: they change, and then the row is still where it was.
    """

    def __init__(self, handle: ExactTable, wanted: pa.Table) -> None:
        self._schema = handle.schema()
        self._specs = handle.specs()
        self._wanted = {self._schema.find_field(name).field_id: wanted[name] for name in wanted.column_names}
        self._values: dict[tuple[int, str], frozenset[Any]] = {}

    def may_have(self, file: DataFile) -> bool:
        """Whether the file may have such a row. It has the spec that it was written with."""
        spec = self._specs[file.spec_id]
        return all(
            file.partition[at] in self._of(field) for at, field in enumerate(spec.fields) if self._decides(field)
        )

    def _decides(self, field: SpecField) -> bool:
        """Whether the key decides on the field's values, and these can be computed."""
        keys = self._wanted.get(field.source_id)
        return keys is not None and type_problem(_field(field, self._schema), lake_name(keys.type), RULES) is None

    def _of(self, field: SpecField) -> frozenset[Any]:
        """The values that the field has for the keys, as files' partitions have them."""
        by = field.source_id, str(field.transform)
        if by not in self._values:
            type_ = self._schema.find_field(field.source_id).field_type
            partitions = field.transform.pyarrow_transform(type_)(self._wanted[field.source_id])
            self._values[by] = frozenset(
                partition_record_value(field, value, self._schema) for value in pc.unique(partitions).to_pylist()
            )
        return self._values[by]
