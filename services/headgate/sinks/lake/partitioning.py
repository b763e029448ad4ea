"""Partitions of lake tables: which fields a table can have, and which values its files can be told apart by."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from headgate.config.partitioning import IDENTITY, PartitionField
from headgate.config.wording import nearest
from headgate.records.name_lists import shown_names
from headgate.sinks.creating import NewTable, PartitionRefusal, quoted_by_spark
from headgate.sinks.lake.values import ReadValue
from headgate.sinks.relational.times import NotTextError

__all__ = ["PartitionRules", "partition_refusals", "partitioned_by_spark", "reader_of_partition", "type_problem"]


class PartitionRules(msgspec.Struct, frozen=True):
    """What tables of one kind can be partitioned by. ``kind``: what they are called.

    ``types``: transform → bare names of the types (LAKE_TYPES) whose columns it takes. ``keeps_empty``: whether an
    empty text is another partition than NULL. ``needs_others``: whether there must be a column besides the partitions.
    """

    kind: str
    types: Mapping[str, frozenset[str]]
    keeps_empty: bool
    needs_others: bool


FOLDER_BYTES_MAX: Final = 255
"""Of a folder's name, on every file system that agents run on. A partition's is ``column=value``, with escapes."""

_ESCAPED_BYTES_MAX: Final = 12
"""Of one character: four bytes, each of which becomes three."""

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What readers of folders take for NULL."""


def type_problem(field: PartitionField, type_: str, rules: PartitionRules) -> str | None:
    """Why a column of that type cannot be partitioned by the field, None if it can."""
    types = rules.types.get(field.transform)
    if types is None:
        return f"Headgate does not write {rules.kind} tables with the transform {field.transform}"
    if type_ in types:
        return None
    what = "partitions" if field.transform == IDENTITY else field.transform
    return f"{what} of {rules.kind} tables cannot be of type {type_}. They take {shown_names(sorted(types))}"


def partition_refusals(table: NewTable, types: Mapping[str, str], rules: PartitionRules) -> Iterator[PartitionRefusal]:
    """Why a table that does not exist cannot have its partitions. ``types``: column → bare name, of all of it."""
    for field in table.partitions:
        type_ = types.get(field.column)
        if type_ is None:
            near = nearest(field.column, types)
            hint = f"Did you mean {near}? " if near else ""
            reason = (
                f"{hint}The table does not have this column. Its columns are {shown_names([*types])}. Give the table "
                "partition_by of its own in `tables`, [] for none"
            )
        else:
            reason = type_problem(field, type_, rules) or ""
        if reason:
            yield PartitionRefusal(field.column, f"partition_by has {field.text}: {reason}")
    if rules.needs_others and len(table.partitions) == len(types):
        reason = "partition_by names every column, and files need at least one that is not. Remove one"
        yield PartitionRefusal(table.partitions[0].column, reason)


def partitioned_by_spark(field: PartitionField) -> str:
    """The field in Spark's PARTITIONED BY."""
    name = quoted_by_spark(field.column)
    if field.transform == IDENTITY:
        return name
    return f"{field.transform}({name})" if field.number is None else f"{field.transform}({field.number}, {name})"


def reader_of_partition(field: PartitionField, read: ReadValue, *, keeps_empty: bool) -> ReadValue:
    """``read`` of a text, for a column that the table is partitioned by. It raises NotTextError.

    ``keeps_empty``: whether an empty text is another partition than NULL.
    """
    if field.transform not in (IDENTITY, "truncate"):
        return read
    return partial(_checked, field, read, keeps_empty)


def _checked(field: PartitionField, read: ReadValue, keeps_empty: bool, value: object) -> object:
    found = read(value)
    if not isinstance(found, str):
        return found
    if not keeps_empty and found in ("", HIVE_NULL):
        what = "empty" if not found else HIVE_NULL
        raise NotTextError(
            f"the text is {what}, which readers take for NULL where a table is partitioned by it. Partition by another "
            "column, or let columns.set compute one that is never so"
        )
    text = found[: field.number]
    if (len(field.column) + len(text) + 1) * _ESCAPED_BYTES_MAX <= FOLDER_BYTES_MAX:
        return found
    if len(quote(f"{field.column}={text}", safe="=")) > FOLDER_BYTES_MAX:
        raise NotTextError(
            f"the table is partitioned by the column, and the text is too long for a folder's name ({FOLDER_BYTES_MAX} "
            "bytes, with escapes). Partition by another column, or by a shorter part of it"
        )
    return found
