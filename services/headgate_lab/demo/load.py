"""Writers that keep the shop busy: inserts, updates, key changes, deletes, and rows deleted and made again at once.

Each writer is a thread with a connection and a seed of its own, and changes only rows that it owns, so what it does
can be done again and no writer waits for another. A transaction does one to four things. The rate is bounded: a demo
shows that nothing is lost or doubled, a bench shows speed.
"""

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from itertools import count
from random import Random
from threading import Event, Thread
from typing import Final

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Placeholder

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.schema import TABLES, Row, ShopTable, with_altered
from headgate_lab.embedded.clients import postgres_client

OPERATIONS_PER_TRANSACTION_MAX: Final = 4
LIVE_ROWS_MIN: Final = 20
"""Below this a writer only inserts, so that there is always something to change."""

FIRST_SERIAL: Final = 1_000_000
"""Above the serials of the initial rows."""

MARKER_SERIAL: Final = 500_000_000
"""Above every serial a writer reaches."""

STOP_SECONDS_MAX: Final = 120.0
"""A transaction takes milliseconds; a writer that does not stop by then hangs."""

Key = tuple[object, ...]


class LoadError(Exception):
    """A writer could not write; the message names it and the reason."""


class WriteKind(StrEnum):
    """What a writer does to a row. ``hand_over`` gives a unique value of one row to another."""

    INSERT = "insert"
    UPDATE = "update"
    CHANGE_KEY = "change_key"
    DELETE = "delete"
    RECREATE = "recreate"
    HAND_OVER = "hand_over"


_WEIGHTS: Final[dict[WriteKind, int]] = {
    WriteKind.INSERT: 20,
    WriteKind.UPDATE: 44,
    WriteKind.CHANGE_KEY: 6,
    WriteKind.DELETE: 20,
    WriteKind.RECREATE: 7,
    WriteKind.HAND_OVER: 3,
}
"""Updates dominate, as in a shop; deletes equal inserts, so that tables keep their size."""


def fill(connection: Connection, seed: int) -> dict[str, list[Key]]:
    """Insert the initial rows in one transaction; the keys per table's name."""
    random = Random(f"{seed}/fill")  # noqa: S311 - a workload, not a secret
    keys: dict[str, list[Key]] = {}
    with connection.transaction(), connection.cursor() as cursor:
        for table in TABLES:
            rows = [table.new_row(random, serial) for serial in range(table.initial_rows)]
            cursor.executemany(_insert(table, rows[0]), rows)
            keys[table.name] = [_key(table, row) for row in rows]
    return keys


def write_markers(connection: Connection, seed: int) -> dict[str, Row]:
    """Insert one last row per table in one transaction; its key per table's name.

    A sink that has applied a table's marker has applied every earlier change of that table.
    """
    random = Random(f"{seed}/markers")  # noqa: S311
    markers: dict[str, Row] = {}
    with connection.transaction():
        for table in TABLES:
            row = table.new_row(random, MARKER_SERIAL)
            connection.execute(_insert(table, row), row)
            markers[table.name] = {column: row[column] for column in table.key}
    return markers


