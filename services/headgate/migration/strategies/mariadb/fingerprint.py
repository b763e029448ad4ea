"""A table's facts at MariaDB, by SHOW CREATE TABLE. Grants, and views of the table, are by name and stay with it.

Triggers and foreign keys are not among them: a table that has any is not copied.
"""

import re
from typing import Final

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.fingerprint import CatalogueFact, Facts

__all__ = ["ASPECTS", "facts_of", "without_key"]

ASPECTS: Final = frozenset({"columns", "column", "key", "options", "partitions"})

_COLUMN: Final = re.compile(r"^  `((?:[^`]|``)+)` (.*?),?$")
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+")


def facts_of(definition: str) -> Facts:
    """The facts that a table's definition (``contract.Table``) states."""
    lines = definition.removeprefix("TABLE (").split("\n")
    end = next((number for number, line in enumerate(lines) if line.startswith(")")), len(lines))
    found, order = set(), []
    for line in lines[:end]:
        if (column := _COLUMN.match(line)) is not None:
            order.append(column[1])
            found.add(CatalogueFact("column", column[1], column[2]))
        else:
            found.add(CatalogueFact("key", "", line.strip().removesuffix(",")))
    found.add(CatalogueFact("columns", "", ", ".join(order)))
    if options := lines[end : end + 1]:
        found.add(CatalogueFact("options", "", _COUNTER.sub("", options[0].removeprefix(")")).strip()))
    if partitions := lines[end + 1 :]:
        found.add(CatalogueFact("partitions", "", "\n".join(partitions)))
    return frozenset(found)


def without_key(facts: Facts, name: str) -> Facts:
    """The facts, less the unique index of that name."""
    line = f"UNIQUE KEY {quoted(name)} "
    return frozenset(fact for fact in facts if not (name and fact.aspect == "key" and fact.text.startswith(line)))
