"""From two forms of a table, as MariaDB shows them, to the ALTER that makes the one of the other.

Pure. What is read are the lines of SHOW CREATE TABLE, which the server itself has written: a column, a key or a check
on each, then the table's options and partitions. The server's words are passed on as they are.
"""

import re
from typing import Final

import msgspec

from headgate.migration.strategies.contract import RefusedError

_NAME: Final = r"(`(?:[^`]|``)+`)"
_KEY: Final = re.compile(rf"^(?:PRIMARY KEY|(?:UNIQUE |FULLTEXT |SPATIAL )?KEY {_NAME})")
_CHECK: Final = re.compile(rf"^CONSTRAINT {_NAME} CHECK")
_FOREIGN: Final = re.compile(rf"^CONSTRAINT {_NAME} FOREIGN KEY")
_COMMENT: Final = re.compile(r" COMMENT='((?:[^']|'')*)'")
_CHARSET: Final = re.compile(r" DEFAULT CHARSET=(\w+)(?: COLLATE=(\w+))?")
_ENGINE: Final = re.compile(r"^\) ENGINE=(\w+)")
_PRIMARY: Final = "PRIMARY KEY"


class MariadbTableForm(msgspec.Struct, frozen=True):
    """``columns`` are in their order: quoted name → the whole line. Keys and checks: name → line. ``more``: options."""

    columns: dict[str, str]
    keys: dict[str, str]
    checks: dict[str, str]
    engine: str
    charset: tuple[str, str]
    comment: str
    more: str
    partitions: str


def read_form(definition: str) -> MariadbTableForm:
    """From a ``Table.definition``. Raises RefusedError for what an ALTER is not found for."""
    body, _, tail = definition.removeprefix("TABLE (").rpartition("\n)")
    columns, keys, checks = {}, {}, {}
    for line in (line.strip().removesuffix(",") for line in body.split("\n")):
        if (found := re.match(_NAME, line)) is not None:
            columns[found.group(1)] = line
        elif (found := _KEY.match(line)) is not None:
            keys[found.group(1) or _PRIMARY] = line
        elif (found := _CHECK.match(line)) is not None:
            checks[found.group(1)] = line
        elif _FOREIGN.match(line) is not None:
            raise RefusedError("a table with foreign keys is not compared with a wanted one: submit the ALTER TABLE")
        else:
            raise RefusedError(f"a wanted table is not compared in {line!r}: submit the ALTER TABLE")
    options, _, partitions = f"){tail}".partition("\n")
    engine, charset, comment = _ENGINE.search(options), _CHARSET.search(options), _COMMENT.search(options)
    for pattern in (_ENGINE, _CHARSET, _COMMENT):
        options = pattern.sub("", options)
    return MariadbTableForm(
        columns,
        keys,
        checks,
        engine.group(1) if engine else "",
        (charset.group(1), charset.group(2) or "") if charset else ("", ""),
        comment.group(1) if comment else "",
        options.strip(" )"),
        partitions.strip(),
    )


def change(before: MariadbTableForm, after: MariadbTableForm) -> str:
    """What follows ALTER TABLE and the name; empty if they are the same. Raises RefusedError."""
    if before.more != after.more:
        raise RefusedError(
            f"the table's options ({before.more!r}, wanted {after.more!r}) differ: submit the ALTER TABLE"
        )
    clauses = [f"ENGINE={after.engine}"] if before.engine != after.engine else []
    if before.charset != after.charset:
        collation = f" COLLATE {after.charset[1]}" if after.charset[1] else ""
        clauses.append(f"CONVERT TO CHARACTER SET {after.charset[0]}{collation}")
    if before.comment != after.comment:
        clauses.append(f"COMMENT='{after.comment}'")
    dropped, added = _named(before.keys, after.keys)
    clauses += ["DROP PRIMARY KEY" if name == _PRIMARY else f"DROP INDEX {name}" for name in dropped]
    gone, new = _named(before.checks, after.checks)
    clauses += [f"DROP CONSTRAINT {name}" for name in gone]
    clauses += _columns(before.columns, after.columns)
    clauses += [f"ADD {line}" for line in (*added, *new)]
    text = ", ".join(clauses)
    if before.partitions != after.partitions:
        text = f"{text} {after.partitions or 'REMOVE PARTITIONING'}".strip()
    return text


def same(before: MariadbTableForm, after: MariadbTableForm) -> bool:
    """Whether they are the same, but for the order of keys and checks."""
    return before == after and list(before.columns) == list(after.columns)


def _named(before: dict[str, str], after: dict[str, str]) -> tuple[list[str], list[str]]:
    """Names that go, and lines that come; one that is another now does both."""
    gone = [name for name, line in before.items() if after.get(name) != line]
    return gone, [line for name, line in after.items() if before.get(name) != line]


def _columns(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """In the order in which the server carries them out, each column is in its place then."""
    clauses = [f"DROP COLUMN {name}" for name in before if name not in after]
    places = [name for name in before if name in after]
    previous = ""
    for place, (name, line) in enumerate(after.items()):
        where = f" AFTER {previous}" if previous else " FIRST"
        is_there = place < len(places) and places[place] == name
        if name not in before:
            clauses.append(f"ADD COLUMN {line}{'' if place == len(places) else where}")
        elif not is_there or before[name] != line:
            clauses.append(f"MODIFY COLUMN {line}{'' if is_there else where}")
        if not is_there:
            places = [other for other in places if other != name]
            places.insert(place, name)
        previous = name
    return clauses