class Writer:
    """Changes its own rows at ``rate`` operations per second until stopped. ``failure`` is the reason why it died."""

    def __init__(self, dsn: str, *, seed: int, number: int, writers: int, rate: float) -> None:
        self.name = f"shop-writer-{number}"
        self.failure: psycopg.Error | LoadError | None = None
        self.counts: Counter[WriteKind] = Counter()
        self._dsn = dsn
        self._random = Random(f"{seed}/{number}")  # noqa: S311
        self._serials = count(FIRST_SERIAL + number, writers)
        self._rate = rate
        self._stopping = Event()
        self._tables = TABLES
        self._live: dict[str, list[Key]] = {table.name: [] for table in TABLES}
        self._thread: Thread | None = None

    def own(self, table: str, keys: list[Key]) -> None:
        """Hand over rows that exist; before start."""
        self._live[table].extend(keys)

    def use(self, altered: ShopTable) -> None:
        """Write the columns that a table has now. May be called from any thread."""
        self._tables = with_altered(self._tables, altered)

    def start(self) -> None:
        """Start writing."""
        self._thread = Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present transaction; ``join`` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for the end of a stopped writer. Raises LoadError."""
        if self._thread is not None:
            seconds = scaled_seconds(STOP_SECONDS_MAX)
            self._thread.join(seconds)
            if self._thread.is_alive():
                raise LoadError(f"{self.name} did not stop within {seconds:.0f} s: the source hangs")

    def _run(self) -> None:
        try:
            with postgres_client(self._dsn, name=self.name) as connection:
                due = time.monotonic()
                while not self._stopping.wait(max(0.0, due - time.monotonic())):
                    due += self.transact(connection) / self._rate
        except (psycopg.Error, LoadError) as error:
            self.failure = error

    def transact(self, connection: Connection) -> int:
        """One transaction of 1 to 4 operations; how many."""
        operations = self._random.randint(1, OPERATIONS_PER_TRANSACTION_MAX)
        done: Counter[WriteKind] = Counter()
        with connection.transaction():
            for _ in range(operations):
                done[self._operate(connection)] += 1
        self.counts.update(done)
        return operations

    def _operate(self, connection: Connection) -> WriteKind:
        table = self._random.choice(self._tables)
        live = self._live[table.name]
        operation = self._random.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
        if len(live) < LIVE_ROWS_MIN:
            operation = WriteKind.INSERT
        elif operation is WriteKind.HAND_OVER and table.unique is None:
            operation = WriteKind.UPDATE
        steps: dict[WriteKind, Callable[[Connection, ShopTable, list[Key]], None]] = {
            WriteKind.INSERT: self._insert,
            WriteKind.UPDATE: self._update,
            WriteKind.CHANGE_KEY: self._change_key,
            WriteKind.DELETE: self._delete,
            WriteKind.RECREATE: self._recreate,
            WriteKind.HAND_OVER: self._hand_over,
        }
        steps[operation](connection, table, live)
        return operation

    def _change_row(self, connection: Connection, statement: Composed, parameters: Key) -> None:
        changed = connection.execute(statement, parameters).rowcount
        if changed != 1:
            raise LoadError(
                f"{self.name}: {statement.as_string(connection)} changed {changed} rows, not one of its own"
            )

    def _new_row(self, table: ShopTable) -> Row:
        return table.new_row(self._random, next(self._serials))

    def _insert(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        row = self._new_row(table)
        connection.execute(_insert(table, row), row)
        live.append(_key(table, row))

    def _update(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        values = table.new_values(self._random, next(self._serials))
        self._change_row(connection, _update(table, values), (*values.values(), *self._random.choice(live)))

    def _change_key(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        """Debezium sends a key change as a delete and a create, without large values that have not changed.

        No consumer can know such a value (the row with it was deleted first), so it is set again here; otherwise a
        table whose keys change needs REPLICA IDENTITY FULL.
        """
        place = self._random.randrange(len(live))
        row = self._new_row(table)
        changed = {column: row[column] for column in row if column in table.key or column == table.large}
        self._change_row(connection, _update(table, changed), (*changed.values(), *live[place]))
        live[place] = _key(table, row)

    def _delete(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        place = self._random.randrange(len(live))
        live[place], live[-1] = live[-1], live[place]
        self._change_row(connection, _delete(table), live.pop())

    def _recreate(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        key = self._random.choice(live)
        row = self._new_row(table) | dict(zip(table.key, key, strict=True))
        self._change_row(connection, _delete(table), key)
        connection.execute(_insert(table, row), row)

    def _hand_over(self, connection: Connection, table: ShopTable, live: list[Key]) -> None:
        giver, taker = self._random.sample(live, 2)
        column = next(c for c in table.columns if c.name == table.unique)
        query = SQL("SELECT {column} FROM {table} WHERE {key}").format(
            column=Identifier(column.name), table=table.identifier, key=_where(table)
        )
        found = connection.execute(query, giver).fetchone()
        if found is None:
            raise LoadError(f"{self.name}: {table.full_name} has no row {giver!r}, which this writer owns")
        renewed = {column.name: column.make(self._random, next(self._serials))}
        self._change_row(connection, _update(table, renewed), (*renewed.values(), *giver))
        self._change_row(connection, _update(table, {column.name: found[0]}), (found[0], *taker))


class ShopLoad:
    """All writers together."""

    def __init__(self, dsn: str, seed: int, writers: int, rate: float, keys: dict[str, list[Key]]) -> None:
        self.writers = [
            Writer(dsn, seed=seed, number=number, writers=writers, rate=rate / writers) for number in range(writers)
        ]
        for number, writer in enumerate(self.writers):
            for table, owned in keys.items():
                writer.own(table, owned[number::writers])

    def start(self) -> None:
        """Start writing."""
        for writer in self.writers:
            writer.start()

    def use(self, altered: ShopTable) -> None:
        """Write the columns that a table has now."""
        for writer in self.writers:
            writer.use(altered)

    def check(self) -> None:
        """Raise LoadError if a writer has died."""
        for writer in self.writers:
            if writer.failure is not None:
                raise LoadError(f"{writer.name} could not write to the source: {writer.failure}") from writer.failure

    def counts(self) -> Counter[WriteKind]:
        """Operations committed so far."""
        return sum((writer.counts.copy() for writer in self.writers), Counter[WriteKind]())

    def stop(self) -> None:
        """Stop all writers and wait for their last transaction. Idempotent. Raises LoadError."""
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()
        self.check()


def _key(table: ShopTable, row: Row) -> Key:
    return tuple(row[column] for column in table.key)


def _where(table: ShopTable) -> Composed:
    return SQL(" AND ").join(SQL("{} = %s").format(Identifier(column)) for column in table.key)


def _insert(table: ShopTable, row: Row) -> Composed:
    return SQL("INSERT INTO {table} ({columns}, version) VALUES ({values}, 0)").format(
        table=table.identifier,
        columns=SQL(", ").join(map(Identifier, row)),
        values=SQL(", ").join(map(Placeholder, row)),
    )


def _update(table: ShopTable, values: Row) -> Composed:
    return SQL("UPDATE {table} SET {sets} WHERE {key}").format(
        table=table.identifier,
        sets=SQL(", ").join(SQL("{} = %s").format(Identifier(column)) for column in values),
        key=_where(table),
    )


def _delete(table: ShopTable) -> Composed:
    return SQL("DELETE FROM {table} WHERE {key}").format(table=table.identifier, key=_where(table))
