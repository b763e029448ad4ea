"""Rows on their way into a table: a session-long temporary table, filled in bulk, merged by set-wise statements.

The stage has the columns of its target, and one more that numbers groups: rows with the same columns and the same way
to be merged. It is created once per session, and emptied when the next batch comes. How it is made and filled, and the
statements of the merge, are the dialect's; what is staged, and the order in which it is merged, are here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from headgate.formats.change import BINARY, CONNECTOR, DATA_ERRORS, DECIMALS, Change, Row, reason_of
from headgate.formats.reducing import Reduced
from headgate.records.name_lists import shown_names
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.left_out import LeftOutError, lacking_columns, left_out
from headgate.sinks.relational.altered import TableAlteredError
from headgate.sinks.relational.grouping import (
    ColumnsMissingError,
    Group,
    Merged,
    OrphanRowsError,
    Semantics,
    StagedTexts,
    UnwritableError,
    group_keys,
    group_rows,
)
from headgate.sinks.relational.keys import FoldedKeysError
from headgate.sinks.relational.passed_over import PassedOverError
from headgate.sinks.relational.session import Session
from headgate.sinks.relational.table import RelationalTable
from headgate.sinks.relational.text import ColumnText
from headgate.sinks.relational.times import NotTextError
from headgate.sinks.row_copying import CopiedTexts

ROWS_PER_WRITE: Final = 8_192
"""Rows formatted at once: bounds memory, and lets the server read one part while the next is formatted."""

"""In an error: what has to be done is the same for all of them."""

TEXTS_MAX: Final = 16_384
"""Ways to write a column that a stage remembers: four for each of the 4 096 columns that a table can have. Events can
bring any number of them, because each has a schema."""

MEANING_SHOWN_MAX: Final = 80
"""Characters of a schema's description of a column, in an error."""

GROUP: Final = "headgate group"
"""The column that numbers groups."""

Told = tuple[str | None, str | None, str | None, str | None]
"""What a column's values mean, and the events' CONNECTOR, BINARY and DECIMALS (formats.change)."""

S = TypeVar("S", bound=Session)
C = TypeVar("C")


