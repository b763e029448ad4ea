"""What a sink keeps of the columns of a table that Headgate alters, as long as the incarnation lasts (docs/adr/0115).

Two catalogues do not show whether a column that the sink lacks is new at the source or was dropped at the sink, nor
whether a column that both have was dropped and added again at the source in the meantime.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from headgate.records.control import Positions
from headgate.sinks.contract import Claim

__all__ = ["ColumnKeepingSink", "ColumnNumbers", "ExcludedColumns", "KnownColumns", "StatementNumbers"]


class ColumnNumbers(msgspec.Struct, frozen=True):
    """Numbers that identify a source's columns, whatever they are called.

    ``table``: PostgreSQL's ``oid`` of the table; at MySQL and MariaDB its name, with the topic of the statements if
    there is one. ``columns``: column, under the sink's name → ``attnum``, or what replication/statement_columns gives
    it; a number is never used again for another column of that table. ``excluded``: the same of columns that the feed
    leaves out, under the source's names. Without such numbers ``columns`` is empty, and each excluded one has 0.
    ``types``: column, under the sink's name → its type, as the source's catalogue writes it.
    """

    table: str
    columns: Mapping[str, int]
    excluded: Mapping[str, int] = {}
    types: Mapping[str, str] = {}


class StatementNumbers(msgspec.Struct, frozen=True):
    """The columns of a MySQL or MariaDB table, numbered by the statements below ``until`` of a connector's topic.

    ``table``: as the catalogue identifies it. ``columns``: those that it had then, under the source's names, in their
    order. ``began``: up to where the topic was read when they got their first numbers.
    """

    topic: str
    topic_id: str
    table: str
    until: int
    columns: Mapping[str, int]
    began: int = 0

    @property
    def identity(self) -> str:
        """See ColumnNumbers.table. A topic that is created again has other numbers.

        So has one that is read from its start again, because statements may be gone. That happens after a version that
        does not know this record has written what the sink keeps.
        """
        return f"{self.table} by {self.topic_id} since {self.began}"


class ExcludedColumns(msgspec.Struct, frozen=True):
    """Columns of the source that the feed leaves out, for as long as the feed has the table.

    ``table``: see ColumnNumbers. ``columns``: column → the numbers that it has had there; 0 where they are not known,
    or were those of another table.
    """

    table: str = ""
    columns: Mapping[str, tuple[int, ...]] = {}

    def met(self, now: ColumnNumbers) -> "ExcludedColumns":
        """The same with those that the source has now."""
        if not self.columns and not now.excluded:
            return self
        before = self.columns if now.table == self.table else dict.fromkeys(self.columns, (0,))
        found = {
            name: tuple(sorted({*filter(None, before.get(name, ())), number})) for name, number in now.excluded.items()
        }
        return ExcludedColumns(now.table, {**before, **found})

    def former_names(self, name: str, now: ColumnNumbers | None, exclude: Iterable[str]) -> dict[str, bool]:
        """Columns of ``exclude`` that may have the name ``name`` by now → whether numbers prove it.

        Without numbers, it may be each that the source does not have any more.
        """
        if now is None:
            return {}
        is_same, number, found = bool(now.table) and now.table == self.table, now.columns.get(name), {}
        for old in exclude:
            numbers = self.columns.get(old, ())
            if is_same and number in numbers:
                found[old] = True
            elif numbers and old not in now.excluded and (not is_same or 0 in numbers):
                found[old] = False
        return found


class KnownColumns(msgspec.Struct, frozen=True, kw_only=True):
    """``applied``: columns that the sink's table had when rows were written, under the sink's names, sorted.

    ``numbers``: what the source's columns were identified by when the table was claimed; None for a source without
    numbers, and before the first claim. ``restored``: columns that were added again for a copy of all rows that is not
    over, so rows lack their values. ``former``: a column's name in older changes → the name that the source and the
    sink's table have for it. It holds for changes before ``until`` (partition → offset): behind it another column may
    have the name. ``first``: column that was added to a lake, which keeps no defaults → what rows have in it whose
    changes are from before, as text. ``excluded``: columns that the table must not get by another name either.
    ``statements``: how far the source's statements are known, where they number its columns.
    """

    applied: tuple[str, ...] = ()
    numbers: ColumnNumbers | None = None
    restored: tuple[str, ...] = ()
    former: Mapping[str, str] = {}
    until: Mapping[int, int] = {}
    first: Mapping[str, str] = {}
    excluded: ExcludedColumns = ExcludedColumns()
    statements: StatementNumbers | None = None

    def in_later_incarnation(self) -> "KnownColumns":
        """What still holds where all changes are applied again: of older ones, and of the source."""
        return KnownColumns(first=self.first, excluded=self.excluded)

    def with_applied(self, columns: Iterable[str]) -> "KnownColumns":
        """The same after rows were written to a table with these columns."""
        return msgspec.structs.replace(self, applied=tuple(sorted({*self.applied, *columns})))

    def with_numbers(self, numbers: ColumnNumbers) -> "KnownColumns":
        """The same with these numbers; those of the table's other columns stay, since a column may come back."""
        excluded, before = self.excluded.met(numbers), self.numbers
        if not numbers.table:
            return msgspec.structs.replace(self, excluded=excluded)
        columns, types = numbers.columns, numbers.types
        if before is not None and before.table == numbers.table:
            columns, types = {**before.columns, **columns}, {**before.types, **types}
        kept = ColumnNumbers(numbers.table, columns, types=types)
        return msgspec.structs.replace(self, numbers=kept, excluded=excluded)

    def with_statements(self, statements: StatementNumbers) -> "KnownColumns":
        """The same after the source's statements were read further. Another part of the table may have read more."""
        before = self.statements
        if before is not None and before.identity == statements.identity and before.until > statements.until:
            return self
        return msgspec.structs.replace(self, statements=statements)

    def with_restored(self, columns: Iterable[str]) -> "KnownColumns":
        """The same with these columns waiting for their values, and no others."""
        return msgspec.structs.replace(self, restored=tuple(sorted(columns)))

    def with_former(self, former: Mapping[str, str], until: Mapping[int, int]) -> "KnownColumns":
        """The same with these former names, which hold for changes of all partitions up to where they were read."""
        return msgspec.structs.replace(self, former=dict(former), until={**self.until, **until})

    def with_altered(self, first: Mapping[str, str], renamed: Mapping[str, str]) -> "KnownColumns":
        """The same for a table that gets columns with these first values, and new names of others (former → now)."""
        kept = {now: self.first[former] for former, now in renamed.items() if former in self.first}
        return msgspec.structs.replace(self, first={**self.first, **kept, **first})

    def replaced(self, now: ColumnNumbers) -> list[str]:
        """Columns with values that the source has dropped and added again under the same name. ``now``: its numbers."""
        if self.numbers is None or self.numbers.table != now.table:
            return []
        before = self.numbers.columns
        common = [name for name in self.applied if name in now.columns and name in before]
        return [name for name in common if before[name] != now.columns[name]]

    def retyped(self, now: ColumnNumbers) -> dict[str, tuple[str, str]]:
        """Columns with values whose type at the source is another one → the type that was known, and the present one.

        A column that was renamed since is compared under its present name.
        """
        before = self.numbers
        if before is None or before.table != now.table:
            return {}
        former = {name: old for old, name in self.present_names(now).items()}
        types = {name: before.types.get(former.get(name, name)) for name in now.types}
        return {
            name: (old, now.types[name])
            for name, old in types.items()
            if old is not None and old != now.types[name] and former.get(name, name) in self.applied
        }

    def former_names(self, name: str, now: ColumnNumbers | None) -> list[str]:
        """What a column of the source was called that has the name by now; nothing if that is not known."""
        if self.numbers is None or now is None or self.numbers.table != now.table:
            return []
        number = now.columns.get(name)
        return [old for old, its in self.numbers.columns.items() if its == number and old not in now.columns]

    def present_names(self, now: ColumnNumbers) -> dict[str, str]:
        """Each name that a column of the source had, and that none has now → the name that the column has now.

        A number is never used again, so a column that has it now has existed for as long as the name was known.
        """
        if self.numbers is None or self.numbers.table != now.table:
            return {}
        names = {number: name for name, number in now.columns.items()}
        return {
            old: names[number]
            for old, number in self.numbers.columns.items()
            if old not in now.columns and number in names
        }


@runtime_checkable
class ColumnKeepingSink(Protocol):
    """What a sink must be able to do so that a column that was dropped is not taken for a new one."""

    def known_columns(self, claim: Claim) -> KnownColumns:
        """What is kept of the claim's table; nothing at first. Raises SinkError."""
        ...

    def change_known_columns(
        self, claim: Claim, positions: Positions, change: Callable[[KnownColumns], KnownColumns]
    ) -> None:
        """Change what is kept, if the claim is the sink's and at exactly these positions. Raises SinkError."""
        ...
