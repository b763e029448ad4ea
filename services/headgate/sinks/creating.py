"""Creates the tables that a sink lacks, for sinks that take no statements: lakes.

A sink gets its columns in the words of Spark SQL, which all lakes understand and people write in ``sink.types``.
"""

import re
from typing import Final, Protocol, runtime_checkable

import msgspec

from headgate.config.partitioning import PartitionField

__all__ = [
    "DIGITS_MAX", "LAKE_TYPES", "CreatesTables", "LakeType", "NewColumn", "NewTable", "PartitionRefusal",
    "parse_lake_type", "quoted_by_spark",
]  # fmt: skip

DIGITS_MAX: Final = 38
"""Of a decimal, in every lake."""

LAKE_TYPES: Final = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp",
    "timestamp_ntz", "string", "binary",
)  # fmt: skip

_ALIASES: Final = {
    "bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "numeric": "decimal", "timestamptz": "timestamp", "text": "string",
}  # fmt: skip
"""Other names that people write."""

_DECIMAL: Final = (10, 0)
"""Of a decimal without numbers."""

_TYPE: Final = re.compile(r"(?P<name>[a-z_]+)(?: ?\( ?(?P<digits>[0-9]+) ?(?:, ?(?P<scale>[0-9]+) ?)?\))?")


class LakeType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of a lake's column: one of LAKE_TYPES. ``numbers``: a decimal's digits, and those behind the point."""

    name: str
    numbers: tuple[int, ...] = ()

    @property
    def sql(self) -> str:
        """The type as Spark SQL has it."""
        return f"{self.name}({','.join(map(str, self.numbers))})" if self.numbers else self.name


def parse_lake_type(text: str) -> LakeType | None:
    """A type as people write it; None for one that a lake does not have."""
    found = _TYPE.fullmatch(text.strip().lower())
    if found is None:
        return None
    name = _ALIASES.get(found["name"], found["name"])
    if name != "decimal":
        return LakeType(name=name) if name in LAKE_TYPES and found["digits"] is None else None
    digits, scale = (_DECIMAL[0], 0) if found["digits"] is None else (int(found["digits"]), int(found["scale"] or 0))
    return LakeType(name=name, numbers=(digits, scale)) if 1 <= digits <= DIGITS_MAX and scale <= digits else None


def quoted_by_spark(name: str) -> str:
    """A name in a statement of Spark."""
    return "`" + name.replace("`", "``") + "`"


class NewColumn(msgspec.Struct, frozen=True):
    """A column of a table that does not exist yet."""

    name: str
    type: LakeType
    is_nullable: bool = True
    comment: str | None = None


class NewTable(msgspec.Struct, frozen=True):
    """A table that does not exist yet. ``key``: the columns that find a row; empty where none do.

    ``partitions``: how it is divided, outermost first.
    """

    name: str
    columns: tuple[NewColumn, ...]
    key: tuple[str, ...] = ()
    comment: str | None = None
    partitions: tuple[PartitionField, ...] = ()


class PartitionRefusal(msgspec.Struct, frozen=True):
    """Why a table cannot be divided by a column."""

    column: str
    reason: str


@runtime_checkable
class CreatesTables(Protocol):
    """A sink that can create its tables."""

    def lacks(self, table: str) -> bool:
        """Whether the table does not exist. Raises SinkError."""
        ...

    def name_problem(self, name: str) -> str | None:
        """Why a column cannot have that name, None if it can."""
        ...

    def partition_refusals(self, table: NewTable) -> tuple[PartitionRefusal, ...]:
        """Why the table cannot have its partitions; none if it can."""
        ...

    def partitions_of(self, table: str) -> tuple[str, ...] | None:
        """How a table that exists is divided, as people write it; None if it does not exist. Raises SinkError."""
        ...

    def statement(self, table: NewTable) -> str:
        """What is created, as people read it: Spark's CREATE TABLE, without a semicolon."""
        ...

    def create(self, table: NewTable) -> bool:
        """Create it, in one step; False if it exists by now. Raises SinkError."""
        ...
