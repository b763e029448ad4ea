"""Writes copied rows, and knows how far a request to copy a whole table is.

The rows of a range and the end of the range are one step. A ledger cannot be written together with its table, so it
first gets a numbered range, and then the commit of the rows has that number: the table decides whether the range is
written. A process that is killed in between leaves a range that is copied again, or one that is done.
"""

from collections.abc import Mapping

from headgate.config.crash_points import CrashPoint, reach
from headgate.formats.change import ABSENT, CONNECTOR, Change, Operation, Row
from headgate.records.control import Positions
from headgate.sinks.contract import Applied, Claim, OffsetRange
from headgate.sinks.lake.appended import copied_row
from headgate.sinks.lake.attempts import until_committed
from headgate.sinks.lake.claims import Claims, about_attempt
from headgate.sinks.lake.committing import named_rows, position_stamp
from headgate.sinks.lake.copied_values import copied_reader_of
from headgate.sinks.lake.history import COPY, COPY_CONTINUES, COPY_ENDED
from headgate.sinks.lake.rules import broken_rule
from headgate.sinks.lake.shape import LakeShape, shape_of
from headgate.sinks.lake.staged_rows import GatheredRows
from headgate.sinks.lake.tables import Lake, Stamp, Upserts, VersionedTable, copy_key
from headgate.sinks.lake.values import ReadValue
from headgate.sinks.relational.times import NotTextError
from headgate.sinks.row_copying import CopiedRows, CopyMark, RowsRefusedError

__all__ = ["LakeCopier"]


class LakeCopier:
    """Copies rows into tables of one lake."""

    def __init__(self, lake: Lake, claims: Claims, *, appends: bool) -> None:
        self._lake = lake
        self._claims = claims
        self._appends = appends

    def copied(self, claim: Claim, request: str) -> CopyMark:
        """See RowCopyingSink."""
        with self._lake.as_sink_errors(f"reading how far {claim.table} is copied"):
            return self._claims.copied(claim, request, self._lake.table(claim.table))

    def copy(self, rows: CopiedRows) -> Applied:
        """See RowCopyingWriter."""
        claim = rows.claim
        ranges = {partition: OffsetRange(at, at) for partition, at in sorted(rows.positions.items())}

        def attempt() -> None:
            table = self._claims.held_table(claim, ranges)
            number = None if rows.mark is None else self._claims.begin_range(claim, ranges, table, rows.mark)
            reach(CrashPoint.ROWS_SENT)
            self._write(rows, ranges, table, number)

        doing = f"copying rows to {about_attempt(claim)}"
        with self._lake.as_sink_errors(doing):
            until_committed(doing, attempt)
        reach(CrashPoint.COMMITTED)
        return Applied(rows.positions, len(rows.upserts), 0, len(rows.deletes))

    def _write(
        self, rows: CopiedRows, ranges: Mapping[int, OffsetRange], table: VersionedTable, number: int | None
    ) -> None:
        stamp = position_stamp(rows.claim, ranges)
        if rows.mark is not None and number is not None:
            copy = {COPY: COPY_ENDED if rows.mark.is_done else COPY_CONTINUES}
            stamp = Stamp({**stamp.transactions, copy_key(rows.claim): number}, {**stamp.about, **copy})
        shape = shape_of(table, rows.claim.table, appends=self._appends)
        _check_key(shape, rows)
        made = _converted(shape, rows)
        broken = broken_rule(shape, made)
        if broken is not None:
            raise RowsRefusedError(
                f"table {rows.claim.table}: a row violates {broken.text}. Correct it at the source. Or: {broken.advice}"
            )
        if not len(made):
            table.mark(stamp)
        elif self._appends:
            table.append(named_rows(made.table(), shape), stamp)
        else:
            table.upsert(Upserts(made.table(), tuple(shape.columns), rows.key), stamp)


def _check_key(shape: LakeShape, rows: CopiedRows) -> None:
    """Raise RowsRefusedError unless rows can be found by the columns that they were chosen by."""
    if shape.key and set(shape.key) != set(rows.key):
        raise RowsRefusedError(
            f"table {rows.claim.table}: rows were named by {', '.join(rows.key)}, and the sink finds them by "
            f"{', '.join(shape.key)}"
        )
    if shape.appends and len(rows.positions) != 1:
        raise RowsRefusedError(
            f"table {rows.claim.table} has a row for every change (sink.mode: append), and a copied row needs its "
            f"place among the changes of one partition. The topic has {len(rows.positions)}"
        )
    if shape.appends and rows.deletes:
        raise RowsRefusedError(
            f"table {rows.claim.table} has a row for every change (sink.mode: append), and none is ever deleted"
        )


def _converted(shape: LakeShape, rows: CopiedRows) -> GatheredRows:
    kinds = rows.semantics or {}
    connector = kinds.get(CONNECTOR)
    readers = {
        name: shape.checked(name, copied_reader_of(type_, kinds.get(name), connector))
        for name, type_ in shape.columns.items()
        if name not in shape.own_columns
    }
    found = GatheredRows(shape)
    own = _own_values(rows.claim.topic, rows.positions) if shape.appends else {}
    for operation, values in ((Operation.DELETE, rows.deletes), (Operation.UPSERT, rows.upserts)):
        for row in values:
            place = Change(0, 0, operation, {}, None, None, 0)
            read = [own[name] if name in own else _value(shape, rows, readers, name, row) for name in shape.columns]
            found.add(read, place, is_partial=False)
    return found


def _own_values(topic: str, positions: Positions) -> Row:
    ((partition, offset),) = positions.items()  # see _check_key
    return copied_row(topic, partition, offset)


def _value(shape: LakeShape, rows: CopiedRows, readers: Mapping[str, ReadValue], name: str, row: Row) -> object:
    value = row.get(name, ABSENT)
    if value is ABSENT:
        return None if shape.appends else ABSENT
    if value is None and name in shape.required:
        raise RowsRefusedError(
            f"{rows.claim.table}, column {name}: the value is NULL, and the column must have one. Make it optional"
        )
    try:
        return readers[name](value)
    except NotTextError as error:
        raise RowsRefusedError(f"{rows.claim.table}, column {name}: {error}") from error
