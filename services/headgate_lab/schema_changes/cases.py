"""The cases of both kinds of database, and statements drawn from them."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headgate.migration.statements.clauses import CLAUSES, DialectName, Support
from headgate.records.migration import MigrationStrategy
from headgate_lab.schema_changes.case import Case
from headgate_lab.schema_changes.mariadb_cases import MARIADB_CASES, MARIADB_TABLES
from headgate_lab.schema_changes.postgresql_cases import POSTGRESQL_CASES, POSTGRESQL_TABLES

__all__ = ["CASES", "TABLES", "cases_of", "drawn", "respelled"]

CASES: Final[dict[DialectName, tuple[Case, ...]]] = {"mysql": MARIADB_CASES, "postgres": POSTGRESQL_CASES}
TABLES: Final[dict[DialectName, tuple[str, ...]]] = {"mysql": MARIADB_TABLES, "postgres": POSTGRESQL_TABLES}
"""What makes the standard tables: ``items``, which is changed, and ``others`` with the numbers below 100."""

SPACES: Final[dict[DialectName, tuple[str, ...]]] = {
    "mysql": (" ", "\n", "\t ", "/* ; ' */", " -- `'\n", '#"\n', "/**/ "),
    "postgres": (" ", "\n", "\t ", "/* ; /* ' */ */", "--'\"\n", "/**/ "),
}
_QUOTE: Final[dict[DialectName, str]] = {"mysql": "`", "postgres": '"'}
_NAMES: Final = frozenset({*"tcdkpu", "items", "by_a", "positive"})
"""Words of statements that are names in small letters, and may be quoted."""

_STRATEGIES: Final = (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT)


def cases_of(dialect: DialectName, *supports: Support) -> list[Case]:
    """The cases whose clauses are of one of these kinds."""
    return [case for case in CASES[dialect] if CLAUSES[dialect][case.clause].support in supports]


def drawn(dialect: DialectName, chance: random.Random) -> tuple[Case, MigrationStrategy]:
    """An ALTER TABLE, respelled, and the strategy to do it by. Every tenth is refused."""
    supports: tuple[Support, ...]
    draw = chance.random()
    if draw < 0.1:
        supports, strategy = (Support.REFUSED,), chance.choice(_STRATEGIES)
    elif draw < 0.3:
        supports, strategy = (Support.COPIED, Support.DIRECT), MigrationStrategy.DIRECT
    else:
        supports, strategy = (Support.COPIED,), MigrationStrategy.ONLINE
    known = [case for case in cases_of(dialect, *supports) if _stands_alone(case)]
    case = chance.choice(known)
    text = case.statement
    if Support.REFUSED not in supports:
        text = respelled(text, dialect, chance.choice)
    return msgspec.structs.replace(case, statement=text), strategy


def _stands_alone(case: Case) -> bool:
    """Whether it is about ``items`` alone."""
    return case.statement.startswith("ALTER TABLE items ") and not any("PUBLICATION" in text for text in case.prepare)


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
