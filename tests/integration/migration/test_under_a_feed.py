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

import msgspec
import pytest

from fixtures.services import database_connect
from headgate.config.feed import SinkSpec
from headgate.formats.change import Change, Operation
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.contract import Strategy
from headgate.records.migration import MigrationStrategy
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    SinkColumnMissingError,
    SinkError,
    ValueRefusedError,
)
from headgate.sinks.registry import open_sink
from integration.migration.test_beside_clients import record_of
from support import build
from support.waiting import eventually

pytestmark = pytest.mark.integration

ROWS = 3_000
BATCH_ROWS_MAX = 60
CHUNK = 100
HELD = 150
"""The row that a client has changed, and whose transaction it has not ended."""
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

    def is_awaited(self, sessions: int = 1) -> bool:
        """Whether so many sessions wait for a lock of the table."""
        if self.kind == "mysql":
            where = "state LIKE 'Waiting for table%' AND info NOT LIKE '%processlist%'"
            return len(self.run(f"SELECT 1 FROM information_schema.processlist WHERE {where}")) >= sessions
        here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        return (
            len(self.run(f"SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND {here}")) >= sessions
        )

    def is_row_awaited(self) -> bool:
        """Whether somebody waits for a row."""
        if self.kind == "mysql":
            return bool(self.run("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"))
        here = "datname = current_database()"
        return bool(
            self.run(f"SELECT 1 FROM pg_stat_activity WHERE wait_event IN ('transactionid', 'tuple') AND {here}")
        )

    def is_held_for_long(self) -> bool:
        """Whether the client and the feed are in transactions of more than a second, where that counts."""
        if self.kind != "mysql":
            return True
        old = "trx_started < NOW() - INTERVAL 1 SECOND"
        return len(self.run(f"SELECT 1 FROM information_schema.innodb_trx WHERE {old}")) == 2

    def spec(self, strategy: MigrationStrategy, change: str) -> MigrationSpec:
        return MigrationSpec(
            statement=f"ALTER TABLE items {change}",
            database=self.address,
            password_file=str(self.password_file),
            strategy=strategy,
            chunk_rows=CHUNK,
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
        self.join(60)
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
        feed.join(60)
    feed.close()


def changed(spec: MigrationSpec, during: Callable[[Strategy, Any], bool] = lambda _strategy, _record: False) -> None:
    """The whole of a migration; ``during`` comes between copy and cut-over, if there are such, or cuts over itself."""
    record = record_of(spec)
    with closing(open_strategy(spec.statement, spec)) as strategy:
        examined = strategy.examine(spec, None)
        assert isinstance(examined, fx.Examined), examined
        started = strategy.start(fx.StartMigration("m", record, None, 1))
        assert isinstance(started, fx.Progressed), started
        watch = fx.WatchMigration("m", record, 1)

        def told() -> Any:
            found = strategy.watch(watch)
            assert not isinstance(found, fx.Broke), found
            return found

        if spec.strategy is MigrationStrategy.DIRECT:
            eventually(lambda: isinstance(told(), fx.Completed), "the statement is in force")
            return
        eventually(lambda: told().is_ready_to_complete, "it is copied and compared")
        if not during(strategy, msgspec.structs.replace(record, note=told().note)):
            completed(strategy, record)


def completed(strategy: Strategy, record: Any, *, is_forced: bool = False) -> None:
    done = strategy.cut_over(fx.CutOverMigration("m", msgspec.structs.replace(record, cutover_forced=is_forced), 1))
    assert isinstance(done, fx.Completed), done


BOTH = pytest.mark.parametrize("strategy", [MigrationStrategy.DIRECT, MigrationStrategy.TRIGGERS])


@BOTH
@pytest.mark.parametrize("feed", ["enforce", "ignore"], indirect=True)
def test_a_feed_goes_on_over_an_additive_change_of_its_sink_table(
    table: Table, feed: Feed, strategy: MigrationStrategy
) -> None:
    feed.start()
    feed.go_on()

    def between(_strategy: Strategy, _record: Any) -> bool:
        feed.go_on()
        return False

    changed(table.spec(strategy, SAME[table.kind]), between)
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
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def rows_of(offset: int) -> list[Change]:
    """A change of the row that a client holds, and of a new one, in a batch."""
    return [put(offset, HELD, 100), put(offset + 1, 10 * ROWS, 200)]


@pytest.mark.parametrize("begun", [True, False], ids=["in_a_batch", "before_a_batch"])
def test_a_cut_over_comes_while_a_batch_is_on_its_way(table: Table, feed: Feed, *, begun: bool) -> None:
    """A client's lock holds up the batch, or else the cut-over and so the batch behind it."""
    with closing(table.connect()) as connection, closing(connection.cursor()) as client:

        def hold(strategy: Strategy, record: Any) -> bool:
            client.execute("BEGIN")
            client.execute(f"UPDATE items SET v = v WHERE id = {HELD}")
            steps = []
            if begun:
                steps.append(Step(lambda: feed.put(rows_of(feed.next))))
                eventually(table.is_row_awaited, "the batch waits for the row", 20)
            steps.append(Step(lambda: completed(strategy, record)))
            eventually(table.is_awaited, "the cut-over waits for the table", 20)
            if not begun:
                steps.append(Step(lambda: feed.put(rows_of(feed.next))))
                eventually(lambda: table.is_awaited(2), "the batch waits behind it", 20)
            client.execute("ROLLBACK")
            for step in steps:
                step.end()
            return True

        changed(table.spec(MigrationStrategy.TRIGGERS, SAME[table.kind]), hold)
    feed.put([put(feed.next, 1, 300)])
    assert dict(table.run("SELECT id, v FROM items")) == feed.rows
    assert [feed.rows[key] for key in (HELD, 10 * ROWS, 1)] == [100, 200, 300]
    assert table.run("SELECT DISTINCT extra FROM items") == [(7,)]
    assert feed.retries == []


def test_a_forced_cut_over_ends_the_batch_which_is_tried_again(table: Table, feed: Feed) -> None:
    with closing(table.connect()) as connection, closing(connection.cursor()) as client:

        def force(strategy: Strategy, record: Any) -> bool:
            client.execute("BEGIN")
            client.execute(f"UPDATE items SET v = v WHERE id = {HELD}")
            batch = Step(lambda: feed.put(rows_of(feed.next)))
            eventually(table.is_row_awaited, "the batch waits for the row", 20)
            eventually(table.is_held_for_long, "MariaDB: transactions younger than a cut-over may take are left", 20)
            completed(strategy, record, is_forced=True)
            batch.end()
            return True

        spec = table.spec(MigrationStrategy.TRIGGERS, SAME[table.kind])
        changed(msgspec.structs.replace(spec, cutover_threshold_seconds=1.0), force)
    assert len(feed.retries) == 1, feed.retries
    assert dict(table.run("SELECT id, v FROM items")) == feed.rows


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
    eventually(lambda: feed.retries, "the table waits", 20)
    changed(table.spec(MigrationStrategy.TRIGGERS, "ADD COLUMN extra int NOT NULL DEFAULT 7"))
    waiting.end()
    assert "no column extra" in feed.retries[0]
    assert sorted(table.run("SELECT extra, count(*) FROM items GROUP BY extra")) == [(7, ROWS - 1), (9, 1)]


PUBLISHED = """
SELECT p.pubname, (SELECT string_agg(a.attname, ',' ORDER BY a.attname) FROM pg_attribute a
WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[])), pg_get_expr(r.prqual, r.prrelid)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = 'items'::regclass ORDER BY 1
"""

IDENTITY = """
SELECT c.relreplident::text, (SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = c.oid AND x.indisreplident) FROM pg_class c WHERE c.oid = 'items'::regclass
"""


@pytest.mark.parametrize("table", ["postgresql"], indirect=True)
def test_publications_and_replica_identity_go_over_to_the_copy(table: Table) -> None:
    table.run("ALTER TABLE items ADD COLUMN code int NOT NULL DEFAULT 0, ADD CONSTRAINT by_code UNIQUE (id, code)")
    table.run("ALTER TABLE items REPLICA IDENTITY USING INDEX by_code")
    table.run("CREATE PUBLICATION whole FOR TABLE items")
    table.run("CREATE PUBLICATION part FOR TABLE items (id, code, v) WHERE (code > 0)")
    before = table.run(PUBLISHED), table.run(IDENTITY)
    assert before[1] == [("i", "by_code")]
    changed(table.spec(MigrationStrategy.TRIGGERS, "ADD COLUMN extra int, ALTER COLUMN v TYPE bigint"))
    assert (table.run(PUBLISHED), table.run(IDENTITY)) == before
    changed(table.spec(MigrationStrategy.TRIGGERS, "RENAME COLUMN v TO amount"))
    assert table.run(PUBLISHED) == [("part", "amount,code,id", "(code > 0)"), ("whole", None, None)]


@pytest.mark.parametrize("table", ["postgresql"], indirect=True)
def test_a_copy_that_a_connector_has_published_meanwhile_takes_the_tables_place(table: Table) -> None:
    table.run("CREATE PUBLICATION part FOR TABLE items (id, v)")
    before = table.run(PUBLISHED)

    def published(_strategy: Strategy, _record: Any) -> bool:
        ((copy,),) = table.run(r"SELECT relname FROM pg_class WHERE relname LIKE '\_items\_hg%' AND relkind = 'r'")
        table.run(f"ALTER PUBLICATION part ADD TABLE {copy}")
        return False

    changed(table.spec(MigrationStrategy.TRIGGERS, "ADD COLUMN extra int"), published)
    assert table.run(PUBLISHED) == before


@pytest.mark.parametrize("table", ["postgresql"], indirect=True)
def test_a_replica_identity_that_the_new_form_has_not_is_refused_at_the_cut_over(table: Table) -> None:
    table.run("ALTER TABLE items ADD COLUMN code int NOT NULL DEFAULT 0, ADD CONSTRAINT by_code UNIQUE (id, code)")
    table.run("ALTER TABLE items REPLICA IDENTITY USING INDEX by_code")
    before = table.run("SELECT 'items'::regclass::oid")

    def refused(strategy: Strategy, record: Any) -> bool:
        told = strategy.cut_over(fx.CutOverMigration("m", record, 1))
        assert isinstance(told, fx.CutOverFailed)
        assert "by_code is the replica identity" in told.reason
        return True

    changed(table.spec(MigrationStrategy.TRIGGERS, "DROP COLUMN code"), refused)
    assert table.run("SELECT 'items'::regclass::oid") == before
