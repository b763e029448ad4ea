"""What becomes of a source's column at a sink: a type that holds its values, a refusal, or no column at all."""

from enum import StrEnum

import msgspec

from headgate.databases.mysql.types import MysqlType
from headgate.databases.postgresql.catalogue import EnumType
from headgate.databases.postgresql.types import PostgresType
from headgate.sinks.creating import LakeType

__all__ = ["Default", "LeftOut", "Mapped", "Outcome", "Unmapped"]


class Default(StrEnum):
    """Which constants a sink's column may have as its default."""

    NONE = "none"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"
    """Dates and times without an offset."""
    ANY = "any"
    """Whatever the source has: the type is the same, and reads the same texts."""


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """The sink's type. ``lacks``: values of the source that it refuses, each with an error. It changes none.

    ``altered``: values that the connector changes before they arrive, which nothing shows afterwards.
    """

    type: PostgresType | MysqlType | LakeType
    default: Default = Default.NONE
    lacks: str = ""
    altered: str = ""
    needs: EnumType | None = None
    """An enum that must exist at the sink before the table."""
    generated: str | None = None
    """The expression by which the sink computes the column, as the source does. The connector's values are ignored."""


class Unmapped(msgspec.Struct, frozen=True):
    """No type of the sink is known to hold every value. ``instead``: a type that the user may choose."""

    reason: str
    instead: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """The sink's table does not have the column, because its values never arrive.

    That is safe where it is wrong: a table whose events have a column that the sink lacks waits, with an error.
    ``arrives``: the values do arrive, and the sink can hold them in no type. The feed has to leave the column out.
    """

    reason: str
    arrives: bool = False

    def refusal(self, column: str) -> str | None:
        """Why a table cannot be created while the feed lets the column through; None if it never arrives."""
        if not self.arrives:
            return None
        return f"{self.reason}. Leave it out with columns: {{exclude: [{column}]}} for its table"


Outcome = Mapped | Unmapped | LeftOut
