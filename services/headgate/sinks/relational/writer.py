"""One batch, one transaction: stage the rows, move the positions under the fence, merge, commit.

The positions are moved before the merge, so that a writer whose epoch is over finds out before it touches the table;
and after the staging, so that the progress rows are locked only as long as the merge takes. (Only copied texts are
written without staging, behind the positions: docs/adr/0140.) The source table's row, which all partitions share,
comes last: the tasks of a table's first batch would merge one after the other otherwise.
Whatever goes wrong before the commit leaves nothing behind. When the answer to a commit is lost, the outcome is
unknown: the caller reads the positions.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Final, Generic, TypeVar

import msgspec

from headgate.config.crash_points import CrashPoint, reach
from headgate.databases.faults import Fault
from headgate.formats.reducing import Reduced
from headgate.sinks.contract import Applied, ChangeBatch, Claim, SinkError, SinkRefusedError
from headgate.sinks.relational.altered import TableAlteredError
from headgate.sinks.relational.batches import check_ranges, check_truncates, last_words, places_of
from headgate.sinks.relational.copied import check_key, reduced_copy, refused_rows, unmoved_batch, with_rows
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.grouping import Group, StagedTexts
from headgate.sinks.relational.parts import REFUSALS, apply_in_parts, is_refusal
from headgate.sinks.relational.session import RelationalSettings, Session
from headgate.sinks.relational.spelling import respelled, with_present_names
from headgate.sinks.relational.staging import StagingTable
from headgate.sinks.relational.table import RelationalTable
from headgate.sinks.row_copying import CopiedRows

__all__ = ["RelationalWriter"]

ATTEMPTS_MAX: Final = 3
"""Deadlocks and tables altered under a stage go away on a retry; what is still there after this stays."""

_ALTERED: Final = (Fault.ALTERED, Fault.TABLE_MISSING)
_CLEAR: Final = frozenset({Fault.VALUE, Fault.BETWEEN_ROWS, Fault.DEADLOCK, Fault.LOCK_WAIT, *_ALTERED})
"""Faults that do not come of an altered table, or certainly do. For others the table is compared with its stage."""

CHANGES_AT_ONCE_MAX: Final = 256
"""Changes that may come down to a few rows; more are staged without a look."""

STAGE_SECONDS: Final = 600.0
"""A stage is a temporary table. A table that is written now and then keeps its own; it costs a few ms to make again."""

S = TypeVar("S", bound=Session)
C = TypeVar("C")
E = TypeVar("E", bound=Exception)


class RelationalWriter(Generic[S, C, E]):
    """Applies batches of any table of the sink over one session, opened at the first batch and again after a loss."""

    def __init__(self, dialect: Dialect[S, C, E], settings: RelationalSettings) -> None:
        self._dialect = dialect
        self._settings = settings
        self._session: S | None = None
        self._stages: dict[str, StagingTable[S, C]] = {}
        self._used_at: dict[str, float] = {}
        """When each stage was last used (monotonic seconds)."""
        self._created = 0

    def apply(self, batch: ChangeBatch) -> Applied:
        """See the contract."""
        check_ranges(batch)
        dialect, table = self._dialect, batch.claim.table
        for attempt in range(1, ATTEMPTS_MAX + 1):
            with self._open(batch) as session:
                stage = self._stage(session, batch.claim)
                if stage.is_respelled:
                    batch = self._in_table_s_names(stage, batch) or batch
                try:
                    applied = self._apply_at_once(session, stage, batch) if attempt == 1 else None
                    if applied is not None:
                        return applied
                    session.mark(batch.claim)
                    try:
                        return self._apply(session, stage, batch)
                    except (dialect.error, *REFUSALS) as error:
                        if not is_refusal(dialect, error):
                            raise
                        self._read_known(session, stage, batch.claim)
                        again = self._in_table_s_names(stage, batch)
                        if again is not None and attempt < ATTEMPTS_MAX:
                            stage.is_respelled = True
                            batch = again
                            continue
                        # Judged by the table as it is now: a user may have widened the column since.
                        return apply_in_parts(dialect, session, self._fresh_stage(session, batch.claim), batch)
                except (dialect.error, SinkRefusedError, TableAlteredError) as error:
                    fault = dialect.fault_of(error) if isinstance(error, dialect.error) else Fault.ALTERED
                    if fault not in _CLEAR and self._is_altered(session, batch.claim):
                        fault = Fault.ALTERED
                    if attempt == ATTEMPTS_MAX or fault not in (*_ALTERED, Fault.DEADLOCK):
                        raise
                    if fault in _ALTERED:
                        self._forget_stage(table)
        raise AssertionError

    def copy(self, rows: CopiedRows) -> Applied:
        """See RowCopyingWriter."""
        dialect, batch = self._dialect, unmoved_batch(rows)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            with self._open(batch) as session:
                session.mark(rows.claim)
                if rows.mark is not None:
                    self._dialect.progress(session).tables.create_row_copies()
                stage = self._fresh_stage(session, rows.claim)
                check_key(stage.table, rows)
                written = rows if rows.texts is not None and stage.takes_texts(rows.texts) else with_rows(rows)
                try:
                    return self._commit(session, stage, batch, self._copied(stage, written), written)
                except (dialect.error, TableAlteredError, *REFUSALS) as error:
                    if is_refusal(dialect, error):
                        if written.texts is not None:
                            return self.copy(with_rows(rows))
                        raise refused_rows(dialect, stage.table, error) from error
                    fault = dialect.fault_of(error) if isinstance(error, dialect.error) else Fault.ALTERED
                    if attempt == ATTEMPTS_MAX or fault not in (*_ALTERED, Fault.DEADLOCK):
                        raise
                    if fault in _ALTERED:
                        self._forget_stage(rows.claim.table)
        raise AssertionError

    def _copied(self, stage: StagingTable[S, C], rows: CopiedRows) -> Reduced:
        """The rows as changes, with the table's names of their columns."""
        found = reduced_copy(rows)
        spelled = respelled(found.upserts, stage.table) if self._dialect.columns_ignore_case else None
        return found if spelled is None else msgspec.structs.replace(found, upserts=list(spelled))

    def _in_table_s_names(self, stage: StagingTable[S, C], batch: ChangeBatch) -> ChangeBatch | None:
        """The batch with the table's names of its columns; None where it has them."""
        spelled = respelled(batch.changes, stage.table) if self._dialect.columns_ignore_case else None
        kept = stage.known
        changes = with_present_names(spelled or batch.changes, stage.table.columns, kept.former, kept.until) or spelled
        return None if changes is None else msgspec.structs.replace(batch, changes=changes)

    def close(self) -> None:
        """Let go of the session."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._stages.clear()
        self._used_at.clear()

    @contextmanager
    def _open(self, batch: ChangeBatch) -> Iterator[S]:
        claim = batch.claim
        try:
            if self._session is None or self._session.closed:
                self.close()
                self._session = self._dialect.connect(self._settings)
            yield self._session
        except self._dialect.error as error:
            doing = f"{claim.table} under epoch {claim.epoch}, {places_of(batch)}"
            refusal = self._dialect.sink_error(error, doing)
            if refusal.retryable:
                self.close()
            raise refusal from error
        except SinkError:
            raise
        except BaseException:
            self.close()  # interrupted: what the session was doing is not known
            raise

    def _stage(self, session: S, claim: Claim) -> StagingTable[S, C]:
        name = claim.table
        stage = self._stages.pop(name, None)
        if stage is None:
            self._drop_unused()
            session.mark(claim)
            table = self._load_table(session, claim)
            self._created += 1
            stage = self._dialect.stage(session, table, self._created)
            stage.fires = self._dialect.firing(session, table)
            stage.rounds = self._settings.rounds
            self._read_known(session, stage, claim)
        self._stages[name] = stage
        self._used_at[name] = monotonic()
        return stage

    def _read_known(self, session: S, stage: StagingTable[S, C], claim: Claim) -> None:
        """What the sink keeps of the table's columns, if it keeps anything."""
        if not self._settings.keeps_columns:
            return
        progress = self._dialect.progress(session)
        progress.tables.create_known_columns()
        stage.known = progress.known_columns(claim)
        stage.unknown = frozenset(stage.table.columns) - frozenset(stage.known.applied)

    def _drop_unused(self) -> None:
        """Drop stages of tables that have had no batch for long, such as those that other agents write by now."""
        now = monotonic()
        unused = [name for name in self._stages if now - self._used_at[name] > STAGE_SECONDS]
        for name in unused:
            self._forget_stage(name)

    def _load_table(self, session: S, claim: Claim) -> RelationalTable[C]:
        """The table that was claimed: what is fenced and what is written are found by one name."""
        name = self._dialect.progress(session).name_claimed(claim)
        return self._dialect.load_table(session, name, self._settings.keyless)

    def _fresh_stage(self, session: S, claim: Claim) -> StagingTable[S, C]:
        """The table's stage, made again if the table is no longer what the stage was made from."""
        stage = self._stage(session, claim)
        if self._load_table(session, claim) != stage.table:
            self._forget_stage(claim.table)
        return self._stage(session, claim)

    def _is_altered(self, session: S, claim: Claim) -> bool:
        """Whether the stage is not the table's any more, which can be why the database refused a statement."""
        try:
            return not session.closed and self._load_table(session, claim) != self._stages[claim.table].table
        except (self._dialect.error, SinkError):
            return False  # the statement's own error explains more

    def _forget_stage(self, name: str) -> None:
        del self._used_at[name]
        self._stages.pop(name).drop()

    def _apply_at_once(self, session: S, stage: StagingTable[S, C], batch: ChangeBatch) -> Applied | None:
        """The shorter way, if the dialect has one that takes the batch. It does not report what is wrong with it."""
        shorter = self._dialect.apply_at_once
        if shorter is None or batch.source_table is not None or len(batch.changes) > CHANGES_AT_ONCE_MAX:
            return None
        if stage.unknown and batch.changes:
            return None
        try:
            check_truncates(batch.claim, batch.changes)
            merged = shorter(session, stage, batch, last_words(batch.changes, stage.table.row_key))
        except REFUSALS:
            return None
        if merged is None:
            return None
        reach(CrashPoint.COMMITTED)
        positions = {partition: span.next for partition, span in batch.ranges.items()}
        return Applied(positions, merged.upserts, merged.updates, merged.deletes)

    def _apply(self, session: S, stage: StagingTable[S, C], batch: ChangeBatch) -> Applied:
        """The whole batch at once; a fault of its rows is raised as the database, or reducing, reports it."""
        claim, table = batch.claim, stage.table
        check_truncates(claim, batch.changes)
        return self._commit(session, stage, batch, last_words(batch.changes, table.row_key))

    def _commit(
        self,
        session: S,
        stage: StagingTable[S, C],
        batch: ChangeBatch,
        reduced: Reduced,
        copied: CopiedRows | None = None,
    ) -> Applied:
        """Apply ``reduced``, and move the positions as ``batch`` does, in one transaction.

        ``copied``: with its texts, and its mark.
        """
        claim, table, progress = batch.claim, stage.table, self._dialect.progress(session)
        texts, direct = None if copied is None else copied.texts, 0
        writes_texts = texts is not None and self._dialect.stages_in_transaction
        has_rows = bool(reduced.truncate or reduced.deletes or reduced.upserts or texts)
        with ExitStack() as transaction:
            if self._dialect.stages_in_transaction:
                transaction.enter_context(session.transaction())
            if copied is not None and texts is not None and writes_texts:
                progress.advance(claim, table.name, batch.ranges)
                others = stage.write_texts(texts)
                direct = texts.count - len(others)
                reduced = reduced_copy(msgspec.structs.replace(copied, upserts=others, texts=None))
            stages = bool(reduced.truncate or reduced.deletes or reduced.upserts or (texts and not writes_texts))
            groups: list[Group | StagedTexts] = [*stage.fill(reduced)] if stages else []
            if texts is not None and not writes_texts:
                groups.append(stage.stage_texts(len(groups) + 1, texts))
            reach(CrashPoint.ROWS_SENT)
            if not self._dialect.stages_in_transaction:
                transaction.enter_context(session.transaction())
            if not writes_texts:
                progress.advance(claim, table.name, batch.ranges)
            merged = stage.merge(reduced, groups)
            if has_rows:
                stage.check_version()
            progress.store_source_table(batch, table.name)
            if copied is not None and copied.mark is not None:
                progress.store_copy_mark(claim, table.name, copied.mark)
            stored = stage.unknown if has_rows else frozenset()
            progress.keep_columns(claim, table.name, stored)
            reach(CrashPoint.BEFORE_COMMIT)
        reach(CrashPoint.COMMITTED)
        stage.unknown -= stored
        positions = {partition: span.next for partition, span in batch.ranges.items()}
        return Applied(positions, merged.upserts + direct, merged.updates, merged.deletes)
