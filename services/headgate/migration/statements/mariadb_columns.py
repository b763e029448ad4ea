"""The effect of an ALTER TABLE on MariaDB's columns: their origin, and their order afterwards.

MariaDB's columns have no number that survives an ALTER, only a position. So this module follows the server's own way
from the old list to the new one (``mysql_prepare_alter_table`` in sql_table.cc), and the result is compared with the
catalogue.
"""

from collections.abc import Sequence

import msgspec

from headgate.migration.statements.statement import ColumnPosition, Statement, StatementClause, StatementError

_CHANGES = frozenset({"modify-column", "change-column"})


class Origin(msgspec.Struct, frozen=True):
    """A column after the change; ``before`` is its position in the table as it was, None for a new one."""

    name: str
    before: int | None


def same_name(one: str, other: str) -> bool:
    """Whether MariaDB takes them for the same column: case does not matter, accents do."""
    return one.lower() == other.lower()


def origins(statement: Statement, before: Sequence[str]) -> list[Origin]:
    """The columns afterwards. Raises StatementError for a column that does not exist, or that two clauses change."""
    steps = _effective(statement, before)
    found: list[Origin] = []
    late: list[tuple[ColumnPosition | None, Origin]] = []
    for position, name in enumerate(before):
        step = _one(steps, name)
        if step is None or step.clause.key == "column-default":
            found.append(Origin(name, position))
        elif step.clause.key != "drop-column":
            origin = Origin(step.name or name, position)
            if step.place is None:
                found.append(origin)
            else:
                late.append((step.place, origin))
    # The server places new columns and moved ones in the order of the clauses.
    moved = {origin.before: (place, origin) for place, origin in late}
    for step in steps:
        if step.clause.key == "add-column" and step.name is not None:
            _insert(found, step.place, Origin(step.name, None))
        elif step.place is not None and step.clause.key in _CHANGES:
            place, origin = moved[_position(before, step.column)]
            _insert(found, place, origin)
    return found


def _effective(statement: Statement, before: Sequence[str]) -> list[StatementClause]:
    """Clauses about columns, without those that IF [NOT] EXISTS leaves out. Raises StatementError."""
    found = []
    for step in statement.steps:
        if step.clause.key == "add-column":
            if not (step.is_conditional and _position(before, step.name) is not None):
                found.append(step)
            continue
        if step.column is None:
            continue
        if _position(before, step.column) is None:
            if not step.is_conditional:
                raise StatementError(f"column {step.column} does not exist")
            continue
        found.append(step)
    return found


def _one(steps: list[StatementClause], name: str) -> StatementClause | None:
    mine = [step for step in steps if step.column is not None and same_name(step.column, name)]
    if len(mine) > 1:
        raise StatementError(f"two clauses change column {name}: submit a migration for each")
    return mine[0] if mine else None


def _position(names: Sequence[str], name: str | None) -> int | None:
    return next((at for at, known in enumerate(names) if name is not None and same_name(known, name)), None)


def _insert(found: list[Origin], place: ColumnPosition | None, origin: Origin) -> None:
    if place is None:
        found.append(origin)
        return
    if place.after is None:
        found.insert(0, origin)
        return
    at = _position([known.name for known in found], place.after)
    if at is None:
        raise StatementError(f"AFTER {place.after}: the table does not have that column after the change")
    found.insert(at + 1, origin)
