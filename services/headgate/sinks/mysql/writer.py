"""One batch: stage the rows; then in one transaction move the positions under the fence, merge, commit.

The positions are moved before the merge, so that a writer whose epoch is over finds out before it touches the table;
and after the staging, so that the progress rows are locked only as long as the merge takes. Whatever goes wrong
before the commit leaves nothing behind. When the answer to a commit is lost, the outcome is unknown: the caller reads
the positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pymysql

from headgate.config.crash_points import CrashPoint, reach
from headgate.sinks.contract import Applied, ChangeBatch, SinkError, SinkRefusedError
from headgate.sinks.mysql.catalog import load_table
from headgate.sinks.mysql.connection import MysqlSettings, Session, connect, errno, sink_error
from headgate.sinks.mysql.parts import REFUSALS, apply_in_parts, is_refusal
from headgate.sinks.mysql.progress import advance
from headgate.sinks.mysql.source_tables import store_source_table
from headgate.sinks.mysql.staging import Stage
from headgate.sinks.relational.altered import TableAlteredError
from headgate.sinks.relational.batches import check_ranges, check_truncates, last_words, places_of

__all__ = ["MysqlWriter"]

ATTEMPTS_MAX: Final = 3
"""Deadlocks and tables altered under a stage go away when tried again; what is still there after this stays."""

_DEADLOCK: Final = 1213
_ALTERED: Final = frozenset({1054, 1109, 1136, 1146, 1412})


class MysqlWriter:
    """Applies batches of any table of the sink over one session, opened at the first batch and again after a loss."""

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._stages: dict[str, Stage] = {}
        self._created = 0

    def apply(self, batch: ChangeBatch) -> Applied:
        """See the contract."""
        check_ranges(batch)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            with self._open(batch) as session:
                stage = self._stage(session, batch.claim.table)
                try:
                    try:
                        return _apply(session, stage, batch)
                    except (*REFUSALS, pymysql.Error) as error:
                        if not is_refusal(error):
                            raise
                        # Judged by the table as it is now: somebody may have widened the column meanwhile.
                        return apply_in_parts(session, self._fresh_stage(session, batch.claim.table), batch)
                except (pymysql.Error, SinkRefusedError, TableAlteredError) as error:
                    altered = isinstance(error, SinkRefusedError | TableAlteredError) or errno(error) in _ALTERED
                    if attempt == ATTEMPTS_MAX or not (altered or errno(error) == _DEADLOCK):
                        raise
                    if altered:
                        self._forget_stage(batch.claim.table)
        raise AssertionError

    def close(self) -> None:
        """Let go of the session."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._stages.clear()

    @contextmanager
    def _open(self, batch: ChangeBatch) -> Iterator[Session]:
        claim = batch.claim
        try:
            if self._session is None or self._session.closed:
                self.close()
                self._session = connect(self._settings)
            yield self._session
        except pymysql.Error as error:
            refusal = sink_error(error, f"{claim.table} under epoch {claim.epoch}, {places_of(batch)}")
            if refusal.retryable:
                self.close()
            raise refusal from error
        except SinkError:
            raise
        except BaseException:
            self.close()  # interrupted: what the session was doing is not known
            raise

    def _stage(self, session: Session, name: str) -> Stage:
        stage = self._stages.get(name)
        if stage is None:
            table = load_table(session, name, keyless=self._settings.keyless)
            self._created += 1
            stage = self._stages[name] = Stage(session, table, self._created)
        return stage

    def _fresh_stage(self, session: Session, name: str) -> Stage:
        """The table's stage, made anew if the table is no longer what the stage was made from."""
        stage = self._stage(session, name)
        if load_table(session, name, keyless=self._settings.keyless) != stage.table:
            self._forget_stage(name)
        return self._stage(session, name)

    def _forget_stage(self, name: str) -> None:
        self._stages.pop(name).drop()


def _apply(session: Session, stage: Stage, batch: ChangeBatch) -> Applied:
    """The whole batch at once; what its rows are to blame for is raised as the database, or reducing, says it."""
    claim, table = batch.claim, stage.table
    check_truncates(claim, batch.changes)
    reduced = last_words(batch.changes, table.key)
    groups = stage.fill(reduced) if batch.changes else []
    reach(CrashPoint.ROWS_SENT)
    with session.transaction():
        advance(session, claim, table.name, batch.ranges)
        store_source_table(session, batch, table.name)
        merged = stage.merge(reduced, groups)
        if batch.changes:
            stage.check_version()
        reach(CrashPoint.BEFORE_COMMIT)
    reach(CrashPoint.COMMITTED)
    positions = {partition: span.next for partition, span in batch.ranges.items()}
    return Applied(positions, merged.upserts, merged.updates, merged.deletes)
