"""The description of a table in a database's catalogue, in one form for all databases.

Sinks, comparisons and schema changes each add what only they need to know, such as rights or triggers. How the
catalogue is asked is in each database's ``catalogue``.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

__all__ = ["ROW_KEY_PREFIX", "Ask", "CatalogueColumn", "Key", "Product", "TableDefinition", "TableForm"]

ROW_KEY_PREFIX: Final = "headgate_key_"
"""Prefix of the name of a unique index by which rows are found instead of by the primary key.

A schema change puts it on a copy whose primary key is not the one that change events have.
"""


class Product(StrEnum):
    """Whose types a table has. MariaDB and MySQL are one kind of address, but not every type of one is of the other.

    LAKE: those that all lakes have (sinks/creating.py). No source is one.
    """

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    MYSQL = "mysql"
    LAKE = "lake"

    @property
    def ignores_case(self) -> bool:
        """Whether names of columns that differ only in case are one name."""
        return self in (Product.MARIADB, Product.MYSQL)


Ask = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]
"""Runs a query on the catalogue and returns its rows."""


class CatalogueColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column. ``number``: its attribute number or position, by which it is known if it is renamed.

    ``type`` is written as the server writes it, ``kind`` is the type's bare name. ``default`` and ``generated`` are
    the server's texts of expressions, and at most one of them is given.
    """

    number: int
    name: str
    type: str
    kind: str
    is_nullable: bool
    default: str | None
    generated: str | None
    """The expression that the server computes the column by."""
    is_identity: bool
    """Whether the server counts it up: an identity column, or AUTO_INCREMENT."""
    collation: str | None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A unique index: the columns whose values together are unique, in the index's order."""

    name: str
    columns: tuple[str, ...]
    is_primary: bool
    finds_rows: bool
    """Whether a row is found by the columns alone, at any moment: not if the index is of expressions, of parts of
    columns or of some of the rows, or checked at the end of transactions only."""


C = TypeVar("C", bound=CatalogueColumn)
K = TypeVar("K", bound=Key)


class TableForm(msgspec.Struct, Generic[C, K], frozen=True):
    """A table: its columns in their order, and its unique keys, the primary one first."""

    columns: tuple[C, ...]
    keys: tuple[K, ...]

    @property
    def primary(self) -> K | None:
        """The primary key."""
        return next((key for key in self.keys if key.is_primary), None)

    @property
    def row_key(self) -> K | None:
        """The key by which rows are written: the one that a schema change has added for this, or the primary key."""
        return next((key for key in self.keys if key.name.startswith(ROW_KEY_PREFIX)), self.primary)

    @property
    def generated(self) -> frozenset[str]:
        """Names of columns that the server computes."""
        return frozenset(column.name for column in self.columns if column.generated is not None)

    @property
    def nullable_defaults(self) -> tuple[str, ...]:
        """Columns that may be NULL and have a default."""
        return tuple(column.name for column in self.columns if column.is_nullable and column.default is not None)

    @property
    def filled(self) -> frozenset[str]:
        """Columns that have a value where none is given."""
        return frozenset(column.name for column in self.columns if column.default is not None)


class TableDefinition(msgspec.Struct, Generic[C, K], frozen=True, kw_only=True):
    """A table with what only a statement that creates it needs. ``schema``: the database of a MySQL or MariaDB table.

    ``comments`` are those on columns. Empty comments are left out. ``unknown``: what the source of the description does
    not show of the table; nothing if that is a catalogue.
    """

    product: Product
    schema: str
    table: str
    form: TableForm[C, K]
    comment: str | None = None
    comments: Mapping[str, str] = {}
    unknown: str = ""
