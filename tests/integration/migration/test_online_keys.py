"""Online changes of tables with a unique key beside the primary one, and by topics of several partitions.

A value goes from row to row all the while: rows of the copy that are of different moments have it twice.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fixtures.capture import Sources
from headgate.eventlog.kafka import KafkaLog
from integration.migration.shop import (
    Serve,
    Shop,
    captured_mariadb,
    captured_postgres,
    done,
    state_of,
)
from support.topic_changes import make_topics
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

ROWS = 4_000


def table(partitions: int) -> str:
    """With one partition a value is in one row at most."""
    unique = "UNIQUE" if partitions == 1 else ""
    return f"CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, slot int {unique}, note varchar(20))"


MOVERS = 2

DEADLOCK = 1213
"""InnoDB ends one of two clients that write neighbours in a unique key. These two did it to each other 11 times in
55 692 moves, nobody else at the server."""


class Mover(threading.Thread):
    """Takes a value from one of its rows and gives it to another, time and again; knows who has it in the end."""

    def __init__(self, shop: Shop, number: int) -> None:
        super().__init__(name=f"mover-{number}")
        self.slots: dict[int, int | None] = {key: key for key in range(number, ROWS, MOVERS)}
        self.errors: list[str] = []
        self.moves = 0
        self.stopping = threading.Event()
        self._shop, self._number = shop, number

    def run(self) -> None:
        chance = random.Random(self._number)  # noqa: S311 - a history is its seed
        try:
            with closing(self._shop.connect()) as connection, closing(connection.cursor()) as session:
                while not self.stopping.is_set():
                    self._move(session, chance)
                    self.stopping.wait(0.02)
        except (psycopg.Error, pymysql.Error) as error:
            self.errors.append(repr(error))

    def _move(self, session: Any, chance: random.Random) -> None:
        giver = chance.choice([key for key, slot in self.slots.items() if slot is not None])
        taker = chance.choice([key for key in self.slots if key != giver])
        slot = self.slots[giver]
        try:
            session.execute("BEGIN")
            session.execute("UPDATE items SET slot = NULL WHERE id = %s", (giver,))
            session.execute("UPDATE items SET slot = %s, v = v + 1 WHERE id = %s", (slot, taker))
            session.execute("COMMIT")
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            return
        self.slots[giver], self.slots[taker] = None, slot
        self.moves += 1


def topic_of(sources: Sources, schema: str, partitions: int) -> None:
    """Made before the connector would make it."""
    admin = AdminClient({"bootstrap.servers": sources.bootstrap})  # kept: its end would end the request
    make_topics(admin, NewTopic(f"{schema}.{schema}.items", partitions, 1))


@pytest.fixture
def postgres_shop(sources: Sources, postgres_schema: tuple[Any, str], tmp_path: Path, partitions: int) -> Shop:
    topic_of(sources, postgres_schema[1], partitions)
    fill = f"INSERT INTO items SELECT n, 0, n, 'note' FROM generate_series(0, {ROWS - 1}) n"
    change = "UPDATE items SET v = v WHERE id = {}"
    return captured_postgres(sources, postgres_schema, tmp_path, (table(partitions), fill), change)


@pytest.fixture
def mariadb_shop(sources: Sources, mariadb_source: str, tmp_path: Path, partitions: int) -> Iterator[Shop]:
    topic_of(sources, mariadb_source.rpartition("/")[2], partitions)
    fill = f"INSERT INTO items SELECT seq, 0, seq, 'note' FROM seq_0_to_{ROWS - 1}"
    change = "UPDATE items SET note = '{0}' WHERE id = {0}"
    with captured_mariadb(sources, mariadb_source, tmp_path, (table(partitions), fill), change) as shop:
        yield shop


@pytest.fixture
def movers(shop: Shop) -> Iterator[list[Mover]]:
    started = [Mover(shop, number) for number in range(MOVERS)]
    for mover in started:
        mover.start()
    yield started
    for mover in started:
        mover.stopping.set()
        mover.join(END_SECONDS_MAX)


def unique_keys(shop: Shop) -> set[str]:
    """Columns that a unique key is over."""
    found = shop.run(
        "SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k "
        "ON k.constraint_schema = c.constraint_schema AND k.table_name = c.table_name AND k.constraint_name = "
        f"c.constraint_name WHERE c.constraint_type = 'UNIQUE' AND c.table_schema = '{shop.schema}' AND c.table_name = "
        "'items'"
    )
    return {name for (name,) in found}


def await_moves(movers: list[Mover]) -> None:
    """From now on each of them has moved a value."""
    before = [mover.moves for mover in movers]
    eventually(
        lambda: all(mover.moves > n for mover, n in zip(movers, before, strict=True)),
        lambda: f"values move: {[mover.errors for mover in movers]}",
    )


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_value_that_goes_from_row_to_row_is_where_it_went(
    cluster: KafkaLog, serve: Serve, shop: Shop, movers: list[Mover], partitions: int
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    name = f"u{partitions}"  # the database remembers the other one
    if partitions > 1:
        refused = shop.submit("r", "ADD COLUMN code int UNIQUE")
        assert refused.exit_code == 40
        assert "a value that goes from row to row could not be followed" in " ".join(refused.output.split())
    unique = "UNIQUE" if partitions == 1 else ""
    asked = shop.submit(name, f"ADD COLUMN code int {unique}, DROP COLUMN note", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of(name)["is_ready_to_complete"], "it waits for its completion", 400)
    await_moves(movers)
    done("complete", name)
    eventually(lambda: state_of(name)["state"] != "running", "it has ended", 400)
    await_moves(movers)
    for mover in movers:
        mover.stopping.set()
        mover.join(END_SECONDS_MAX)
    assert [mover.errors for mover in movers] == [[]] * MOVERS
    shown = state_of(name)
    assert (shown["state"], shown["attempt"]) == ("complete", 1), shown
    expected = {key: slot for mover in movers for key, slot in mover.slots.items()}
    assert dict(shop.run("SELECT id, slot FROM items")) == expected
    assert unique_keys(shop) == ({"slot", "code"} if partitions == 1 else set())
    assert set(shop.columns()) == {"id", "v", "slot", "code"}
