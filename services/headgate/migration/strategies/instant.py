"""Instant DDL tried first (``--prefer-instant``): where the server changes its catalogue alone, nothing is copied.

Whether it can is not inferred from the statement, but tried on an empty table of the same form: at MariaDB with
``ALGORITHM=INSTANT``, at PostgreSQL by checking whether anything was rewritten, built or checked. What can be instant
is a ``direct`` change from then on (``is_immediate`` in its record); everything else is done by the named strategy.
"""

from typing import Any, Final

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, parse_spec, written
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.delegating import Delegating, done_directly
from headgate.records.migration import MigrationRecorded

_ALGORITHM: Final = "\n, ALGORITHM=INSTANT"
"""If the table itself cannot (it has been changed so too often), MariaDB refuses, instead of copying under a lock.

On a line of its own, because the statement may end with a comment.
"""


_ALONE: Final = "the server changes its catalogue alone: nothing is copied"


class InstantFirst(Delegating):
    """``other``, or the statement as it is where that takes no time; see contract.Strategy."""

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        if reverted is not None or not self._is_instant(spec):
            told: fx.Examined | fx.ExamineRefused = self._other.examine(spec, reverted)
            return told
        examined = self._direct.examine(self._at_once(spec), reverted)
        if isinstance(examined, fx.Examined) and not examined.has_nothing_to_do:
            return msgspec.structs.replace(examined, message=_joined(_ALONE, examined.message))
        return examined

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract: whether it is instant, only the server knows."""
        told: fx.Examined | fx.ExamineRefused = self._other.plan(spec)
        if isinstance(told, fx.ExamineRefused):
            return told
        return msgspec.structs.replace(
            told, message=_joined("whether it is instant is found out as well", told.message)
        )

    def _is_instant(self, spec: MigrationSpec) -> bool:
        """Whether it is instant; a statement with an error, or with an algorithm, is left to the next examination."""
        try:
            if parse_statement(spec.statement, self._server.dialect).direct_only() is not None:
                return False
            statement = parse_statement(self._at_once(spec).statement, self._server.dialect)
            before = self._server.look(statement) if statement.action == "alter" else None
            return before is not None and bool(self._server.is_instant(statement, before))
        except (RefusedError, StatementError):
            return False

    def _at_once(self, spec: MigrationSpec) -> MigrationSpec:
        """The same change, done directly."""
        suffix = _ALGORITHM if self._server.dialect == "mysql" else ""
        return msgspec.structs.replace(done_directly(spec), statement=spec.statement.rstrip().rstrip(";") + suffix)

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract. MariaDB's own statement forbids a copy (ALGORITHM=INSTANT); PostgreSQL's cannot."""
        if effect.record.is_immediate and self._server.dialect == "postgres":
            spec = parse_spec(effect.record.spec)
            if (why := self._why_not_any_more(spec)) is not None:
                return fx.Refused(why)
        return super().start(effect)

    def _why_not_any_more(self, spec: MigrationSpec) -> str | None:
        """The table may have got an index or a rule since the submission, which the server would build or check."""
        try:
            statement = parse_statement(spec.statement, self._server.dialect)
            before = self._server.look(statement)
            if before is None or self._server.is_instant(statement, before):
                return None
        except RefusedError:
            return None  # the statement cannot be done at all: its own start gives the reason
        return (
            f"table {before.schema}.{before.name} was altered since the submission, and the change is not instant any "
            "more: the server would hold the table while it works. Submit it again"
        )

    def _for(self, effect: Any) -> tuple[Any, Any]:
        if not effect.record.is_immediate:
            return self._other, effect
        record = msgspec.structs.replace(effect.record, spec=written(self._at_once(parse_spec(effect.record.spec))))
        return self._direct, msgspec.structs.replace(effect, record=record)


def _joined(*messages: str) -> str:
    return "; ".join(filter(None, messages))
