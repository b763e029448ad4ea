"""Strategy ``triggers``: a copy of the table in its new form is filled beside it, kept in step, and put in its place.

    start     the shadow, triggers that keep it in step, then the copy begins on a thread of the owner
    watch     how far it is; ready once every range has been copied and compared
    cut over  the shadow takes the table's place; the table before stays as an artifact
    adopt     another owner's migration: has it been cut over? else the copy goes on from the last range on the log

The copy is ranges of the shared key in order. The record's note says up to which key every row is copied: a new owner
goes on there, and a range that was copied twice adds nothing. Then the same ranges are compared, each at one moment: a
difference ends the migration before the table is touched.

Rows never leave the server: they do not pass through Spark, as those of strategy ``online`` do.
"""

import time
from typing import Any, Final

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.strategies.contract import (
    Chunk,
    DatabaseUnavailableError,
    LockUnavailableError,
    Memory,
    Plan,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.copying import CopyingStrategy, CopyWork, noted_key, read_key
from headgate.migration.strategies.examining import checked_plan, plan_copy
from headgate.migration.strategies.no_way_back import revert_refused
from headgate.migration.strategies.pace import Lags
from headgate.migration.strategies.statement import Statement, StatementError, parse_statement
from headgate.records.migration import MigrationRecorded

LOCKED_PAUSE_SECONDS_MIN: Final = 0.01
LOCKED_PAUSE_SECONDS_MAX: Final = 0.5
"""Pause of the copy after a lock was refused, doubled each time: a row is held for milliseconds, a table for longer."""

REFUSALS_SHOWN: Final = 5
"""In a row: from then on it is told that clients are in the way."""

_FAILURES: Final = (RefusedError, LockUnavailableError, DatabaseUnavailableError, SupersededError)


class Note(msgspec.Struct, omit_defaults=True):
    """What the log keeps of a copy: the key up to which every row is copied, and how many ranges were compared."""

    upto: list[Any] | None = None
    is_copied: bool = False
    rows: int = 0


class TriggersStrategy(CopyingStrategy):
    """One migration done beside the table; see contract.Strategy."""

    def __init__(self, server: Any, migration: str, feeds: Any = None) -> None:
        super().__init__(server)
        self._migration = migration
        self._feeds = feeds

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        if reverted is not None:
            return revert_refused(spec, reverted)
        try:
            _, plan = checked_plan(self._server, self._migration, spec, self._feeds)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        is_same = plan.before.definition == plan.after.definition
        return fx.Examined(
            "alter",
            f"{plan.before.schema}.{plan.before.name}",
            self._server.address,
            is_immediate=False,
            message="the table is built anew: its definition stays the same" if is_same else "",
        )

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        statement = parse_statement(spec.statement, self._server.dialect)
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, statement, memory)) is not None:
            return done
        try:
            plan = plan_copy(self._server, self._migration, statement, spec)
        except RefusedError as error:
            return fx.Refused(str(error))
        memory = Memory(effect.owner_rev, effect.record.attempt, "begun", _written(plan))
        try:
            self._server.make_shadow(statement, plan, memory, spec.cutover_threshold_seconds)
        except RefusedError as error:
            return fx.Broke(str(error), self._server.artifacts(plan))
        self._begin(effect.record, plan, spec, Note())
        return self._progress(effect.record)

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        statement = parse_statement(spec.statement, self._server.dialect)
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, statement, memory)) is not None:
            return done
        if memory is None or memory.attempt != effect.record.attempt:
            return fx.NotThere()
        plan = self._plan_of(memory)
        if not self._server.artifacts(plan) or not self._server.in_step(plan):
            return fx.NotThere()
        if self._work is None or self._work.is_over_in_vain:
            note = msgspec.json.decode(effect.record.note, type=Note) if effect.record.note else Note()
            self._begin(effect.record, plan, spec, note)
        return self._progress(effect.record)

    def _completed(self, record: MigrationRecorded, _statement: Statement, memory: Memory | None) -> Any:
        if memory is None or not memory.before:
            return None
        plan = self._plan_of(memory)
        if not self._server.is_changed(memory, plan):
            return None
        self._let_go()
        self._server.end(plan, parse_spec(record.spec).cutover_threshold_seconds)
        return fx.Completed("seen in force", self._server.artifacts(plan))

    def _plan_of(self, memory: Memory) -> Plan:
        """The plan as it was when the copy began: after the cut-over the table is another one."""
        return msgspec.json.decode(memory.before, type=Plan)

    def _begin(self, record: MigrationRecorded, plan: Plan, spec: MigrationSpec, note: Note) -> None:
        self._let_go()
        lags = None if self._feeds is None else self._feeds.lags()
        self._work = _Copy(self._server, plan, spec, note, throttle_ratio=record.throttle_ratio, lags=lags)
        self._work.start()

    def _progress(self, record: MigrationRecorded) -> Any:
        copy = self._work
        if copy is None:
            return fx.NotThere()
        copy.pace.ratio = record.throttle_ratio
        if isinstance(copy.error, RefusedError):
            return fx.Broke(str(copy.error), self._server.artifacts(copy.plan))
        rows, total = copy.note.rows, max(copy.plan.before.rows, copy.note.rows)
        return fx.Progressed(
            stage=copy.stage,
            rows_copied=rows,
            table_rows=total,
            eta_seconds=copy.eta_seconds(rows, copy.plan.before.rows),
            is_ready_to_complete=copy.is_ready,
            is_live=copy.is_alive() or copy.is_ready,
            throttle_reason=copy.pace.reason,
            artifacts=self._server.artifacts(copy.plan),
            note=msgspec.json.encode(copy.note).decode(),
        )

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        copy = self._work
        if memory is None or copy is None or not copy.is_ready:
            return fx.CutOverFailed("the copy is not ready any more")
        if self._server.is_changed(memory, copy.plan):
            return self.stop(fx.StopMigration(effect.migration, effect.record, False, effect.owner_rev))
        seconds = parse_spec(effect.record.spec).cutover_threshold_seconds
        try:
            self._server.cut_over(copy.plan, memory, seconds, is_forced=effect.record.cutover_forced)
        except LockUnavailableError as error:
            return fx.CutOverFailed(str(error))
        except (DatabaseUnavailableError, RefusedError) as error:
            # The answer may have been lost on the way: it is looked up, never guessed.
            found = self._server.take_over(effect.owner_rev)
            if found is None or not self._server.is_changed(found, copy.plan):
                return fx.CutOverFailed(str(error))
        self._let_go()
        return fx.Completed("", self._server.artifacts(copy.plan))

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        statement = parse_statement(spec.statement, self._server.dialect)
        self._let_go()
        memory = self._server.take_over(effect.owner_rev)
        if (done := self._completed(effect.record, statement, memory)) is not None:
            return done
        if memory is None:
            return fx.Stopped()
        left = self._server.end(self._plan_of(memory), spec.cutover_threshold_seconds)
        self._server.close()
        return fx.Stopped(left)


