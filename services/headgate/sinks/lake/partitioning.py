"""Partitions of lake tables: which fields a table can have."""

from collections.abc import Iterator, Mapping

import msgspec

from headgate.config.partitioning import IDENTITY, PartitionField
from headgate.config.wording import did_you_mean, nearest
from headgate.records.name_lists import shown_names
from headgate.sinks.creating import NewTable, PartitionRefusal, quoted_by_spark

__all__ = ["PartitionRules", "partition_refusals", "partitioned_by_spark", "type_problem"]


class PartitionRules(msgspec.Struct, frozen=True):
    """What tables of one kind can be partitioned by. ``kind``: what they are called.

    ``types``: transform → bare names of the types (LAKE_TYPES) whose columns it takes. ``keeps_empty``: whether an
    empty text is another partition than NULL. ``needs_others``: whether there must be a column besides the partitions.
    """

    kind: str
    types: Mapping[str, frozenset[str]]
    keeps_empty: bool
    needs_others: bool


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
            reason = (
                f"The table does not have this column. Its columns are {shown_names([*types])}. Give the table "
                "partition_by of its own in `tables`, [] for none"
            )
            reason = " ".join(filter(None, (did_you_mean(nearest(field.column, types), begins=True), reason)))
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
