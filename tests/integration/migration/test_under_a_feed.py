"""A sink table is changed while a feed writes it: its writer is between, before and in the middle of batches.

The writer is the one of the sinks, driven as a task of a lane drives it: a batch that fails for a reason that goes away
is tried again from the sink's own position. What the table must hold in the end is known without asking it.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from fixtures.services import database_connect
from headgate.config.sink_spec import SinkSpec
from headgate.formats.change import Change, Operation
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    SinkColumnMissingError,
    SinkError,
    ValueRefusedError,
)
from headgate.sinks.registry import open_sink
from support import build
from support.connections import described
from support.migration_records import recorded
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

ROWS = 3_000
BATCH_ROWS_MAX = 60
PATIENCE_SECONDS = 20.0
"""What a cut-over waits for a lock; the tests hold one for moments."""

SAME: dict[str, str] = {
    "postgresql": "ADD COLUMN extra int NOT NULL DEFAULT 7, ALTER COLUMN v TYPE bigint",
    "mysql": "ADD COLUMN extra int NOT NULL DEFAULT 7, MODIFY COLUMN v bigint NOT NULL",
}
"""Nothing that a feed would have to know of."""


class Table:
    """The sink table, ``items``, and how to open the sink."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, parts = url, urlsplit(url)
        self.kind = "mysql" if parts.scheme == "mysql" else "postgresql"
        self.password_file = folder / "password"
        self.password_file.write_text(unquote(parts.password or ""), encoding="utf-8")
        self.address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        self.name = "public.items" if self.kind == "postgresql" else f"{parts.path.strip('/')}.items"

    def connect(self) -> Any:
        return database_connect(self.url)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, closing(connection.cursor()) as session:
            session.execute(statement)
            return list(session.fetchall()) if session.description else []

    def spec(self, strategy: MigrationStrategy, change: str) -> MigrationSpec:
        return MigrationSpec(
            statement=f"ALTER TABLE items {change}",
            database=described(self.address, self.password_file),
            strategy=strategy,
            topic="topic" if strategy is MigrationStrategy.ONLINE else None,
            cutover_threshold_seconds=PATIENCE_SECONDS,
        )


def put(offset: int, key: int, v: int) -> Change:
    return Change(0, offset, Operation.UPSERT, {"id": key}, {"id": key, "v": v, "s": f"ä{v}"}, None, 0)


class Feed(threading.Thread):
    """Applies one batch after the other, until told to stop; knows what the table must hold, and which errors came."""

    def __init__(self, table: Table, foreign_keys: str = "enforce") -> None:
        super().__init__(name="feed", daemon=True)
        self.rows: dict[int, int] = {}
        self.error: BaseException | None = None
        self.batches = 0
        self.retries: list[str] = []
        self.stopping = threading.Event()
        self._sink = open_sink(
            SinkSpec(
                type=table.kind,
                dsn=table.address,
                password_file=table.password_file,
                foreign_keys=foreign_keys,  # type: ignore[arg-type]
            )
        )
        self.claim = build.claim(table=table.name, topic="shop.items")
        self._sink.claim(self.claim)
        self._writer = self._sink.writer()
        self.next = 0

    def run(self) -> None:
        chance = random.Random(1)  # noqa: S311 - a history is its seed
        try:
            while not self.stopping.is_set():
                self.put([self._change(chance, n) for n in range(1 + chance.randrange(BATCH_ROWS_MAX))])
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.error = error

    def close(self) -> None:
        self._writer.close()
        self._sink.close()

    def _change(self, chance: random.Random, place: int) -> Change:
        key, offset = chance.randrange(2 * ROWS), self.next + place
        if chance.random() < 0.2:
            return Change(0, offset, Operation.DELETE, {"id": key}, None, None, 0)
        return put(offset, key, offset)

    def position(self) -> int:
        """Where the sink is."""
        return self._sink.positions(self.claim)[0]

    def put(self, changes: list[Change], *, is_patient: bool = True) -> None:
        """Apply the changes, as a lane does: from where the sink is, until they are in it."""
        end = self.next + len(changes)
        while self.next < end:
            rest = [change for change in changes if change.offset >= self.next]
            batch = ChangeBatch(self.claim, {0: OffsetRange(self.next, end)}, rest)
            try:
                self.next = self._writer.apply(batch).positions[0]
            except SinkError as error:
                if not (is_patient and error.retryable):
                    raise
                self.retries.append(str(error))
                self.next = self._sink.positions(self.claim)[0]
        for change in changes:
            if change.row is None:
                self.rows.pop(int(change.key["id"]), None)  # type: ignore[call-overload]
            else:
                self.rows[int(change.row["id"])] = int(change.row["v"])  # type: ignore[call-overload]
        self.batches += 1

    def go_on(self, batches: int = 3) -> None:
        """Wait for some more batches."""
        wanted = self.batches + batches
        eventually(lambda: self.error is not None or self.batches >= wanted, "the feed goes on")
        assert self.error is None, self.error

    def end(self) -> dict[int, int]:
        self.stopping.set()
        self.join(END_SECONDS_MAX)
        assert self.error is None, self.error
        return self.rows


