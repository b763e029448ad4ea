"""Reduces a batch of changes to the last change per key, column by column.

Applying the result has the same outcome as applying the changes one after the other, and a row is touched once. The
rules:

- a later row replaces an earlier one column by column: a column that it lacks or that is ABSENT keeps the value of
  the batch. A row whose writer may leave NULLs out (LACKING) replaces an earlier one as a whole;
- a row in which columns are still ABSENT is a *partial* update of the others: it needs a row that is there already;
- a delete wipes what came before it. A row after it is a new one: the key is deleted, then inserted, so that no
  column of the old row shines through;
- a partial row that is the last word after a delete (or TRUNCATE) is an error: the log does not have what the row
  needs. Databases log the insert of a row in full, so either the event in between was lost (a compacted topic, an
  expired segment), and guessing NULL would be a silent loss; or a connector that crashed sends its last changes again,
  then the delete comes again behind it. What comes later in the batch decides, or what comes later in the log;
- TRUNCATE wipes everything before it.

The order of the result is the order of the last words in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import msgspec

from headgate.formats.change import ABSENT, LACKING, Change, ChangeError, Operation, Row


class OrphanRowError(ChangeError):
    """A row with absent columns and nothing to take them from."""

    def __init__(self, change: Change, columns: Sequence[str]) -> None:
        super().__init__(
            f"columns {', '.join(columns)} are absent from a row that was deleted before: either the source sends its "
            "last changes again, and the delete follows; or an earlier event is lost (is the source topic compacted?); "
            "or the feed's `where` did not keep the row before: copy it with `headgate table resync`, or set REPLICA "
            "IDENTITY FULL at the source"
        )
        self.change = change


class WrongKeyError(ChangeError):
    """An event whose key columns are not those of the table."""

    def __init__(self, change: Change, key_columns: Sequence[str]) -> None:
        super().__init__(
            f"the event's key columns ({', '.join(change.key)}) are not the table's ({', '.join(key_columns)}): "
            "give both the same primary key, or the connector message.key.columns"
        )
        self.change = change


class UnusableKeyError(ChangeError):
    """An event whose key is nested too deeply to be compared with other keys."""

    def __init__(self, change: Change) -> None:
        super().__init__(
            f"the values of the key columns ({', '.join(change.key)}) are nested too deeply to identify a row: "
            "choose other key columns with the connector's message.key.columns"
        )
        self.change = change


class MixedKeysError(ChangeError):
    """A batch whose keys are not all written alike, so it cannot be seen which of them are of one row."""


class Reduced(msgspec.Struct, frozen=True):
    """To be applied in this order: truncate, deletes, upserts (whose rows may hold ABSENT: partial updates)."""

    truncate: bool
    deletes: list[Change]
    upserts: list[Change]


_NUMBERS: Final[frozenset[type]] = frozenset({int, float, Decimal, bool})
"""Types of which equal values are one key."""


def alike_runs(changes: Sequence[Change], key_columns: Sequence[str]) -> list[Sequence[Change]]:
    """The changes in order, in as few parts as possible whose keys are each written alike. One part, as a rule.

    Where a connector's settings change, keys of one row look different behind that place (a number of milliseconds and
    ISO 8601, base64 and digits), and keys that look alike may be of two rows. Within a part neither happens.
    """
    if _are_alike(changes, key_columns):
        return [changes]
    runs: list[list[Change]] = []
    current = None
    for change in changes:
        form = current if change.operation is Operation.TRUNCATE else _key_form(change, key_columns)
        if not runs or (form != current and current is not None):
            runs.append([])
        current = form
        runs[-1].append(change)
    return list(runs)


def _are_alike(changes: Sequence[Change], key_columns: Sequence[str]) -> bool:
    """Whether all keys are surely written alike: a look by loops in C."""
    semantics = [change.semantics for change in changes]
    if len(set(map(id, semantics))) > 1:
        told = {id(each): each or {} for each in semantics}
        if len({tuple(map(each.get, key_columns)) for each in told.values()}) > 1:
            return False
    keys = [change.key for change in changes]
    try:
        found = [set(map(type, map(itemgetter(column), keys))) for column in key_columns]
    except KeyError:
        return False
    return all(len(types) == 1 or types <= _NUMBERS for types in found)


def _key_form(change: Change, key_columns: Sequence[str]) -> tuple[object, ...]:
    """How the key's values are written: their meaning in the schema, and their types."""
    told, key = change.semantics or {}, change.key
    types = [type(key.get(column)) for column in key_columns]
    return tuple([(told.get(column), int if type_ in _NUMBERS else type_)
                  for column, type_ in zip(key_columns, types, strict=True)])  # fmt: skip


