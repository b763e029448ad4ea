"""Options of single tables of a feed: patterns of names, and which of them a table has its options from.

A pattern is a name as the source has it (``public.orders``), in which ``*`` stands for any characters of a part. The
most specific pattern that matches a table wins, and its options are the only ones: patterns are not merged.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, field_validator

from headgate.config.columns import ColumnOptions
from headgate.config.expressions import Where
from headgate.config.partitioning import PartitionBy
from headgate.config.snapshot import SnapshotOptions
from headgate.config.strict import Strict
from headgate.records.identifiers import identifier_parts, show_identifier
from headgate.records.slices import INTEGER_DIGITS_MAX, why_no_column

__all__ = ["AmbiguousPatternsError", "Into", "TableOptions", "TablePattern", "most_specific"]


class Into(Strict):
    """A target table that several sources are written to. Rows of each have another value of the discriminator."""

    table: str
    """Target table, as ``sink.table``."""
    discriminator: dict[str, str | int]
    """Column of the target → its value, the same in all rows of a source; with the fields of ``sink.table`` and
    ``{prefix}``, or a number."""

    @field_validator("discriminator", mode="before")
    @classmethod
    def _texts(cls, given: Any) -> Any:
        for column, value in given.items() if isinstance(given, dict) else ():
            if not isinstance(value, str) and type(value) is not int:
                raise ValueError(
                    f"the value of {column} is neither a text nor an integer. Put it in quotes: {{{column}: '{value}'}}"
                )
            if isinstance(value, int) and len(str(abs(value))) > INTEGER_DIGITS_MAX:
                raise ValueError(
                    f"the value of {column} has more than {INTEGER_DIGITS_MAX} digits, which not every database "
                    f"compares exactly. Put it in quotes, for a text: {{{column}: '{value}'}}"
                )
        return given

    @field_validator("discriminator")
    @classmethod
    def _one_column(cls, given: dict[str, str]) -> dict[str, str]:
        if len(given) != 1:
            raise ValueError(f"give exactly one column and its value, like {{tenant: '{{schema}}'}} (got {len(given)})")
        why = why_no_column(next(iter(given)))
        if why is not None:
            raise ValueError(why)
        return given

    @property
    def column(self) -> str:
        """The discriminator's column."""
        return next(iter(self.discriminator))

    @property
    def value(self) -> str:
        """The discriminator's value, with fields that stand for parts of the source's name."""
        return str(self.discriminator[self.column])

    @property
    def is_integer(self) -> bool:
        """Whether the discriminator is a number in the feed, so that a table that Headgate creates has integers."""
        return isinstance(self.discriminator[self.column], int)


class TableOptions(Strict):
    """What differs for one table, or for those that a pattern matches. What is not given is the feed's."""

    table: str | None = None
    """Target table, as ``sink.table``."""
    into: Into | None = None
    """In place of ``table``: a target table that other sources are written to as well."""
    foreign_keys: Literal["enforce", "ignore"] | None = None
    keyless: Literal["refuse", "append"] | None = None
    unique_keys: Literal["omit", "create"] | None = None
    partition_by: PartitionBy | None = None
    """How the lake table is divided, where Headgate creates it. An empty list: not at all, whatever the feed has."""
    types: dict[str, str] = Field(default_factory=dict)
    """Column at the sink → its type, where Headgate creates the table."""
    on_bad_change: Literal["fail", "quarantine"] | None = None
    quarantine_per_hour_max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    columns: ColumnOptions | None = None
    """How the table's columns are shaped. An empty one leaves them as they are, whatever the feed has."""
    key: tuple[str, ...] | None = None
    """Columns of the source by which rows are found at the sink, in place of the source's primary key."""
    snapshot: SnapshotOptions | None = None
    where: Where | None = None
    """Which of the table's rows go to the sink. ``TRUE`` stands for all of them, whatever the feed has."""

    @field_validator("types")
    @classmethod
    def _types_of_columns(cls, given: dict[str, str]) -> dict[str, str]:
        for column, chosen in given.items():
            if not chosen.strip():
                raise ValueError(f"{column} has no type. Write it like total: decimal(12,2)")
        return given

    @field_validator("key")
    @classmethod
    def _columns_of_key(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if given is not None and (not given or "" in given or len(set(given)) < len(given)):
            raise ValueError("name at least one column, and each of them once")
        return given

    @property
    def of_sink(self) -> dict[str, str | PartitionBy]:
        """Those that stand for options of the feed's sink, by their names there."""
        given = {
            "table": self.table,
            "foreign_keys": self.foreign_keys,
            "keyless": self.keyless,
            "unique_keys": self.unique_keys,
            "partition_by": self.partition_by,
        }
        return {option: value for option, value in given.items() if value is not None}

    @property
    def of_feed(self) -> dict[str, str | int | tuple[str, ...] | ColumnOptions | SnapshotOptions]:
        """Those that stand for options of the feed itself, by their names there."""
        given = {
            "on_bad_change": self.on_bad_change,
            "quarantine_per_hour_max": self.quarantine_per_hour_max,
            "columns": self.columns,
            "key": self.key,
            "snapshot": self.snapshot,
            "where": self.where,
        }
        return {option: value for option, value in given.items() if value is not None}


class AmbiguousPatternsError(ValueError):
    """Two patterns match a table, and none is more specific than the other."""


class TablePattern(msgspec.Struct, frozen=True):
    """A pattern as it was written, and what it matches: one expression for each part of a name.

    ``is_exact``: it matches one name only. ``literals``: characters that are not ``*``.
    """

    text: str
    parts: tuple[re.Pattern[str], ...]
    is_exact: bool
    literals: int

    @classmethod
    def parse(cls, text: str) -> "TablePattern":
        """The pattern. A part in double quotes has no ``*``. Raises NotAnIdentifierError, a ValueError."""
        wild = [
            [part] if is_quoted else re.split(r"(\*+)", part) for part, is_quoted in identifier_parts(text)
        ]  # every second piece is a run of stars
        return cls(
            text=text,
            parts=tuple(
                re.compile(
                    "".join(".*" if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)), re.S
                )
                for pieces in wild
            ),
            is_exact=all(len(pieces) == 1 for pieces in wild),
            literals=sum(len(piece) for pieces in wild for piece in pieces[::2]),
        )

    def matches(self, name: Sequence[str]) -> bool:
        """Whether the name of these parts is meant."""
        return len(name) == len(self.parts) and all(
            part.fullmatch(text) is not None for part, text in zip(self.parts, name, strict=True)
        )


def most_specific(patterns: Iterable[TablePattern], name: Sequence[str]) -> TablePattern | None:
    """The pattern that a table has its options from; None if no pattern matches.

    A pattern without ``*`` is more specific than any other, then one with more characters besides ``*``. Raises
    AmbiguousPatternsError.
    """
    found = sorted(
        (pattern for pattern in patterns if pattern.matches(name)),
        key=lambda pattern: (pattern.is_exact, pattern.literals),
        reverse=True,
    )
    if len(found) > 1 and (found[0].is_exact, found[0].literals) == (found[1].is_exact, found[1].literals):
        raise AmbiguousPatternsError(
            f"tables: patterns {found[0].text!r} and {found[1].text!r} both match table {show_identifier(name)}, and "
            "neither is more specific. Add an entry with the table's own name"
        )
    return found[0] if found else None


def patterns_of(tables: Mapping[str, TableOptions]) -> tuple[TablePattern, ...]:
    """The patterns of a feed's ``tables``."""
    return tuple(map(TablePattern.parse, tables))
