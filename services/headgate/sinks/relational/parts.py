"""Applies parts of a batch that the sink refused as a whole, and interprets its refusals (see bisection).

Everything happens in one transaction, each attempt under a savepoint; the fence is checked first, and changes to set
aside are safe elsewhere before the commit. A stage that takes no part in the transaction is emptied each time.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.config.crash_points import CrashPoint, reach
from headgate.databases.faults import Fault
from headgate.formats.change import Change, ChangeError
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    ChangeRefusedError,
    ConstraintViolatedError,
    ValueRefusedError,
)
from headgate.sinks.lacking_columns import LackingColumnsError
from headgate.sinks.relational.batches import ORPHANS, check_truncates, refused_change, unmoved, words_by_part
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.grouping import ColumnsMissingError, Merged, OrphanRowsError, UnwritableError
from headgate.sinks.relational.keys import FoldedKeysError
from headgate.sinks.relational.passed_over import PassedOverError
from headgate.sinks.relational.session import Session
from headgate.sinks.relational.staging import StagingTable

__all__ = ["REFUSALS", "apply_in_parts", "is_refusal"]

REFUSALS: Final = (
    UnwritableError, OrphanRowsError, FoldedKeysError, PassedOverError, UnicodeEncodeError, ChangeError
)  # fmt: skip
"""What single rows are refused for, besides the database's errors of two faults."""


def is_refusal(dialect: Dialect[Any, Any, Any], error: Exception) -> bool:
    """Whether the rows are to blame, and parts of the batch should be tried."""
    if isinstance(error, dialect.error):
        return dialect.fault_of(error) in (Fault.VALUE, Fault.BETWEEN_ROWS)
    return isinstance(error, REFUSALS)


class _Trial:
    """Tries changes within the caller's transaction."""

    def __init__(
        self, dialect: Dialect[Any, Any, Any], session: Session, stage: StagingTable[Any, Any], batch: ChangeBatch
    ) -> None:
        self._dialect = dialect
        self._session = session
        self._stage = stage
        self._claim = batch.claim
        self.upserts = self.updates = self.deletes = 0

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """See Trial."""
        try:
            with self._session.savepoint():
                merged = [each for changes in parts for each in self._merge(changes)]
        except (self._dialect.error, *REFUSALS) as error:
            if not is_refusal(self._dialect, error):
                raise
            return error
        self.upserts += sum(each.upserts for each in merged)
        self.updates += sum(each.updates for each in merged)
        self.deletes += sum(each.deletes for each in merged)
        return None

    def _merge(self, changes: Sequence[Change]) -> list[Merged]:
        check_truncates(self._claim, changes)
        found = words_by_part(changes, self._stage.table.row_key)
        return [self._stage.merge(reduced, self._stage.fill(reduced)) for reduced in found]

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """See Trial."""
        if isinstance(error, ColumnsMissingError):
            place = f"topic {self._claim.topic}, partition {change.partition}, offset {change.offset}"
            text = f"{error.reason}, which the event at {place} has: {error.advice}"
            return LackingColumnsError(text, change.partition, change.offset, error.columns)
        table, column, reason = self._stage.table, None, str(error)
        waits = isinstance(error, ORPHANS)
        if isinstance(error, self._dialect.error):
            column, reason = self._dialect.words_of(error)
            waits = self._dialect.fault_of(error) is Fault.BETWEEN_ROWS
        elif isinstance(error, FoldedKeysError):
            reason = self._dialect.folded.format(columns=", ".join(table.folding))
        kind = ConstraintViolatedError if waits else ValueRefusedError
        return refused_change(
            kind, table.name, self._claim.topic, change, error, column=column, reason=reason, key=table.key
        )


def apply_in_parts(
    dialect: Dialect[Any, Any, Any], session: Session, stage: StagingTable[Any, Any], batch: ChangeBatch
) -> Applied:
    """Commit what can be applied (see bisect_batch). Raises SinkError if that is nothing."""
    claim, table, progress = batch.claim, stage.table.name, dialect.progress(session)
    with session.transaction():
        progress.advance(claim, table, unmoved(batch))  # the fence, and the locks, before the table is touched
        progress.store_source_table(batch, table)
        stage.begin_trials()
        stage.check_version()  # what is refused must be judged by the table as it is
        trial = _Trial(dialect, session, stage, batch)
        found = bisect_batch(trial, batch)
        progress.advance(claim, table, found.ranges)
        if found.refused and batch.quarantine is not None:
            batch.quarantine.keep(found.refused)
        progress.keep_columns(claim, table, stage.unknown)
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    stage.unknown = frozenset()
    positions = {partition: span.next for partition, span in found.ranges.items()}
    return Applied(positions, trial.upserts, trial.updates, trial.deletes, len(found.refused))
