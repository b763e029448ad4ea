"""When the sink refuses a batch as a whole: how it tries parts of it, and what its refusals mean (see bisection).

Everything happens in one transaction, each attempt under a savepoint; the fence is asked first, and what is to be set
aside is safe elsewhere before the commit. The stage takes no part in the transaction: it is emptied each time.
"""

from collections.abc import Sequence
from typing import Final

import pymysql

from headgate.config.crash_points import CrashPoint, reach
from headgate.formats.change import Change, ChangeError
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    ChangeRefusedError,
    ConstraintViolatedError,
    ValueRefusedError,
)
from headgate.sinks.mysql.connection import Session, errno, message
from headgate.sinks.mysql.progress import advance
from headgate.sinks.mysql.source_tables import store_source_table
from headgate.sinks.mysql.staging import BAD_VALUES, Stage
from headgate.sinks.relational.batches import ORPHANS, check_truncates, last_words, refused_change, unmoved
from headgate.sinks.relational.grouping import Merged, OrphanRowsError, UnwritableError
from headgate.sinks.relational.keys import FoldedKeysError

__all__ = ["REFUSALS", "apply_in_parts", "is_refusal"]

REFUSALS: Final = (UnwritableError, OrphanRowsError, FoldedKeysError, UnicodeEncodeError, ChangeError)
"""What the rows, not the sink, are to blame for; besides the errors of BAD_VALUES."""

_BETWEEN_ROWS: Final = frozenset({1062, 1586, 1216, 1217, 1451, 1452, 1761, 1762})


def is_refusal(error: Exception) -> bool:
    """Whether the rows are to blame, and parts of the batch should be tried."""
    return isinstance(error, REFUSALS) or (isinstance(error, pymysql.Error) and errno(error) in BAD_VALUES)


class _Trial:
    """Tries changes within the caller's transaction."""

    def __init__(self, session: Session, stage: Stage, batch: ChangeBatch) -> None:
        self._session = session
        self._stage = stage
        self._claim = batch.claim
        self.upserts = self.updates = self.deletes = 0

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """See Trial."""
        try:
            with self._session.savepoint():
                merged = [self._merge(changes) for changes in parts]
        except (*REFUSALS, pymysql.Error) as error:
            if not is_refusal(error):
                raise
            return error
        self.upserts += sum(each.upserts for each in merged)
        self.updates += sum(each.updates for each in merged)
        self.deletes += sum(each.deletes for each in merged)
        return None

    def _merge(self, changes: Sequence[Change]) -> Merged:
        check_truncates(self._claim, changes)
        reduced = last_words(changes, self._stage.table.key)
        return self._stage.merge(reduced, self._stage.fill(reduced))

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """See Trial."""
        reason = message(error)
        if isinstance(error, FoldedKeysError):
            reason = (
                f"another row has a key that the collation of column {', '.join(self._stage.table.folding)} takes for "
                "the same: give the key a collation that ends in _nopad_bin (MariaDB) or _0900_bin (MySQL); the others "
                "take 'a' and 'a ' for one"
            )
        waits = errno(error) in _BETWEEN_ROWS or isinstance(error, ORPHANS)
        kind = ConstraintViolatedError if waits else ValueRefusedError
        return refused_change(
            kind, self._stage.table.name, self._claim.topic, change, error, column=None, reason=reason
        )


def apply_in_parts(session: Session, stage: Stage, batch: ChangeBatch) -> Applied:
    """Commit what can be applied (see bisect_batch). Raises SinkError if that is nothing."""
    claim, table = batch.claim, stage.table.name
    with session.transaction():
        advance(session, claim, table, unmoved(batch))  # the fence, and the locks, before the table is touched
        store_source_table(session, batch, table)
        stage.lock()
        stage.check_version()  # what is refused is to be judged by the table as it is
        trial = _Trial(session, stage, batch)
        found = bisect_batch(trial, batch)
        advance(session, claim, table, found.ranges)
        if found.refused and batch.quarantine is not None:
            batch.quarantine.keep(found.refused)
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    positions = {partition: span.next for partition, span in found.ranges.items()}
    return Applied(positions, trial.upserts, trial.updates, trial.deletes, len(found.refused))