class _Copy(CopyWork):
    """Copies, then compares."""

    def __init__(
        self, server: Any, plan: Plan, spec: MigrationSpec, note: Note, *, throttle_ratio: float, lags: Lags | None
    ) -> None:
        super().__init__(server, spec, throttle_ratio, rows_before=note.rows, lags=lags)
        self.plan = plan
        self.note = note
        self.stage = "comparing" if note.is_copied else "copying"
        self._server = server
        self._chunk_rows = spec.chunk_rows

    def run(self) -> None:
        """See CopyWork."""
        try:
            if not self.note.is_copied:
                self._walk(self.note.upto, self._copy_chunk)
                self.note.is_copied = not self.stopping.is_set()
            self.stage = "comparing"
            self._walk(None, self._compare_chunk)
            self.is_ready = not self.stopping.is_set()
            self.stage = "ready to cut over" if self.is_ready else self.stage
        except _FAILURES as error:
            self.error = error
        finally:
            self._server.let_go()
            self.pace.close()

    def _walk(self, start: list[Any] | None, work: Any) -> None:
        above = read_key(start)
        rows, refusals = self._chunk_rows, 0
        while not self.stopping.is_set():
            begun = time.monotonic()
            try:
                upto = self._server.next_bound(self.plan, above, rows)
                work(Chunk(above, upto))
            except LockUnavailableError:
                # Fewer rows are less likely to hold one that a client has locked; one row comes through in the end.
                rows = max(1, rows // 2)
                refusals += 1
                if refusals >= REFUSALS_SHOWN:
                    self.pace.reason = "clients hold locks on the rows that come next"
                self.stopping.wait(min(LOCKED_PAUSE_SECONDS_MIN * 2 ** min(refusals, 10), LOCKED_PAUSE_SECONDS_MAX))
                continue
            rows, refusals = min(2 * rows, self._chunk_rows), 0
            if upto is None:
                return
            above = upto
            self.pace.slow_down(time.monotonic() - begun)

    def _copy_chunk(self, chunk: Chunk) -> None:
        self.note.rows += max(self._server.copy(self.plan, chunk), 0)
        if chunk.upto is not None:
            self.note.upto = noted_key(chunk.upto)

    def _compare_chunk(self, chunk: Chunk) -> None:
        rows = self._server.differing(self.plan, chunk)
        if rows:
            raise RefusedError(
                f"the copy differs in {rows} rows of a range (a value that the new form cannot hold, or rows that are "
                "equal under a new unique key): the table is untouched"
            )


def _written(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()
