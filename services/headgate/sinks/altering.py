"""Altering the tables of a sink that takes no statements, under the claim that also guards its rows."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from headgate.records.control import Positions
from headgate.sinks.contract import Claim
from headgate.sinks.creating import LakeType, NewColumn
from headgate.sinks.target_rows import RowReadingSink

__all__ = ["AddedColumn", "AlteringRules", "AltersTables", "ColumnChanges", "PresentColumn", "PresentTable"]


class PresentColumn(msgspec.Struct, frozen=True):
    """A column that a table has."""

    name: str
    type: LakeType
    is_nullable: bool


class PresentTable(msgspec.Struct, frozen=True):
    """A table as it is, without columns that Headgate itself writes. ``key``: empty if the table declares none."""

    columns: tuple[PresentColumn, ...]
    key: tuple[str, ...]


class AddedColumn(msgspec.Struct, frozen=True):
    """A new column. ``first``: what rows have in it that are older, as text; None for NULL."""

    column: NewColumn
    first: str | None = None


class ColumnChanges(msgspec.Struct, frozen=True):
    """What is done to a table in one commit.

    ``renamed``: former name → the name now. ``widened``: column → its new type. ``relaxed``: columns that may be NULL
    from now on. Both are named as before the renames.
    """

    added: tuple[AddedColumn, ...] = ()
    renamed: Mapping[str, str] = {}
    widened: Mapping[str, LakeType] = {}
    relaxed: tuple[str, ...] = ()


class AlteringRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the sink's tables take. ``place``: the table in statements for people, quoted.

    ``widens``: (old, new) → whether a column's type can become the new one without a changed value. ``renames``:
    whether a column can be renamed. ``appends``: whether older rows are changes, which keep what they had.
    """

    place: str
    widens: Callable[[LakeType, LakeType], bool]
    renames: bool
    appends: bool
    name_problem: Callable[[str], str | None]


@runtime_checkable
class AltersTables(RowReadingSink, Protocol):
    """A sink that can alter its tables."""

    def altering_rules(self, table: str) -> AlteringRules:
        """What can be altered in the table."""
        ...

    def present_table(self, table: str) -> PresentTable | None:
        """The table as it is; None if it does not exist. Raises SinkError."""
        ...

    def alter(self, claim: Claim, positions: Positions, before: PresentTable, changes: ColumnChanges) -> bool:
        """Alter the claim's table, if the claim is the sink's and at exactly these positions, in one commit.

        False, and nothing was done, if the table is not as ``before`` any more. Raises SinkError.
        """
        ...