def reduce_changes(
    changes: Sequence[Change], key_columns: Sequence[str], identify: Callable[[Change], object] | None = None
) -> Reduced:
    """The last word per key, of changes in log order per partition.

    ``identify``: what row a change is of, where its key does not show it because keys are not all written alike.
    Raises OrphanRowError, WrongKeyError, UnusableKeyError, and what ``identify`` raises.
    """
    key_of: Callable[[Row], Any] = itemgetter(*key_columns)
    width = len(key_columns)
    if identify is None and (at_once := _last_at_once(changes, key_of, width)) is not None:
        return at_once
    last: dict[Any, Change] = {}
    recreated: dict[Any, Change] = {}
    truncate = False
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            truncate = True
            last.clear()
            recreated.clear()
            continue
        row_key = change.key
        try:
            key = key_of(row_key) if identify is None else identify(change)
            hash(key)  # explicitly, because an empty dict's pop() does not hash what it looks for
        except KeyError:
            raise WrongKeyError(change, key_columns) from None
        except TypeError:  # a value that is a list or an object
            key = _lookup_key(change, key_of(row_key))
        if len(row_key) != width:
            raise WrongKeyError(change, key_columns)
        earlier = last.pop(key, None)
        if earlier is None:
            last[key] = change
        elif change.operation is Operation.DELETE:
            recreated.pop(key, None)
            last[key] = change
        elif earlier.operation is Operation.DELETE:
            recreated[key] = last[key] = change
        else:
            last[key] = _fold(earlier, change)
    words = last.values()
    upserts = [change for change in words if change.operation is Operation.UPSERT]
    for change in upserts if truncate else map(last.__getitem__, recreated):
        _refuse_orphan(change)
    deletes = [change for change in words if change.operation is Operation.DELETE]
    return Reduced(truncate, [*deletes, *recreated.values()], upserts)


def _lookup_key(change: Change, value: object) -> object:
    """A hashable stand-in for a key that contains lists or objects (an array, a numeric without precision, a point).

    Two keys have equal stand-ins exactly if they have equal values. The order of an object's members does not matter.
    Raises UnusableKeyError.
    """
    try:
        return _frozen(value)
    except RecursionError:
        raise UnusableKeyError(change) from None


def _frozen(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((name, _frozen(member)) for name, member in value.items())
    return value


def _last_at_once(changes: Sequence[Change], key_of: Callable[[Row], Any], width: int) -> Reduced | None:
    """``reduce_changes`` by loops in C, for deletes and whole rows with the same columns: what most batches consist of.

    None if the changes must be reduced one by one, which takes up to three times as long.
    """
    keys_as_sent = [change.key for change in changes]
    operations = [change.operation for change in changes]
    if set(map(len, keys_as_sent)) != {width} or Operation.TRUNCATE in set(operations):
        return None
    try:
        keys = list(map(key_of, keys_as_sent))
        last = dict(zip(keys, range(len(keys)), strict=True))
    except (KeyError, TypeError):  # a column is missing, or a value is a list or an object
        return None
    words: list[Change] = list(changes)
    if len(last) < len(changes):
        words = [changes[place] for place in sorted(last.values())]
        if not _are_whole(changes, words):
            return None
    if Operation.DELETE not in set(operations):
        return Reduced(False, [], words)
    upserts = [change for change in words if change.operation is Operation.UPSERT]
    deletes = [change for change in words if change.operation is Operation.DELETE]
    return Reduced(False, [*deletes, *_recreated(changes, keys, last)], upserts)


def _are_whole(changes: Sequence[Change], words: Sequence[Change]) -> bool:
    """Whether no last word takes anything from an earlier one: all rows have the same columns, and values in them."""
    rows = [change.row for change in changes if change.row is not None]
    if rows and not all(map(rows[0].keys().__eq__, map(dict.keys, rows))):
        return False
    last_rows = [change.row for change in words if change.row is not None]
    return ABSENT not in chain.from_iterable(map(dict.values, last_rows))


def _recreated(changes: Sequence[Change], keys: Sequence[object], last: Mapping[Any, int]) -> list[Change]:
    """Of each row that was deleted and exists again, the first change behind its last delete."""
    deleted = {keys[place]: place for place, each in enumerate(changes) if each.operation is Operation.DELETE}
    again = {key: place for key, place in deleted.items() if place < last[key]}
    if not again:
        return []
    found: dict[object, Change] = {}
    for place, key in enumerate(keys):
        if key in again and place > again[key]:
            found.setdefault(key, changes[place])
    return list(found.values())


def _refuse_orphan(change: Change) -> None:
    absent = [column for column, value in (change.row or {}).items() if value is ABSENT]
    if absent:
        raise OrphanRowError(change, absent)


def _fold(earlier: Change, later: Change) -> Change:
    """``later`` with what it lacks taken from ``earlier``, values together with their meaning."""
    old, new = earlier.row or {}, later.row or {}
    if later.semantics is not None and LACKING in later.semantics:
        return later
    if old.keys() <= new.keys() and ABSENT not in new.values():
        return later
    taken = {
        column: value for column, value in old.items() if value is not ABSENT and new.get(column, ABSENT) is ABSENT
    }
    # A column that came after a whole row (ALTER TABLE) and has not changed since: whatever the sink has in it stays.
    untouched = [column for column, value in new.items() if value is ABSENT and column not in old]
    if untouched and any(value is ABSENT for value in old.values()):
        untouched = []
    if not taken and not untouched:
        return later
    row = {column: value for column, value in new.items() if column not in untouched} | taken
    semantics = later.semantics
    if semantics is not None and earlier.semantics is not None and semantics is not earlier.semantics:
        semantics = semantics | {column: earlier.semantics[column] for column in taken if column in earlier.semantics}
    return msgspec.structs.replace(later, row=row, semantics=semantics)