class StagingTable(ABC, Generic[S, C]):
    """The temporary table of one target in one session."""

    def __init__(self, session: S, table: RelationalTable[C], number: int) -> None:
        self.table = table
        self.group = self._own_column(GROUP)
        self.session = session
        self.is_respelled = False
        """Whether events have been seen to spell the columns in another case: batches are then respelled at once."""
        self.fires: tuple[str, ...] = ()
        """Triggers and rules that fire on our writes."""
        self.rounds = False
        """Whether values may lose digits that their column does not keep."""
        self.unknown: frozenset[str] = frozenset()
        """Columns that the sink is still to keep as known, with the next batch (sinks/known_columns.py)."""
        self.known = KnownColumns()
        """What it kept of the table's columns when the stage was made, or a change was refused."""
        self._texts: dict[tuple[str, Told], ColumnText] = {}
        self._create(f"headgate_stage_{number}")

    # --- what a dialect brings ---

    @abstractmethod
    def _create(self, name: str) -> None:
        """Make the temporary table."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the stage; the target has changed."""

    @abstractmethod
    def _empty(self) -> None:
        """Before other rows are staged."""

    @abstractmethod
    def _send(self, number: int, group: Group, used: Sequence[int]) -> None:
        """Stage a group's columns ``used`` as group ``number``. Raises UnwritableError for a value not taken."""

    @abstractmethod
    def _column_text(self, column: C, told: Told, *, in_key: bool) -> ColumnText:
        """How a column is written, given what its values mean."""

    @abstractmethod
    def _add_column(self, column: str) -> str:
        """How the statement begins that gives the target another column, for people."""

    @abstractmethod
    def begin_trials(self) -> None:
        """In a transaction whose rows may be refused: no alteration until its end, and every rule at each statement."""

    @abstractmethod
    def read_version(self) -> str | None:
        """See RelationalTable.version: what it is now."""

    @abstractmethod
    def _equals(self, column: str, value: str) -> str:
        """The condition that a column of the target is a text of letters, digits and ``. _ -``, or that integer."""

    @abstractmethod
    def _delete_all(self) -> int:
        """All rows of the target that are ours (``_ours``)."""

    @abstractmethod
    def _delete(self) -> int:
        """The target's rows with the keys of group 0."""

    @abstractmethod
    def _upsert(self, number: int, columns: Sequence[str], others: Sequence[str]) -> int:
        """Write whole rows of a group; ``others`` are the columns outside the key. How many were written.

        A changed row may be counted twice, and one that has only a key not at all if it was there already.
        """

    @abstractmethod
    def _update(self, number: int, others: Sequence[str]) -> int:
        """Columns ``others`` of the target's rows with a group's keys; how many there were."""

    @abstractmethod
    def _missing(self, number: int | None = None) -> int:
        """How many staged rows, of one group or of all, are not in the target under their key, letter by letter."""

    @abstractmethod
    def _is_any_left(self) -> bool:
        """Whether the target has a row with a key of group 0."""

    @abstractmethod
    def _is_any_row(self) -> bool:
        """Whether the target has a row that is ours (``_ours``)."""

    def takes_texts(self, texts: CopiedTexts) -> bool:
        """Whether rows of a copy can be written as they are (``write_texts``)."""
        del texts
        return False

    def stage_texts(self, number: int, texts: CopiedTexts) -> StagedTexts:
        """Stage rows of a copy as group ``number`` without taking them apart.

        For a dialect that stages outside of the transaction. After an error rows must be made of all of them: it names
        none.
        """
        raise NotImplementedError

    def write_texts(self, texts: CopiedTexts) -> list[Row]:
        """Write rows that the target does not have without staging them; the others, which must be staged.

        For a dialect that stages within the transaction, behind the fence. After an error all of them must be staged:
        it may be due to a row that another client has added, and it names none.
        """
        raise NotImplementedError

    # --- the rules ---

    @property
    def _ours(self) -> str:
        """The condition for rows of the target that a TRUNCATE of the source removes: all, or those of the slice."""
        part = self.table.part
        return "TRUE" if part is None else self._equals(part.column, part.value)

    def groups_of(self, upserts: Sequence[Change]) -> list[Group]:
        """The upserts as they are staged. Raises UnwritableError."""
        return [self._completed(self._of_slice(group)) for group in group_rows(upserts, self.table.row_key)]

    def _of_slice(self, group: Group) -> Group:
        """The group with the column of the slice, which changes do not have. Raises UnwritableError for one that has.

        Every row and key that is staged comes through here: none is ever of another slice.
        """
        part = self.table.part
        if part is None:
            return group
        if part.column in group.columns:
            raise UnwritableError(
                group.changes[0],
                part.column,
                "the source's table has a column of the name that `into` gives to the discriminator. Rename the column "
                "(columns.rename) or exclude it, or name the discriminator otherwise in another feed",
            )
        return msgspec.structs.replace(
            group,
            columns=(*group.columns, part.column),
            values=[*group.values, [self.table.part_value] * len(group.changes)],
            types=[*group.types, {type(self.table.part_value)}],
        )

    def _own_column(self, name: str) -> str:
        """The name of a column that the stage has beside its target's: one that the target has not."""
        taken = {column.casefold() for column in self.table.columns}
        while name.casefold() in taken:
            name += "_"
        return name

    def check_version(self) -> None:
        """Raise TableAlteredError if the target, locked by now, is not what the stage was made from."""
        if self.read_version() != self.table.version:
            raise TableAlteredError(self.table.name)

    def fill(self, reduced: Reduced) -> list[Group]:
        """Stage a reduced batch: deletes as group 0, then the groups returned. Raises UnwritableError."""
        self._empty()
        groups = self.groups_of(reduced.upserts)
        for keys in group_keys(reduced.deletes, self.table.row_key) if reduced.deletes else ():
            staged = self._of_slice(keys)
            self._send(0, staged, self._used(staged))
        for number, group in enumerate(groups, start=1):
            self._send(number, group, self._used(group))
        return groups

    def merge(self, reduced: Reduced, groups: Sequence[Group | StagedTexts]) -> Merged:
        """Bring the staged rows into the target.

        Raises OrphanRowsError where a partial update finds no row, PassedOverError where the sink did not do what a
        statement requests, FoldedKeysError where two rows of the source have become one.
        """
        deletes, upserts, updates = self._merge_deletes(reduced), 0, 0
        for number, group in enumerate(groups, start=1):
            columns = [column for column in group.columns if column in self.table.columns]
            others = [column for column in columns if column not in self.table.key]
            if group.whole:
                written = min(self._upsert(number, columns, others), group.rows)
                if self.table.key and not others and written < group.rows:
                    written = group.rows - self._missing(number)
                if written < group.rows:
                    raise PassedOverError("INSERT", self.fires)
                upserts += written
            elif not self.table.key:
                raise OrphanRowsError
            elif others:
                updated = self._update(number, others)
                updates += updated
                if updated != group.rows:
                    raise OrphanRowsError if self._missing(number) else PassedOverError("UPDATE", self.fires)
        if groups and self.table.key and (self.table.folding or self.fires) and self._missing():
            raise FoldedKeysError if self.table.folding else PassedOverError("INSERT", self.fires)
        return Merged(upserts, updates, deletes)

    def lacking(self, group: Group) -> list[str]:
        """Columns of the table that the group's whole rows lack, and whose writer may have left NULLs out."""
        return lacking_columns(group.semantics, group.columns, self.table.columns) if group.whole else []

    def _completed(self, group: Group) -> Group:
        """The group with the NULLs that its writer left out. Raises UnwritableError if it is unknown whether it did."""
        if not group.whole:
            return group
        try:
            lacking = left_out(group.semantics, group.columns, self.table.columns)
        except LeftOutError as error:
            raise UnwritableError(group.changes[0], error.column, str(error)) from error
        if not lacking:
            return group
        nulls = [None] * len(group.changes)
        return msgspec.structs.replace(
            group,
            columns=(*group.columns, *lacking),
            values=[*group.values, *[nulls] * len(lacking)],
            types=[*group.types, *[{type(None)}] * len(lacking)],
        )

    def _merge_deletes(self, reduced: Reduced) -> int:
        deletes = 0
        if reduced.truncate:  # DELETE: TRUNCATE would lock out every reader, or commit, and needs a right of its own
            deletes += self._delete_all()
            if self.fires and self._is_any_row():
                raise PassedOverError("DELETE", self.fires)
        if reduced.deletes:
            deleted = self._delete()
            # Fewer than were staged may be legal: a row that is not there. As many may be others, deleted by a rule.
            if (self.fires or deleted < len(reduced.deletes)) and self._is_any_left():
                raise PassedOverError("DELETE", self.fires)
            deletes += deleted
        return deletes

    def _used(self, group: Group) -> list[int]:
        """The group's columns that are written. Raises ColumnsMissingError for those that the table does not have."""
        table = self.table
        missing = [name for name in group.columns if name not in table.columns and name not in table.generated]
        if missing:
            change, told = group.changes[0], group.semantics or {}
            named = shown_names([f"{name} ({told[name]})" if name in told else name for name in missing])
            raise ColumnsMissingError(
                change,
                {name: told.get(name, "") for name in missing},
                f"table {table.name} has no column {named}",
                f"{self._add_column(missing[0])} …, with the source's type and default, so that rows that do not "
                "change again are right too (or rename the old column). The table then continues by itself",
            )
        return [index for index, column in enumerate(group.columns) if column in table.columns]

    def text(self, column: str, semantics: Semantics) -> ColumnText:
        """How a column's values are written, given their meaning in the events. Raises NotTextError."""
        told = semantics or {}
        meant: Told = told.get(column), told.get(CONNECTOR), told.get(BINARY), told.get(DECIMALS)
        known = (column, meant)
        text = self._texts.get(known)
        if text is None:
            try:
                text = self._column_text(self.table.columns[column], meant, in_key=column in self.table.key)
            except DATA_ERRORS as error:  # an error in an event's schema is that event's fault
                raise NotTextError(
                    f"values of {str(meant[0])[:MEANING_SHOWN_MAX]!r} cannot be written: {reason_of(error)}"
                ) from error
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            self._texts[known] = text
        return text

    def _lines(self, group: Group, used: Sequence[int], prefix: str = "") -> Iterator[bytes]:
        """A group as lines of fields between tabs, ``prefix`` before each, in parts of bounded size."""
        for start in range(0, len(group.changes), ROWS_PER_WRITE):
            columns = []
            for index in used:
                part = group.values[index][start : start + ROWS_PER_WRITE]
                try:
                    text = self.text(group.columns[index], group.semantics)
                except NotTextError as error:
                    raise UnwritableError(group.changes[start], group.columns[index], str(error)) from error
                try:
                    columns.append(text.fields(part, group.types[index]))
                except NotTextError:
                    self._name_unwritable(group, index, start, text)
                    raise
            lines = prefix + f"\n{prefix}".join(map("\t".join, zip(*columns, strict=True))) + "\n"
            yield lines.encode()

    @staticmethod
    def _name_unwritable(group: Group, index: int, start: int, text: ColumnText) -> None:
        for change, value in zip(group.changes[start:], group.values[index][start:], strict=True):
            try:
                text.plain(value)
            except NotTextError as error:
                raise UnwritableError(change, group.columns[index], str(error)) from error
