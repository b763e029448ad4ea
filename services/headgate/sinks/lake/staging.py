"""Turns the changes of a batch into Arrow rows, in a task.

What is staged travels to the driver with the task's result, so no file of it exists before the driver commits.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from headgate.formats.change import ABSENT, BINARY, CONNECTOR, DECIMALS, Change, ChangeError, Operation, Row
from headgate.formats.reducing import alike_runs, reduce_changes
from headgate.records.name_lists import shown_names
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    Claim,
    ConstraintViolatedError,
    SinkColumnMissingError,
    ValueRefusedError,
)
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.lacking_columns import LackingColumnsError
from headgate.sinks.lake.appended import appended_row
from headgate.sinks.lake.first_values import first_values
from headgate.sinks.lake.rules import broken_rule
from headgate.sinks.lake.shape import LakeShape, existing
from headgate.sinks.lake.staged_rows import GONE, GatheredRows, pack
from headgate.sinks.lake.tables import Lake
from headgate.sinks.lake.values import ReadValue, reader_of
from headgate.sinks.left_out import LeftOutError, left_out
from headgate.sinks.on_driver import Staged
from headgate.sinks.relational.batches import ORPHANS, check_ranges, check_truncates, refused_change
from headgate.sinks.relational.grouping import UnwritableError
from headgate.sinks.relational.spelling import with_present_names
from headgate.sinks.relational.times import NotTextError

__all__ = ["LakeStager"]


class _LackingColumnsError(ChangeError):
    """Columns of an event that the table does not have. ``columns``: as in LackingColumnsError."""

    def __init__(self, columns: dict[str, str]) -> None:
        super().__init__(
            f"the event has column {shown_names([*columns])}, which the table does not have. Add it (ALTER TABLE … ADD "
            "COLUMN), or leave it out with columns.exclude. The table then continues by itself"
        )
        self.columns = columns


class LakeStager:
    """Stages the batches of tables of one lake. It reads their columns, and no rows.

    ``known``: what is kept of the columns of a claim's table; None where nothing is.
    """

    def __init__(self, lake: Lake, known: Callable[[Claim], KnownColumns] | None = None, *, appends: bool) -> None:
        self._lake = lake
        self._known = known
        self._appends = appends

    def stage(self, batch: ChangeBatch) -> Staged:
        """See Stager."""
        check_ranges(batch)
        if not batch.changes:
            return Staged(dict(batch.ranges), b"")
        with self._lake.as_sink_errors(f"reading table {batch.claim.table}"):
            shape = existing(self._lake, batch.claim.table, appends=self._appends)
        known = KnownColumns() if self._known is None else self._known(batch.claim)
        present = with_present_names(batch.changes, shape.columns, known.former, known.until)
        batch = batch if present is None else msgspec.structs.replace(batch, changes=present)
        firsts = {} if self._appends else first_values(batch.claim.table, shape.columns, known)
        trial = _Trial(batch, shape, self._lake.kind, firsts)
        found = bisect_batch(trial, batch)
        if found.refused and batch.quarantine is not None:
            batch.quarantine.keep(found.refused)
        made = trial.rows()
        return Staged(found.ranges, made.payload, made.upserts, made.deletes, len(found.refused))

    def close(self) -> None:
        """See Stager."""


class _Made(msgspec.Struct, frozen=True):
    payload: bytes
    upserts: int
    deletes: int


class _Trial:
    """See bisection. Changes are converted to see whether they can be, and once more when all are known.

    ``firsts``: column → what new rows have in it if their events are from before it was added.
    """

    def __init__(self, batch: ChangeBatch, shape: LakeShape, kind: str, firsts: Mapping[str, object]) -> None:
        self._batch = batch
        self._firsts = firsts
        self._kind = kind
        self._shape = shape
        self._key = shape.key or next((tuple(each.key) for each in batch.changes if each.key), ())
        self._readers = _Readers(shape)
        self._taken: list[Change] = []

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """See Trial."""
        taken = [change for changes in parts for change in changes]
        try:
            self._check(taken)
            for changes in parts:
                self._check_rules(self._converted(changes))
        except (ChangeError, UnwritableError) as error:
            return error
        self._taken += taken
        return None

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """See Trial."""
        claim = self._batch.claim
        kind: type[ChangeRefusedError] = ConstraintViolatedError if isinstance(error, ORPHANS) else ValueRefusedError
        if isinstance(error, _LackingColumnsError):
            kind = SinkColumnMissingError
        found = refused_change(
            kind, claim.table, claim.topic, change, error, column=None, reason=str(error), key=self._key
        )
        if isinstance(error, _LackingColumnsError):
            return LackingColumnsError(str(found), change.partition, change.offset, error.columns)
        return found

    def rows(self) -> _Made:
        """All that was taken."""
        made = self._converted(self._taken)
        deletes = sum(made.flags(GONE)) if not self._shape.appends else 0
        return _Made(pack(made.table(), self._shape, self._key), len(made) - deletes, deletes)

    def _check(self, changes: Sequence[Change]) -> None:
        check_truncates(self._batch.claim, changes)
        for change in changes:
            if change.operation is Operation.TRUNCATE:
                raise ChangeError(
                    f"TRUNCATE cannot be written to {self._kind} tables. Delete its rows yourself and skip the event "
                    "(skip), or keep it out of the source topic (Debezium: skipped.operations=t)"
                )
            if not self._shape.appends or change.key:
                self._check_key(change)
            lacking = [name for name in change.row or () if name not in self._shape.columns]
            if lacking:
                raise _LackingColumnsError({name: (change.semantics or {}).get(name, "") for name in lacking})

    def _check_rules(self, made: GatheredRows) -> None:
        broken = broken_rule(self._shape, made)
        if broken is not None:
            raise ChangeError(f"the row violates {broken.text}. Correct it at the source. Or: {broken.advice}")

    def _check_key(self, change: Change) -> None:
        if not change.key:
            raise ChangeError(
                "the event has no key, so the row that it changes cannot be found. Add a primary key at the source, or "
                "set sink.mode: append"
            )
        if set(change.key) != set(self._key) or not set(change.key) <= self._shape.columns.keys():
            raise ChangeError(
                f"the event's key columns ({', '.join(change.key)}) are not the table's ({', '.join(self._key)}): give "
                "both the same primary key, or the connector message.key.columns"
            )

    def _converted(self, changes: Sequence[Change]) -> GatheredRows:
        found = GatheredRows(self._shape)
        if self._shape.appends:
            for change in changes:
                _check_whole(change)
                self._add(found, change, appended_row(change, self._batch.claim.topic))
        elif changes:
            self._add_latest(found, changes)
        return found

    def _add_latest(self, found: GatheredRows, changes: Sequence[Change]) -> None:
        """The last word per key. A row that was deleted and came back keeps nothing of the former."""
        are_alike = len(alike_runs(changes, self._key)) == 1
        reduced = reduce_changes(changes, self._key, None if are_alike else self._identity)
        recreated = {id(change) for change in reduced.deletes if change.operation is Operation.UPSERT}
        for change in reduced.deletes:
            if id(change) not in recreated:
                self._add(found, change, change.key)
        for change in reduced.upserts:
            row = self._completed(change, change.key | (change.row or {}))
            self._add(found, change, row, is_new=id(change) in recreated)

    def _identity(self, change: Change) -> tuple[object, ...]:
        """The key's values as the table has them. Raises UnwritableError."""
        readers, found = self._readers.of(change.semantics), list[object]()
        for name in self._key:
            try:
                found.append(readers[name](change.key[name]))
            except NotTextError as error:
                raise UnwritableError(change, name, str(error)) from error
        return tuple(found)

    def _completed(self, change: Change, row: Row) -> Row:
        """The row with the NULLs that its writer left out; without them the table would keep what it has there."""
        try:
            nulls = left_out(change.semantics, row, self._shape.columns)
        except LeftOutError as error:
            raise UnwritableError(change, error.column, str(error)) from error
        return row | dict.fromkeys(nulls) if nulls else row

    def _add(self, found: GatheredRows, change: Change, row: Row, *, is_new: bool = False) -> None:
        """``is_new``: the row has nothing of a former one with its key."""
        readers = self._readers.of(change.semantics)
        values: list[object] = []
        for name, read in readers.items():
            value = row.get(name, ABSENT)
            if value is ABSENT:
                self._check_optional(change, name)
                values.append(self._firsts.get(name) if is_new and name not in row else ABSENT)
                continue
            if value is None and name in self._shape.required:
                raise UnwritableError(change, name, "the value is NULL, and the column must have one. Make it optional")
            try:
                values.append(read(value))
            except NotTextError as error:
                raise UnwritableError(change, name, str(error)) from error
        is_partial = any(each is ABSENT for each in (change.row or {}).values())
        found.add(values, change, self._firsts, is_partial=is_partial)

    def _check_optional(self, change: Change, name: str) -> None:
        """A row that is appended has NULL for a column that its event lacks; of others the table may have a value."""
        if self._shape.appends and name in self._shape.required:
            what = "a deleted row has only its key" if change.row is None else "the event does not have it"
            raise UnwritableError(change, name, f"{what}, and the column must have a value. Make it optional")


