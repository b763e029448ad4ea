"""Columns that an event names otherwise than the sink's table: in another case, or as they were named before.

MySQL and MariaDB compare the names of columns without regard to case, so `Amount` and `amount` are one column there.
Changes from before a column was renamed come when a connector sends them again, and from other partitions. Names are
brought to the table's before changes are reduced, because keys and rows are compared by name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from headgate.formats.change import Change, Row
from headgate.sinks.relational.table import RelationalTable

Names = dict[str, str]


def respelled(changes: Sequence[Change], table: RelationalTable[Any]) -> Sequence[Change] | None:
    """The changes with the table's own spelling of its columns; None where nothing is spelled otherwise.

    An event that has a column in two spellings keeps both: which of them was meant is not known.
    """
    known = {name.lower(): name for name in (*table.columns, *table.generated)}
    return _with_names(changes, lambda columns: _names(columns, known))


def with_present_names(
    changes: Sequence[Change], columns: Collection[str], former: Mapping[str, str], until: Mapping[int, int]
) -> Sequence[Change] | None:
    """The changes with the names that the table's ``columns`` have now; None where no change has a former one.

    ``former``, ``until``: see KnownColumns. A change that has a column under both names keeps both: they are two.
    """
    there = {old: now for old, now in former.items() if now in columns and old not in columns}
    if not there:
        return None
    return _with_names(
        changes,
        lambda given: {name: there[name] for name in given if name in there and there[name] not in given},
        lambda change: change.offset < until.get(change.partition, 0),
    )


def _with_names(
    changes: Sequence[Change],
    names_of: Callable[[tuple[str, ...]], Names],
    is_meant: Callable[[Change], bool] = lambda _: True,
) -> Sequence[Change] | None:
    met: dict[tuple[str, ...], Names] = {}
    meanings: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
    found: list[Change] = []
    is_other = False
    for change in changes:
        columns = (*change.key, *(change.row or {}))
        names = met.get(columns)
        if names is None:
            names = met[columns] = names_of(columns)
        if names and is_meant(change):
            is_other = True
            row = None if change.row is None else _renamed(change.row, names)
            change = replace(  # noqa: PLW2901 - the same change, spelled otherwise
                change, key=_renamed(change.key, names), row=row, semantics=_meaning(change.semantics, names, meanings)
            )
        found.append(change)
    return found if is_other else None


def _names(columns: Iterable[str], known: Names) -> Names:
    """Those of an event's columns that the table spells otherwise → its spelling."""
    others = {name: known[name.lower()] for name in columns if known.get(name.lower(), name) != name}
    present = {*columns}
    folded = [name.lower() for name in present]
    return {name: own for name, own in others.items() if own not in present and folded.count(name.lower()) == 1}


def _renamed(row: Row, names: Names) -> Row:
    return {names.get(column, column): value for column, value in row.items()}


def _meaning(
    semantics: dict[str, str] | None, names: Names, meanings: dict[int, tuple[dict[str, str], dict[str, str]]]
) -> dict[str, str] | None:
    """One dictionary for all changes that share one: rows are grouped by its identity."""
    if semantics is None:
        return None
    kept = meanings.get(id(semantics))
    if kept is None:
        renamed = {names.get(column, column): meaning for column, meaning in semantics.items()}
        kept = meanings[id(semantics)] = (semantics, renamed)
    return kept[1]
