"""A statement of a schema change: what it does to which table, clause by clause, and its text for another table."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from headgate.migration.statements.clauses import Clause, Support

__all__ = ["ColumnPosition", "Span", "Statement", "StatementClause", "StatementError", "refuse"]

MAX_SHOWN = 60


class StatementError(ValueError):
    """A statement that cannot become a migration. The message names what is wrong and what to write instead."""


class ColumnPosition(msgspec.Struct, frozen=True):
    """MariaDB's FIRST (``after`` is None) or AFTER a column."""

    after: str | None = None


class StatementClause(msgspec.Struct, frozen=True):
    """One clause of a statement.

    ``column`` is the column that it changes, ``name`` what it adds, or what the column is called from then on.
    ``is_conditional``: IF [NOT] EXISTS.
    """

    clause: Clause
    column: str | None = None
    name: str | None = None
    place: ColumnPosition | None = None
    is_conditional: bool = False


class Span(msgspec.Struct, frozen=True):
    """The name of a constraint in a statement's tail."""

    name: str
    start: int
    end: int


class Statement(msgspec.Struct, frozen=True):
    """A statement that was read; identifiers are as the database normalises them.

    ``schema`` is None where the statement names none. ``head`` and ``tail`` are the text before and after the table's
    name. ``rules`` are the names of constraints that it drops. ``plain`` is the tail without comments and line breaks,
    for programs that search it for words.
    """

    action: Literal["alter", "create", "drop"]
    schema: str | None
    table: str
    head: str
    tail: str
    steps: tuple[StatementClause, ...] = ()
    if_exists: bool = False
    if_not_exists: bool = False
    rules: tuple[Span, ...] = ()
    plain: str = ""

    def on(self, name: str, rules: Mapping[str, str] | None = None) -> str:
        """The statement for another table, whose quoted name is ``name``.

        ``rules``: constraints that have another name there, and which one (quoted).
        """
        tail = self.tail
        for rule in reversed(self.rules):
            if rules is not None and rule.name in rules:
                tail = tail[: rule.start] + rules[rule.name] + tail[rule.end :]
        return f"{self.head}{name}{tail}"

    def direct_only(self) -> StatementClause | None:
        """The first clause that no strategy can copy."""
        return next((step for step in self.steps if step.clause.support is Support.DIRECT), None)

    @property
    def is_rehearsed(self) -> bool:
        """Whether the whole of it can be tried on an empty copy of the table."""
        return all(step.clause.is_rehearsed for step in self.steps)

    def having(self, *keys: str) -> StatementClause | None:
        """The first clause with one of these keys."""
        return next((step for step in self.steps if step.clause.key in keys), None)


def refuse(clause: Clause) -> StatementError:
    """The error for a clause that is refused."""
    return StatementError(f"{clause.form} is refused. {clause.why}")


def shown(text: str) -> str:
    """The beginning of a part of a statement, for an error."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
