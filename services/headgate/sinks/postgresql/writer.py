"""One batch, one transaction: stage the rows, move the positions under the fence, merge, commit.

The positions are moved before the merge, so that a writer whose epoch is over finds out before it touches the table;
and after the staging, so that the progress rows are locked only as long as the merge takes. Whatever goes wrong
before the commit leaves nothing behind. When the answer to a commit is lost, the outcome is unknown: the caller reads
the positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg import errors

from headgate.config.crash_points import CrashPoint, reach
from headgate.formats.change import ChangeError
from headgate.sinks.contract import Applied, ChangeBatch, SinkError, SinkRefusedError
from headgate.sinks.postgresql.catalog import Connection, load_table
from headgate.sinks.postgresql.connection import Label, PostgresSettings, connect, sink_error
from headgate.sinks.postgresql.parts import REFUSALS, apply_in_parts
from headgate.sinks.postgresql.progress import advance
from headgate.sinks.postgresql.source_tables import store_source_table
from headgate.sinks.postgresql.staging import Stage
from headgate.sinks.relational.altered import TableAlteredError
from headgate.sinks.relational.batches import check_ranges, check_truncates, last_words, places_of

__all__ = ["PostgresWriter"]

ATTEMPTS_MAX: Final = 3
"""Deadlocks and tables altered under a stage go away when tried again; what is still there after this stays."""

_ALTERED: Final = (
    errors.UndefinedColumn,
    errors.UndefinedTable,
    errors.DatatypeMismatch,
    errors.InvalidColumnReference,
    errors.FeatureNotSupported,  # a cached plan whose result type has changed
)
_AGAIN: Final = (errors.DeadlockDetected, errors.SerializationFailure)


class PostgresWriter:
    """Applies batches of any table of the sink over one session, opened at the first batch and again after a loss."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._stages: dict[str, Stage] = {}
        self._created = 0
        self._label: Label | None = None

    def apply(self, batch: ChangeBatch) -> Applied:
        """See the contract."""
        check_ranges(batch)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            with self._session(batch) as connection:
                stage = self._stage(connection, batch.claim.table)
                try:
                    try:
                        return _apply(connection, stage, batch)
                    except (*REFUSALS, ChangeError):
                        # Judged by the table as it is now: somebody may have widened the column meanwhile.
                        return apply_in_parts(connection, self._fresh_stage(connection, batch.claim.table), batch)
                except (*_AGAIN, *_ALTERED, SinkRefusedError, TableAlteredError) as error:
                    if attempt == ATTEMPTS_MAX:
                        raise
                    if not isinstance(error, _AGAIN):
                        self._forget_stage(batch.claim.table)
        raise AssertionError

    def close(self) -> None:
        """Let go of the session."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None
        self._label = None
        self._stages.clear()

    @contextmanager
    def _session(self, batch: ChangeBatch) -> Iterator[Connection]:
        claim = batch.claim
        try:
            if self._connection is None or self._connection.closed:
                self.close()
                self._connection = connect(self._settings)
            label = Label.of(claim)
            if label != self._label:
                self._connection.execute("SELECT set_config('application_name', %s, false)", (str(label),))
                self._label = label
            yield self._connection
        except psycopg.Error as error:
            refusal = sink_error(error, f"{claim.table} under epoch {claim.epoch}, {places_of(batch)}")
            if refusal.retryable:
                self.close()
            raise refusal from error
        except SinkError:
            raise
        except BaseException:
            self.close()  # interrupted: what the session was doing is not known
            raise

    def _stage(self, connection: Connection, name: str) -> Stage:
        stage = self._stages.get(name)
        if stage is None:
            table = load_table(connection, name, keyless=self._settings.keyless)
            self._created += 1
            stage = self._stages[name] = Stage(connection, table, self._created)
        return stage

    def _fresh_stage(self, connection: Connection, name: str) -> Stage:
        """The table's stage, made anew if the table is no longer what the stage was made from."""
        stage = self._stage(connection, name)
        if load_table(connection, name, keyless=self._settings.keyless) != stage.table:
            self._forget_stage(name)
        return self._stage(connection, name)

    def _forget_stage(self, name: str) -> None:
        self._stages.pop(name).drop()


def _apply(connection: Connection, stage: Stage, batch: ChangeBatch) -> Applied:
    """The whole batch at once; what its rows are to blame for is raised as the database, or reducing, says it."""
    claim, table = batch.claim, stage.table
    check_truncates(claim, batch.changes)
    reduced = last_words(batch.changes, table.key)
    with connection.transaction():
        groups = stage.fill(reduced) if batch.changes else []
        reach(CrashPoint.ROWS_SENT)
        advance(connection, claim, table.name, batch.ranges)
        store_source_table(connection, batch, table.name)
        merged = stage.merge(reduced, groups)
        if batch.changes:
            stage.check_version()
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    positions = {partition: span.next for partition, span in batch.ranges.items()}
    return Applied(positions, merged.upserts, merged.updates, merged.deletes)
