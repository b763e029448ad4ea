"""What clients write to the standard table: rows added, changed, renumbered, deleted, and brought back."""

import random
from typing import Final

import msgspec

__all__ = ["COLUMNS", "Batch", "ClientHistory"]

COLUMNS: Final = ("id", "n", "a", "s", "d", "word", "at", "body")
"""The columns that clients write."""

FIRST_ROWS: Final = 40
_VALUES: Final = {
    "s": ("NULL", "''", "'a'", "'label'", "'été'", "'it''s 100%'"),
    "d": ("NULL", "0.00", "1.25", "-3.75", "9999.94", "12.50"),
    "word": ("NULL", "'x'", "'y'"),
    "at": ("NULL", "'2024-02-29 23:59:59.999999'", "'1999-12-31 00:00:00'", "'2038-01-19 03:14:08.5'"),
    "body": ("NULL", "''", "'a text of several words'", "'x\ty'"),
}


class Batch(msgspec.Struct, frozen=True):
    """Statements, and the ids of the rows that they touch."""

    statements: tuple[str, ...]
    ids: frozenset[int]


class ClientHistory:
    """One client's history, which is its seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._there: set[int] = set()
        self._gone: set[int] = set()
        self._next = 0

    def first(self) -> Batch:
        """The rows that are there at the beginning."""
        ids = [self._added() for _ in range(FIRST_ROWS)]
        return Batch(tuple(self._insert(number) for number in ids), frozenset(ids))

    def batch(self, count: int = 8) -> Batch:
        """Some changes, one of each kind at least."""
        kinds = [self._update, self._delete, self._add, self._renumber, self._bring_back]
        chosen = [*kinds, *self._chance.choices(kinds, k=max(0, count - len(kinds)))]
        touched: set[int] = set()
        statements = [change(touched) for change in chosen]
        return Batch(tuple(statements), frozenset(touched))

    def lasting(self) -> str:
        """A statement that the table takes before and after any case."""
        touched: set[int] = set()
        if self._chance.random() < 0.2 and len(self._there) > FIRST_ROWS // 2:
            return self._delete(touched)
        return f"UPDATE items SET n = {self._chance.randrange(1_000)} WHERE id = {self._one(touched)}"

    # --- one change ---

    def _update(self, touched: set[int]) -> str:
        number = self._one(touched)
        values = self._values()
        columns = self._chance.sample(sorted(values), k=self._chance.randint(1, len(values)))
        return f"UPDATE items SET {', '.join(f'{name} = {values[name]}' for name in columns)} WHERE id = {number}"

    def _delete(self, touched: set[int]) -> str:
        number = self._one(touched)
        self._there.remove(number)
        self._gone.add(number)
        return f"DELETE FROM items WHERE id = {number}"

    def _add(self, touched: set[int]) -> str:
        number = self._added()
        touched.add(number)
        return self._insert(number)

    def _renumber(self, touched: set[int]) -> str:
        number = self._one(touched)
        new = self._added()
        self._there.remove(number)
        self._gone.add(number)
        touched.add(new)
        return f"UPDATE items SET id = {new} WHERE id = {number}"

    def _bring_back(self, touched: set[int]) -> str:
        if not self._gone:
            return self._delete(touched)
        number = self._chance.choice(sorted(self._gone))
        self._gone.remove(number)
        self._there.add(number)
        touched.add(number)
        return self._insert(number)

    # --- parts ---

    def _one(self, touched: set[int]) -> int:
        number = self._chance.choice(sorted(self._there))
        touched.add(number)
        return number

    def _added(self) -> int:
        self._next += 1
        self._there.add(self._next)
        return self._next

    def _insert(self, number: int) -> str:
        values = self._values()
        return f"INSERT INTO items (id, {', '.join(values)}) VALUES ({number}, {', '.join(values.values())})"

    def _values(self) -> dict[str, str]:
        chance = self._chance
        numbers = {"n": str(chance.randrange(1_000)), "a": chance.choice(("NULL", str(chance.randrange(100))))}
        return numbers | {name: chance.choice(values) for name, values in _VALUES.items()}
