"""Strategy ``direct``: the statement as it is, tracked. For CREATE and DROP, and for an ALTER that may hold the table.

The statement runs on a thread of the owner; ``watch`` reports its status. It waits for the table's lock for no longer
than clients may wait behind it, then lets them proceed, and retries after a pause (``LOCK_PAUSES``).

After an owner's failure the next one finds out what became of it: at PostgreSQL the statement and the memory of it are
one transaction, at MariaDB the table's definition is compared with those before and after (learned by rehearsing), and
a statement that the server still works on is waited for.
"""

import threading
from typing import Any, Final

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import Statement, StatementError
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    DescribedTable,
    LockUnavailableError,
    Memory,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.no_way_back import revert_refused
from headgate.migration.strategies.planning import check_columns
from headgate.records.migration import MigrationRecorded
from headgate.records.migration_standing import AWAITING_LOCK
from headgate.supervision.threads import BackgroundThread

LOCK_PAUSES: Final = (1, 2, 5, 10, 30, 60, 60, 60, 60, 60)
"""Seconds between attempts to lock the table, in which the sessions queued behind one proceed. 6 min in total."""

STOP_POLL_SECONDS: Final = 0.5


class _Run:
    """One statement on its thread; ``error`` once it has failed, ``reason`` while it waits for a retry."""

    def __init__(self, server: Any, statement: Statement, memory: Memory, lock_seconds: float) -> None:
        self.error: Exception | None = None
        self.reason = ""
        self.is_over = False
        self._arguments = (statement, memory, lock_seconds)
        self._lock_seconds = lock_seconds
        self._server = server
        self._stopping = threading.Event()
        self._thread = BackgroundThread(self._run, name="direct", on_crash=self._on_crash)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._try()
        except (RefusedError, LockUnavailableError, DatabaseUnavailableError, SupersededError) as error:
            self.error = error
        self.is_over = True

    def _try(self) -> None:
        tries = len(LOCK_PAUSES) + 1
        for number, pause in enumerate(LOCK_PAUSES, start=1):
            try:
                self._server.run_direct(*self._arguments)
            except LockUnavailableError as error:
                self.reason = f"{error} (try {number} of {tries}, again after {pause} s)"
                if self._stopping.wait(pause):
                    raise
                self.reason = ""
            else:
                return
        try:
            self._server.run_direct(*self._arguments)
        except LockUnavailableError as error:
            raise LockUnavailableError(
                f"{error}. The table's lock was not to be had in {tries} tries of {self._lock_seconds:g} s "
                "(--cutover-threshold). The table is as before: end who holds it, and retry"
            ) from error

    def stop(self) -> None:
        """Return when nothing of it runs at the database any more."""
        self._stopping.set()
        while self._thread.is_alive():
            self._server.end_direct()
            self._thread.join(STOP_POLL_SECONDS)

    def let_go(self) -> None:
        """Do not retry the statement."""
        self._stopping.set()

    def _on_crash(self, error: BaseException) -> None:
        # Whether the statement ran is unknown, so the database is asked, as after a lost connection.
        self.error = DatabaseUnavailableError(f"internal error: {type(error).__name__}: {error}")
        self.is_over = True


class DirectStrategy:
    """One migration done directly at ``server``; see contract.Strategy."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._run: _Run | None = None

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        if reverted is not None:
            return revert_refused(spec, reverted)
        return self._examined(spec, is_tried=True)

    def _examined(self, spec: MigrationSpec, *, is_tried: bool) -> fx.Examined | fx.ExamineRefused:
        try:
            statement, before, nothing = self._looked_up(spec, is_tried=is_tried)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        schema = before.schema if before is not None else statement.schema
        return fx.Examined(
            statement.action,
            f"{schema}.{statement.table}" if schema else statement.table,
            self._server.where(schema),
            is_immediate=True,
            has_nothing_to_do=nothing is not None,
            message=nothing or self._server.logged,
        )

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        return self._examined(spec, is_tried=False)

    def _looked_up(self, spec: MigrationSpec, *, is_tried: bool) -> tuple[Statement, DescribedTable | None, str | None]:
        """The statement, its table, and why there is nothing to do. Raises RefusedError, StatementError."""
        statement = parse_statement(spec.statement, self._server.dialect)
        self._server.check_rights(statement, is_copied=False)
        before = self._server.look(statement)
        nothing = None
        if before is None and statement.action in ("alter", "drop"):
            nothing = f"table {statement.table} does not exist"
        if before is not None and statement.action == "create":
            nothing = f"table {before.schema}.{before.name} exists already"
        if nothing is not None and not (statement.if_exists or statement.if_not_exists):
            raise RefusedError(nothing)
        if nothing is None and before is not None and statement.action == "alter":
            check_columns(statement, before)
        if nothing is None and is_tried and statement.is_rehearsed:
            self._server.rehearse(statement, before)
        return statement, before, nothing

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        spec = parse_spec(effect.record.spec)
        statement = parse_statement(spec.statement, self._server.dialect)
        try:
            self._server.take_over(effect.owner_rev)
        except RefusedError as error:
            return fx.Refused(str(error))
        try:
            before = self._server.look(statement)
            after = self._server.rehearse(statement, before) if statement.is_rehearsed else None
        except RefusedError as error:
            self._server.forget()
            return fx.Refused(str(error))
        memory = Memory(
            effect.owner_rev,
            effect.record.attempt,
            "begun",
            "" if before is None else before.definition,
            "" if after is None else after.definition,
        )
        self._server.note(memory)
        self._run = _Run(self._server, statement, memory, spec.cutover_threshold_seconds)
        return fx.Progressed("running the statement", is_working=True)

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        if memory is None or memory.stage == "stopped":
            return fx.NotThere()
        statement = parse_statement(parse_spec(effect.record.spec).statement, self._server.dialect)
        if self._server.is_running():
            return fx.Progressed("the server works on the statement", is_working=True)
        if self._server.is_in_force(statement, memory):
            return fx.Completed("seen in force")
        return fx.NotThere()

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        if self._run is None:
            return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))
        if not self._run.is_over:
            reason = self._run.reason
            stage = AWAITING_LOCK if reason else "running the statement"
            return fx.Progressed(stage, is_working=True, throttle_reason=reason)
        error = self._run.error
        if error is None:
            return fx.Completed()
        if isinstance(error, RefusedError | LockUnavailableError):
            return fx.Broke(str(error))
        self._run = None
        return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """A direct change has no cut-over: the statement is everything."""
        return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        memory = self._server.take_over(effect.owner_rev)
        self._server.end_direct()
        if self._run is not None:
            self._run.stop()
        if memory is None:
            self._server.forget()
            return fx.Stopped()
        memory = self._server.take_over(effect.owner_rev)
        statement = parse_statement(parse_spec(effect.record.spec).statement, self._server.dialect)
        if self._server.is_in_force(statement, memory):
            return fx.Completed("it was in force before it could be stopped")
        self._server.forget()
        self._server.close()
        return fx.Stopped()

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract."""
        self._server.take_over(effect.owner_rev)
        return fx.CleanedUp(self._server.drop(effect.record.artifacts))

    def close(self) -> None:
        """Let go of the database."""
        if self._run is not None:
            self._run.let_go()
        self._server.close()
