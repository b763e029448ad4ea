"""What a table demands of its rows beyond the types of its columns: unique keys, and conditions."""

from typing import Final

import msgspec

__all__ = ["NO_RULES", "KeyPart", "Misfit", "RowCheck", "RowRules", "UniqueKey"]


class KeyPart(msgspec.Struct, frozen=True):
    """One part of a unique key: a column, or an expression, as the server writes it.

    ``collation``: by which it is compared; empty if it is not a text. ``prefix``: so many characters of it are compared
    (MariaDB); 0 for all.
    """

    expression: str
    column: str = ""
    collation: str = ""
    prefix: int = 0


class UniqueKey(msgspec.Struct, frozen=True):
    """A unique key. ``predicate``: it is of these rows only. ``compares_nulls``: NULL is equal to NULL in it.

    ``is_valid``: the rows that exist meet it.
    """

    name: str
    parts: tuple[KeyPart, ...]
    predicate: str = ""
    compares_nulls: bool = False
    is_valid: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are parts of it as they are."""
        return tuple(part.column for part in self.parts if part.column)

    @property
    def is_plain(self) -> bool:
        """Whether it is of columns alone, and of all rows."""
        return not self.predicate and len(self.columns) == len(self.parts)


class RowCheck(msgspec.Struct, frozen=True):
    """A condition, as the server writes it, and the columns that it names. ``is_valid``: see ``UniqueKey``."""

    name: str
    expression: str
    columns: tuple[str, ...]
    is_valid: bool = True


class RowRules(msgspec.Struct, frozen=True):
    """All of a table's."""

    unique: tuple[UniqueKey, ...] = ()
    checks: tuple[RowCheck, ...] = ()


NO_RULES: Final = RowRules()


class Misfit(msgspec.Struct, frozen=True):
    """Rows that the new form of a table does not accept. ``why`` follows their number in a sentence.

    ``listing``: a statement that lists them; empty if a person has to write it.
    """

    rows: int
    why: str
    listing: str = ""
