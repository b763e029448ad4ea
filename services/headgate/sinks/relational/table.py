"""A sink table as the engine knows it, and the errors of one that cannot be written, in every database."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from headgate.config import wording
from headgate.records.slices import INTEGER_DIGITS_MAX, Slice
from headgate.sinks.contract import SinkRefusedError, TableShape
from headgate.sinks.misfit import MisfitError

C = TypeVar("C")

_LENGTH: Final = re.compile(r"\((?P<number>\d+)\)")
"""Of a text's type, as every database prints it."""


class Equality(msgspec.Struct, frozen=True):
    """How a key column is compared where the server's own ``=`` is not meant: the operator, and the type that it takes.

    Both are qualified, so that they mean the same whatever a session's search path is.
    """

    operator: str
    operand: str


class RelationalTable(msgspec.Struct, Generic[C], frozen=True):
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
    part: Slice | None = None
    """The rows that are written, where they are not all. ``columns`` and ``key`` are those of the whole table."""
    part_number: int | None = None
    """Their value in the slice's column, if that has integers."""
    filled: frozenset[str] = frozenset()
    """Columns that have a value where none is given."""

    @property
    def rows(self) -> str:
        """How a statement that reads or changes rows names the table."""
        return self.own_rows or self.identifier

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which changes name a row: without that of a slice, which no change has."""
        return self.key if self.part is None else tuple(name for name in self.key if name != self.part.column)

    @property
    def part_value(self) -> str | int:
        """What the slice's column has in each row."""
        assert self.part is not None  # noqa: S101 - asked of slices only
        return self.part.value if self.part_number is None else self.part_number

    def shape(self, name: str, fires: tuple[str, ...] = ()) -> TableShape:
        """The contract's view, under the name the caller knows the table by."""
        hidden = None if self.part is None else self.part.column
        declared = {column: str(described) for column, described in self.columns.items() if column != hidden}
        return TableShape(
            name,
            declared,
            self.row_key,
            self.secondary_unique,
            fires,
            self.nullable_defaults,
            generated=self.generated,
            filled=self.filled,
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the table that was perhaps meant."""
    near = wording.nearest_table(name, known)
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


def check_slice(
    table: RelationalTable[Any], name: str, keys: Iterable[Sequence[str]], *, is_exact: bool, integers: range | None
) -> None:
    """Raise SinkRefusedError for a slice whose rows could be taken for those of another one.

    MisfitError where the column does not hold this slice's value.

    ``keys``: the columns of every unique key. ``is_exact``: whether the slice's column is a text that the sink compares
    letter by letter, but perhaps for spaces at the end, which no value has. ``integers``: which ones it holds, if its
    type is one of integers.
    """
    part = table.part
    if part is None:
        return
    column, option = part.column, "Correct the option `into`, or let Headgate create the table"
    described = str(table.columns[column]) if column in table.columns else None
    if described is None:
        raise SinkRefusedError(
            f"table {name} has no column {column}, which must have the value {part.value!r} in each of its rows. "
            f"{option}"
        )
    if column not in table.key or len(table.key) == 1:
        raise SinkRefusedError(
            f"table {name} finds rows by ({', '.join(table.key)}), and its primary key must be made of {column} and "
            f"the source's key, so that rows of two sources are never one. {option}"
        )
    if not is_exact and integers is None:
        raise SinkRefusedError(
            f"column {column} of table {name} is of type {described}. It must be an integer, or a text that is "
            f"compared letter by letter (PostgreSQL: varchar or text. MySQL and MariaDB: varchar with a collation that "
            f"ends in _bin). {option}"
        )
    if integers is not None and (part.number is None or part.number not in integers):
        raise MisfitError(
            f"column {column} of table {name} is of type {described}, which does not hold the value {part.value!r}. "
            f"Integers have up to {INTEGER_DIGITS_MAX} digits and no zeros before them. {option}"
        )
    length = _LENGTH.search(described) if integers is None else None
    if length is not None and int(length["number"]) < len(part.value):
        raise MisfitError(
            f"column {column} of table {name} is of type {described}, which is too short for the value {part.value!r}. "
            "Widen the column"
        )
    for key in keys:
        if column not in key:
            raise SinkRefusedError(
                f"table {name} has a unique key of ({', '.join(key) or 'expressions'}), without {column}, so a row of "
                f"one source could be in the way of another one's. Add {column} to the key, or drop it"
            )