@pytest.fixture(params=["postgresql", "mysql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    url = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    found = Table(url, tmp_path)
    found.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40))")
    return found


@pytest.fixture
def feed(request: pytest.FixtureRequest, table: Table) -> Iterator[Feed]:
    feed = Feed(table, getattr(request, "param", "enforce"))
    # All rows come from the feed: what the table holds is what it has written.
    feed.put([put(offset, offset, 0) for offset in range(ROWS)])
    yield feed
    feed.stopping.set()
    if feed.is_alive():
        feed.join(END_SECONDS_MAX)
    feed.close()


def changed(spec: MigrationSpec) -> None:
    """The whole of a migration by strategy direct."""
    record = recorded(written(spec))
    with closing(open_strategy(spec.statement, spec, cluster_id=NO_CLUSTER)) as strategy:
        examined = strategy.examine(spec, None)
        assert isinstance(examined, fx.Examined), examined
        started = strategy.start(fx.StartMigration("m", record, None, 1))
        assert isinstance(started, fx.Progressed), started

        def is_over() -> bool:
            found = strategy.watch(fx.WatchMigration("m", record, 1))
            assert not isinstance(found, fx.Broke), found
            return isinstance(found, fx.Completed)

        eventually(is_over, "the statement is in force")


@pytest.mark.parametrize("feed", ["enforce", "ignore"], indirect=True)
def test_a_feed_goes_on_over_an_additive_change_of_its_sink_table(table: Table, feed: Feed) -> None:
    feed.start()
    feed.go_on()
    changed(table.spec(MigrationStrategy.DIRECT, SAME[table.kind]))
    feed.go_on()
    expected = feed.end()
    assert dict(table.run("SELECT id, v FROM items")) == expected
    assert table.run("SELECT DISTINCT extra FROM items") == [(7,)]
    assert feed.retries == [], "a table that was altered is looked at anew within the same batch"


class Step(threading.Thread):
    """Something that has to wait, beside the test."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised by ``end``
            self.error = error

    def end(self) -> None:
        self.join(END_SECONDS_MAX)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


NOT_ADDITIVE: dict[str, tuple[dict[str, str] | str, type[SinkError], str]] = {
    "dropped": ("DROP COLUMN s", SinkColumnMissingError, "no column s"),
    "renamed": ("RENAME COLUMN s TO title", SinkColumnMissingError, "no column s"),
    "required": ("ADD COLUMN must int NOT NULL", ValueRefusedError, "must"),
    "narrowed": (
        {"postgresql": "ALTER COLUMN s TYPE varchar(4)", "mysql": "MODIFY s varchar(4)"},
        ValueRefusedError,
        "column s",
    ),
    "key": (
        {
            "postgresql": "DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, v)",
            "mysql": "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
        },
        ValueRefusedError,
        r"key columns \(id\) are not the table's \(id, v\)",
    ),
}
"""Of the sink table: what the feed's changes do not fit any more."""


@pytest.mark.parametrize("case", NOT_ADDITIVE)
def test_what_is_not_additive_holds_the_table_where_it_is_and_says_why(table: Table, feed: Feed, case: str) -> None:
    change, error, word = NOT_ADDITIVE[case]
    table.run("DELETE FROM items")
    table.run(f"ALTER TABLE items {change[table.kind] if isinstance(change, dict) else change}")
    at = feed.next
    with pytest.raises(error, match=word) as told:
        feed.put([put(at, 2, 2222)], is_patient=False)
    assert f"offset {at}" in str(told.value), "it says which change"
    assert feed.position() == at
    assert table.run("SELECT * FROM items") == []


def test_a_table_that_lacks_a_column_goes_on_once_it_has_it(table: Table, feed: Feed) -> None:
    """As a lane does: the error is one that is tried again, and nobody has to say so."""
    change = put(feed.next, 1, 1)
    assert change.row is not None
    change.row["extra"] = 9
    waiting = Step(lambda: feed.put([change]))
    eventually(lambda: feed.retries, "the table waits")
    changed(table.spec(MigrationStrategy.DIRECT, "ADD COLUMN extra int NOT NULL DEFAULT 7"))
    waiting.end()
    assert "no column extra" in feed.retries[0]
    assert sorted(table.run("SELECT extra, count(*) FROM items GROUP BY extra")) == [(7, ROWS - 1), (9, 1)]
