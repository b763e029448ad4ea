"""When a batch as a whole is refused: its longest prefix per partition, in the order of the log.

The last words of a batch can break a rule that its changes one after the other would not (a unique value handed from
row to row), and one bad value must not hold back the good changes before it. So the batch is halved until what is
left is applied or is one single change that is refused; what stands before it is committed with its positions, in one
transaction. Partitions are tried in turn until none gets further, because one may need what another brings.
"""

from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import errors

from headgate.changes.change import Change, ChangeError
from headgate.changes.reducing import reduce_changes
from headgate.config.crash_points import CrashPoint, reach
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    ConstraintViolatedError,
    OffsetRange,
    SinkError,
    ValueRefusedError,
)
from headgate.sinks.postgresql.catalog import Connection
from headgate.sinks.postgresql.progress import advance
from headgate.sinks.postgresql.staging import Merged, OrphanRowsError, Stage, UnwritableError

__all__ = ["REFUSALS", "apply_prefix"]

REFUSALS: Final = (
    UnwritableError,
    OrphanRowsError,
    UnicodeEncodeError,
    psycopg.IntegrityError,
    psycopg.DataError,
    errors.CardinalityViolation,  # two keys of the batch are one to the sink (citext, 1.0 and 1.00)
    errors.ProgramLimitExceeded,  # a value too long for an index
    errors.RaiseException,  # the sink's own triggers
)
"""What the rows, not the sink, are to blame for."""

_BETWEEN_ROWS: Final = (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)


class _Prefix:
    """Applies changes within the caller's transaction, as far as they go."""

    def __init__(self, connection: Connection, stage: Stage, batch: ChangeBatch) -> None:
        self._connection = connection
        self._stage = stage
        self._batch = batch
        self.upserts = self.updates = self.deletes = 0

    def _merge(self, changes: Sequence[Change]) -> None:
        with self._connection.transaction():
            reduced = reduce_changes(changes, self._stage.table.key)
            merged: Merged = self._stage.merge(reduced, self._stage.fill(reduced))
        self.upserts += merged.upserts
        self.updates += merged.updates
        self.deletes += merged.deletes

    def longest(self, changes: Sequence[Change]) -> tuple[int, SinkError | None]:
        """How many of the changes were applied, and what is wrong with the one after them."""
        try:
            self._merge(changes)
        except (*REFUSALS, ChangeError) as error:
            if len(changes) == 1:
                return 0, self._refusal(changes[0], error)
        else:
            return len(changes), None
        half = len(changes) // 2
        done, refusal = self.longest(changes[:half])
        if refusal is not None:
            return done, refusal
        more, refusal = self.longest(changes[half:])
        return half + more, refusal

    def _refusal(self, change: Change, error: Exception) -> SinkError:
        table, topic = self._stage.table.name, self._batch.claim.topic
        column, reason = None, str(error)
        if isinstance(error, UnwritableError):
            column = error.column
        elif isinstance(error, OrphanRowsError):
            reason = (
                "the event leaves out columns that have not changed, but the sink has no such row: it was never copied "
                "or removed by hand; snapshot the table again"
            )
        elif isinstance(error, psycopg.Error):
            column = error.diag.column_name
            detail = error.diag.message_detail
            reason = (error.diag.message_primary or reason) + (f" ({detail})" if detail else "")
        where = table if column is None else f"{table}, column {column}"
        text = f"{where}: {reason} [topic {topic}, partition {change.partition}, offset {change.offset}]"
        return ConstraintViolatedError(text) if isinstance(error, _BETWEEN_ROWS) else ValueRefusedError(text)


def apply_prefix(connection: Connection, stage: Stage, batch: ChangeBatch) -> Applied:
    """Commit the longest prefix per partition. Raises ValueRefusedError or ConstraintViolatedError if there is none."""
    claim, table = batch.claim, stage.table.name
    waiting: dict[int, Sequence[Change]] = {
        partition: [change for change in batch.changes if change.partition == partition]
        for partition in sorted(batch.ranges)
    }
    with connection.transaction():
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        unmoved = {partition: OffsetRange(span.expected, span.expected) for partition, span in batch.ranges.items()}
        advance(connection, claim, table, unmoved)  # the fence, and the locks, before the table is touched
        prefix = _Prefix(connection, stage, batch)
        refusals, applied = _rounds(prefix, waiting)
        if refusals and not applied:
            raise refusals[min(refusals)]
        reached = {
            partition: OffsetRange(span.expected, waiting[partition][0].offset if waiting[partition] else span.next)
            for partition, span in batch.ranges.items()
        }
        advance(connection, claim, table, reached)
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    positions = {partition: span.next for partition, span in reached.items()}
    return Applied(positions, prefix.upserts, prefix.updates, prefix.deletes)


def _rounds(prefix: _Prefix, waiting: dict[int, Sequence[Change]]) -> tuple[dict[int, SinkError], int]:
    """Try all partitions in turn until none gets further: who is stuck and why, and how many changes were applied."""
    applied = 0
    while True:
        refusals: dict[int, SinkError] = {}
        progress = 0
        for partition, changes in waiting.items():
            if not changes:
                continue
            done, refusal = prefix.longest(changes)
            waiting[partition] = changes[done:]
            progress += done
            if refusal is not None:
                refusals[partition] = refusal
        applied += progress
        if not refusals or not progress:
            return refusals, applied