def _check_whole(change: Change) -> None:
    column = next((name for name, value in (change.row or {}).items() if value is ABSENT), None)
    if column is not None:
        raise UnwritableError(
            change,
            column,
            "the event leaves the column out because it has not changed, and a row that is appended has nothing to "
            "take it from. Let the source send whole rows (PostgreSQL: REPLICA IDENTITY FULL), or exclude the column",
        )


class _Readers:
    """Readers of all columns, by what an event's schema declares. Events of one schema share the object."""

    def __init__(self, shape: LakeShape) -> None:
        self._shape = shape
        self._made: dict[int, tuple[Mapping[str, str] | None, dict[str, ReadValue]]] = {}

    def of(self, semantics: Mapping[str, str] | None) -> dict[str, ReadValue]:
        """Column → its reader."""
        _, found = self._made.get(id(semantics), (None, None))
        if found is None:
            known = semantics or {}
            own = self._shape.own_columns
            found = {
                name: self._shape.checked(
                    name,
                    reader_of(
                        type_,
                        None if name in own else known.get(name),
                        known.get(BINARY),
                        None if name in own else known.get(CONNECTOR),
                        known.get(DECIMALS),
                    ),
                )
                for name, type_ in self._shape.columns.items()
            }
            self._made[id(semantics)] = semantics, found
        return found
