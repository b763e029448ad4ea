"""Declarative submission (``--declarative``): the wanted CREATE TABLE goes in, what has to be done comes out.

A table that is missing is created directly. One that is already as wanted is left alone. Everything else becomes an
ALTER, which the named strategy carries out. The server normalises both: the wanted table is created, empty, beside the
other, and the server's descriptions of the two are compared. The ALTER that was found is tried on an empty copy before
it is accepted; if the result is not the wanted table, it is refused, and nothing is guessed.

What was found is in the record (``MigrationSpec.found``), so every owner that continues the migration does the same.
"""

from typing import Any

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, may_lose, parse_spec, written
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import Statement, StatementError
from headgate.migration.strategies.contract import DescribedTable, RefusedError
from headgate.migration.strategies.delegating import Delegating, done_directly
from headgate.migration.strategies.planning import allowing, check_named
from headgate.records.migration import MigrationRecorded, MigrationStrategy


class Declared(Delegating):
    """``other``, with the ALTER that was found; see contract.Strategy."""

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        try:
            statement = _wanted(parse_statement(spec.statement, self._server.dialect))
            self._check_rights(statement, spec)
            before = self._server.look(statement)
            if before is None:
                return self._direct.examine(_directly(spec), reverted)
            found = self._server.change_towards(statement, before)
            if not found:
                return self._as_wanted(before)
            self._check_drops(before, found, spec)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        told: fx.Examined | fx.ExamineRefused = self._other.examine(_with(spec, found), reverted)
        if isinstance(told, fx.ExamineRefused):
            return fx.ExamineRefused(f"{told.reason}. The change would be: {found}")
        return msgspec.structs.replace(told, statement=found)

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract: what there is to do, only the server knows."""
        try:
            statement = _wanted(parse_statement(spec.statement, self._server.dialect))
            self._check_rights(statement, spec)
            before = self._server.look(statement)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        if before is None:
            told: fx.Examined | fx.ExamineRefused = self._direct.plan(_directly(spec))
            return told
        message = "the ALTER is found when it is submitted: with --postpone-launch it can be read before it runs"
        table = f"{before.schema}.{before.name}"
        where = self._server.where(before.schema)
        return fx.Examined("alter", table, where, is_immediate=False, message=message)

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract. The ALTER was found for the table as it was then: another would lead to the wanted one now."""
        spec = parse_spec(effect.record.spec)
        if spec.found and spec.reverts is None:
            try:
                statement = _wanted(parse_statement(spec.statement, self._server.dialect))
                before = self._server.look(statement)
                now = spec.found if before is None else self._server.change_towards(statement, before)
            except RefusedError as error:
                return fx.Refused(str(error))
            # Nothing is left to do if an earlier attempt has come into force: the strategy itself sees that.
            if now not in ("", spec.found):
                return fx.Refused(
                    f"table {statement.table} was altered since the submission, and the ALTER of then does not make "
                    f"the wanted table of it. Submit it again; the change would be: {now}"
                )
        return super().start(effect)

    def _check_rights(self, statement: Statement, spec: MigrationSpec) -> None:
        """Those of a change of the table; to create it, the strategy that does so asks for its own."""
        altering = msgspec.structs.replace(statement, action="alter")
        self._server.check_rights(altering, is_copied=spec.strategy is MigrationStrategy.ONLINE)

    def _as_wanted(self, table: DescribedTable) -> fx.Examined:
        return fx.Examined(
            "alter",
            f"{table.schema}.{table.name}",
            self._server.where(table.schema),
            is_immediate=True,
            has_nothing_to_do=True,
            message="no change: the table is as wanted",
        )

    def _check_drops(self, before: DescribedTable, found: str, spec: MigrationSpec) -> None:
        """A column that the wanted table lacks may have been renamed: dropping it must be allowed explicitly."""
        after = self._server.rehearse(parse_statement(found, self._server.dialect), before)
        kept = {column.name for column in after.columns}
        gone = [column.name for column in before.columns if column.name not in kept]
        check_named(before, after, spec.allow_lossy)
        if refused := [name for name in gone if not may_lose(spec.allow_lossy, name)]:
            raise RefusedError(
                f"table {before.schema}.{before.name}: {', '.join(refused)} would be dropped with all values, as the "
                "wanted table does not have this column. If that is meant, add "
                f"{allowing(refused)}; to rename a column, submit the ALTER TABLE. The change would be: {found}"
            )

    def _for(self, effect: Any) -> tuple[Any, Any]:
        spec = parse_spec(effect.record.spec)
        asked = _with(spec, spec.found) if spec.found else _directly(spec)
        record = msgspec.structs.replace(effect.record, spec=written(asked))
        return self._other if spec.found else self._direct, msgspec.structs.replace(effect, record=record)


def _wanted(statement: Statement) -> Statement:
    if statement.action != "create" or statement.if_not_exists or "REPLACE" in statement.head.upper():
        raise RefusedError(
            "--declarative takes the desired CREATE TABLE, without IF NOT EXISTS and OR REPLACE. To drop or "
            "alter a table, submit that statement without --declarative"
        )
    return statement


def _with(spec: MigrationSpec, found: str) -> MigrationSpec:
    return msgspec.structs.replace(spec, statement=found, declarative=False, found="")


def _directly(spec: MigrationSpec) -> MigrationSpec:
    """The wanted statement itself."""
    return msgspec.structs.replace(done_directly(spec), declarative=False)
