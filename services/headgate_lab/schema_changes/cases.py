"""The cases of both kinds of database, and statements drawn from them."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headgate.migration.statements.clauses import CLAUSES, DialectName, Support
from headgate.migration.statements.mariadb_columns import origins
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.migration.strategies.contract import DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.planning import check_added
from headgate.records.migration import MigrationStrategy
from headgate_lab.schema_changes.case import Case
from headgate_lab.schema_changes.load import COLUMNS
from headgate_lab.schema_changes.mariadb_cases import MARIADB_CASES, MARIADB_TABLES
from headgate_lab.schema_changes.postgresql_cases import POSTGRESQL_CASES, POSTGRESQL_TABLES

__all__ = ["CASES", "TABLES", "DrawError", "ErrorOf", "cases_of", "drawn", "respelled", "together"]

CASES: Final[dict[DialectName, tuple[Case, ...]]] = {"mysql": MARIADB_CASES, "postgres": POSTGRESQL_CASES}
TABLES: Final[dict[DialectName, tuple[str, ...]]] = {"mysql": MARIADB_TABLES, "postgres": POSTGRESQL_TABLES}
"""What makes the standard tables: ``items``, which is changed, and ``others`` with the numbers below 100."""

SPACES: Final[dict[DialectName, tuple[str, ...]]] = {
    "mysql": (" ", "\n", "\t ", "/* ; ' */", " -- `'\n", '#"\n', "/**/ "),
    "postgres": (" ", "\n", "\t ", "/* ; /* ' */ */", "--'\"\n", "/**/ "),
}
_COLUMNS: Final = (*COLUMNS, "twice")
_TABLE: Final = DescribedTable("public", "items", tuple(DescribedColumn(name, "int") for name in _COLUMNS), {}, "")
_FULLTEXT: Final = "FULLTEXT"
_NOT_AT_ONCE: Final = "cannot be renamed or dropped at once"
"""What ``online`` answers where columns are dropped beside such an index; they are renamed at once there."""
_AT_ONCE: Final = ("rename-column", "change-column", "drop-column")
_ALTER: Final = "ALTER TABLE items "
_QUOTE: Final[dict[DialectName, str]] = {"mysql": "`", "postgres": '"'}
_NAMES: Final = frozenset({*"tcdkpu", "items", "by_a", "positive"})
"""Words of statements that are names in small letters, and may be quoted."""

TOGETHER_MAX: Final = 4
"""Cases in one statement; some of them have two clauses."""

DRAWS_MAX: Final = 50
"""Statements that are drawn until the server does one. Nine of ten are clear, and the server does most of these."""

ErrorOf = Callable[[Case], str | None]
"""Tries the case's statement on the standard table; the server's error if it refuses."""

_STRATEGIES: Final = (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT)


class DrawError(Exception):
    """No statement that was drawn can be tried. The message has the last one, and why."""


def cases_of(dialect: DialectName, *supports: Support) -> list[Case]:
    """The cases whose clauses are of one of these kinds."""
    return [case for case in CASES[dialect] if CLAUSES[dialect][case.clause].support in supports]


def drawn(dialect: DialectName, chance: random.Random, error_of: ErrorOf) -> tuple[Case, MigrationStrategy]:
    """An ALTER TABLE, respelled, and the strategy to do it by. Every tenth is refused, and half are several cases.

    Raises DrawError.
    """
    supports: tuple[Support, ...]
    draw = chance.random()
    if draw < 0.1:
        supports, strategy = (Support.REFUSED,), chance.choice(_STRATEGIES)
    elif draw < 0.3:
        supports, strategy = (Support.COPIED, Support.DIRECT), MigrationStrategy.DIRECT
    else:
        supports, strategy = (Support.COPIED,), MigrationStrategy.ONLINE
    known = _alone(dialect, supports)
    if Support.REFUSED in supports:
        return chance.choice(known), strategy
    is_together = chance.random() < 0.5

    def one() -> Case:
        case = _combined(chance, known) if is_together else chance.choice(known)
        return msgspec.structs.replace(case, statement=respelled(case.statement, dialect, chance.choice))

    return _first_done(one, dialect, error_of), strategy


def together(dialect: DialectName, chance: random.Random, supports: Sequence[Support], error_of: ErrorOf) -> Case:
    """Some cases of these kinds in one ALTER TABLE that the server does. Raises DrawError."""
    known = _alone(dialect, supports)
    return _first_done(lambda: _combined(chance, known), dialect, error_of)


def _first_done(draw: Callable[[], Case], dialect: DialectName, error_of: ErrorOf) -> Case:
    """The first one drawn that Headgate reads as a change of columns, each once, and that the server does."""
    last = ""
    for _ in range(DRAWS_MAX):
        case = draw()
        why = _unclear(case.statement, dialect) or error_of(case)
        if why is None:
            return msgspec.structs.replace(case, refusal=_refusal(case.statement, dialect))
        last = f"{case.statement}: {why}"
    raise DrawError(f"none of {DRAWS_MAX} statements that were drawn can be tried. The last one: {last}")


def _combined(chance: random.Random, known: Sequence[Case]) -> Case:
    """Some of ``known`` in one ALTER TABLE."""
    cases = chance.sample(known, chance.randint(2, TOGETHER_MAX))
    changes = (case.statement.removeprefix(_ALTER) for case in cases)
    return Case(
        cases[0].clause,
        f"{_ALTER}{', '.join(changes)}",
        tuple(dict.fromkeys(text for case in cases for text in case.prepare)),
        tuple(dict.fromkeys(column for case in cases for column in case.lossy)),
    )


def _unclear(text: str, dialect: DialectName) -> str | None:
    """Why it is refused whatever its clauses are: it is not one statement, or it changes a column twice."""
    try:
        read = parse_statement(text, dialect)
        if dialect == "mysql":
            origins(read, _COLUMNS)
        check_added(read, _TABLE)
    except (StatementError, RefusedError) as error:
        return str(error)
    return None


def _refusal(text: str, dialect: DialectName) -> str:
    """See Case."""
    is_tried = _FULLTEXT in text.upper() and parse_statement(text, dialect).having(*_AT_ONCE) is not None
    return _NOT_AT_ONCE if is_tried else ""


def _alone(dialect: DialectName, supports: Sequence[Support]) -> list[Case]:
    return [case for case in cases_of(dialect, *supports) if _stands_alone(case)]


def _stands_alone(case: Case) -> bool:
    """Whether it is about ``items`` alone."""
    return case.statement.startswith(_ALTER) and not any("PUBLICATION" in text for text in case.prepare)


def respelled(text: str, dialect: DialectName, choose: Callable[[Sequence[Any]], Any]) -> str:
    """The same statement in other words' case, with other spaces and quotes."""
    found, quote = [], ""
    for part in text.split(" "):
        is_string = bool(quote) or any(mark in part for mark in "'$\"`")
        if is_string:
            quote = "" if part.count("'") % 2 == (0 if not quote else 1) else "'"
            found.append(part)
        elif part in _NAMES and choose((False, True)):
            found.append(f"{_QUOTE[dialect]}{part}{_QUOTE[dialect]}")
        elif part.isascii() and part.isalpha() and part.isupper():
            found.append("".join(letter.lower() if choose((False, True)) else letter for letter in part))
        else:
            found.append(part)
        found.append(" " if quote or is_string else str(choose(SPACES[dialect])))
    return "".join(found[:-1])
