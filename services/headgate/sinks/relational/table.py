"""A sink table as the engine knows it, and the errors of one that cannot be written, in every database."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from headgate.config import wording
from headgate.sinks.contract import SinkRefusedError, TableShape

C = TypeVar("C")


class Equality(msgspec.Struct, frozen=True):
    """How a key column is compared where the server's own ``=`` is not meant: the operator, and the type that it takes.

    Both are qualified, so that they mean the same whatever a session's search path is.
    """

    operator: str
    operand: str


class Table(msgspec.Struct, Generic[C], frozen=True):
    """A sink table. ``columns`` are the writable ones, ``str`` of each its type as the sink prints it.

    ``name`` is what the fence is keyed by, whatever the caller calls the table. ``generated`` columns are computed by
    the sink. ``folding`` key columns may take two texts for one. ``version`` becomes another when columns or keys do.
    ``schema`` is the database where a server knows no schemas. ``identifier`` is the quoted name.
    """

    name: str
    schema: str
    relation: str
    identifier: str
    columns: dict[str, C]
    generated: frozenset[str]
    key: tuple[str, ...]
    folding: tuple[str, ...]
    secondary_unique: bool
    version: str | None
    nullable_defaults: tuple[str, ...] = ()
    """Columns that may be NULL and have a default."""
    equalities: dict[str, Equality] = {}
    """Of key columns whose type brings an ``=`` of its own."""
    own_rows: str = ""
    """How a statement names the table where it means the table's own rows: not those of tables that inherit from it.
    Empty: by ``identifier``."""

    @property
    def rows(self) -> str:
        """How a statement that reads or changes rows names the table."""
        return self.own_rows or self.identifier

    def shape(self, name: str, fires: tuple[str, ...] = ()) -> TableShape:
        """The contract's view, under the name the caller knows the table by."""
        declared = {column: str(described) for column, described in self.columns.items()}
        return TableShape(
            name, declared, self.key, self.secondary_unique, fires, self.nullable_defaults, generated=self.generated
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the table that was perhaps meant."""
    near = wording.nearest(name, known)
    return f" (there is {near})" if near else ""


def without_key(name: str) -> SinkRefusedError:
    """Of a table without primary key."""
    return SinkRefusedError(
        f"table {name} has no primary key at the sink. Add one, because Headgate finds rows by it. If the source "
        "has no key either and rows are only added, set keyless: append, under sink or for this table under tables"
    )


def check_generated(name: str, key: Sequence[str], generated: frozenset[str]) -> None:
    """Raise SinkRefusedError for a key that cannot be written."""
    if set(key) & generated:
        raise SinkRefusedError(
            f"the primary key of table {name} has generated columns, so Headgate cannot find rows by it"
        )
