"""When PostgreSQL refuses a batch as a whole: how it tries parts of it, and what its refusals mean (see bisection).

Everything happens in one transaction, each attempt under a savepoint; the fence is asked first, and what is to be set
aside is safe elsewhere before the commit.
"""

from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg import errors

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
from headgate.sinks.postgresql.catalog import Connection
from headgate.sinks.postgresql.progress import advance
from headgate.sinks.postgresql.source_tables import store_source_table
from headgate.sinks.postgresql.staging import Stage
from headgate.sinks.relational.batches import ORPHANS, check_truncates, last_words, refused_change, unmoved
from headgate.sinks.relational.grouping import Merged, OrphanRowsError, UnwritableError
from headgate.sinks.relational.keys import FoldedKeysError

__all__ = ["REFUSALS", "apply_in_parts"]

REFUSALS: Final = (
    UnwritableError,
    OrphanRowsError,
    FoldedKeysError,
    UnicodeEncodeError,
    psycopg.IntegrityError,
    psycopg.DataError,
    errors.CardinalityViolation,  # two keys of the batch are one to the sink (citext, 1.0 and 1.00)
    errors.ProgramLimitExceeded,  # a value too long for an index
    errors.RaiseException,  # the sink's own triggers
)
"""What the rows, not the sink, are to blame for."""

_BETWEEN_ROWS: Final = (errors.UniqueViolation, errors.ForeignKeyViolation, errors.ExclusionViolation)


class _Trial:
    """Tries changes within the caller's transaction."""

    def __init__(self, connection: Connection, stage: Stage, batch: ChangeBatch) -> None:
        self._connection = connection
        self._stage = stage
        self._claim = batch.claim
        self.upserts = self.updates = self.deletes = 0

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """See Trial."""
        try:
            with self._connection.transaction():
                merged = [self._merge(changes) for changes in parts]
        except (*REFUSALS, ChangeError) as error:
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
        column, reason = None, str(error)
        if isinstance(error, psycopg.Error):
            column = error.diag.column_name
            detail = error.diag.message_detail
            reason = (error.diag.message_primary or reason) + (f" ({detail})" if detail else "")
        if isinstance(error, FoldedKeysError):
            reason = (
                f"another row has a key that column {', '.join(self._stage.table.folding)} takes for the same (citext, "
                "or a collation that is not deterministic): make it text with a deterministic collation"
            )
        kind = ConstraintViolatedError if isinstance(error, (*_BETWEEN_ROWS, *ORPHANS)) else ValueRefusedError
        return refused_change(
            kind, self._stage.table.name, self._claim.topic, change, error, column=column, reason=reason
        )


def apply_in_parts(connection: Connection, stage: Stage, batch: ChangeBatch) -> Applied:
    """Commit what can be applied (see bisect_batch). Raises SinkError if that is nothing."""
    claim, table = batch.claim, stage.table.name
    with connection.transaction():
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        advance(connection, claim, table, unmoved(batch))  # the fence, and the locks, before the table is touched
        store_source_table(connection, batch, table)
        stage.lock()
        stage.check_version()  # what is refused is to be judged by the table as it is
        trial = _Trial(connection, stage, batch)
        found = bisect_batch(trial, batch)
        advance(connection, claim, table, found.ranges)
        if found.refused and batch.quarantine is not None:
            batch.quarantine.keep(found.refused)
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    positions = {partition: span.next for partition, span in found.ranges.items()}
    return Applied(positions, trial.upserts, trial.updates, trial.deletes, len(found.refused))
