"""The copy of an online change beside clients' transactions: a client is never the one whose transaction is ended."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg
import pymysql
import pytest

from fixtures.services import database_connect
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from support.waiting import eventually

pytestmark = pytest.mark.integration

ROWS = 500
CHUNK = 100
HELD = 150
"""The row that a client has changed, and whose transaction it has not ended."""


def record_of(spec: MigrationSpec) -> MigrationRecorded:
    return MigrationRecorded(
        owner_rev=1,
        sequence=1,
        spec=written(spec),
        action="alter",
        table="items",
        is_immediate=False,
        state=MigrationState.RUNNING,
        stage="",
        attempt=1,
        retries=0,
        ending=None,
        owner_failed=False,
        has_nothing_to_do=False,
        launch_postponed=False,
        completion_postponed=False,
        is_ready_to_complete=False,
        was_ready=False,
        cutover_attempts=0,
        cutover_forced=False,
        rows_copied=0,
        table_rows=0,
        eta_seconds=-1,
        throttle_ratio=0.0,
        throttle_reason="",
        artifacts=(),
        note="",
        message="",
        added_ms=0,
        ready_ms=0,
        started_ms=0,
        live_ms=0,
        ended_ms=0,
    )


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    return found


def connected(url: str) -> Any:
    return database_connect(url)


def waits_for_a_row(url: str, watcher: Any) -> bool:
    """Whether some transaction waits for a row's lock now."""
    if url.startswith("mysql"):
        watcher.execute("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
    else:
        watcher.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event IN ('transactionid', 'tuple') AND datname = current_database()"
        )
    return bool(watcher.fetchone()[0])


@pytest.fixture
def clients(url: str) -> Iterator[tuple[Any, Any]]:
    """Two sessions' cursors: of a client whose deadlocks are found soon, and of somebody who watches."""
    with closing(connected(url)) as first, closing(connected(url)) as second:
        client, watcher = first.cursor(), second.cursor()
        client.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)")
        client.execute("INSERT INTO items VALUES " + ", ".join(f"({n}, 0)" for n in range(1, ROWS + 1)))
        if not url.startswith("mysql"):
            client.execute("SET deadlock_timeout = '500ms'")
        yield client, watcher


@pytest.fixture
def spec(url: str, tmp_path: Path) -> MigrationSpec:
    parts = urlsplit(url)
    (tmp_path / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
    return MigrationSpec(
        statement="ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7",
        database=f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}",
        password_file=str(tmp_path / "password"),
        strategy=MigrationStrategy.TRIGGERS,
        chunk_rows=CHUNK,
    )


def test_a_client_that_goes_back_to_a_copied_row_is_not_ended(
    url: str, clients: tuple[Any, Any], spec: MigrationSpec
) -> None:
    client, watcher = clients
    record = record_of(spec)
    still = msgspec.structs.replace(record, throttle_ratio=1.0)
    with closing(open_strategy("m", spec)) as strategy:

        def told(record: MigrationRecorded = record) -> Any:
            return strategy.watch(fx.WatchMigration("m", record, 1))

        assert isinstance(strategy.start(fx.StartMigration("m", still, None, 1)), fx.Progressed)
        eventually(lambda: told(still).rows_copied == CHUNK, "it stands still after the first range")
        client.execute("BEGIN")
        client.execute("UPDATE items SET v = v + 1 WHERE id = %s", (HELD,))
        eventually(
            # MariaDB looks at the row behind a range, too, to see that it has ended.
            lambda: json.loads(told().note)["upto"][0] >= HELD - 2 or waits_for_a_row(url, watcher),
            "the copy has come to the row that is held",
        )
        client.execute("UPDATE items SET v = v + 1 WHERE id = %s", (CHUNK + 5,))
        client.execute("COMMIT")
        eventually(lambda: told().is_ready_to_complete, "it is copied and compared")
        assert isinstance(strategy.cut_over(fx.CutOverMigration("m", record, 1)), fx.Completed)
    watcher.execute("SELECT id, v, extra FROM items WHERE v <> 0 ORDER BY id")
    assert list(watcher.fetchall()) == [(CHUNK + 5, 1, 7), (HELD, 1, 7)]


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_clients_change_rows_between_the_creation_of_two_triggers(
    clients: tuple[Any, Any], spec: MigrationSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB creates them one by one; a row that only some of them see must not be left in the copy."""
    client, created, run = clients[0], [], Session.run

    def run_beside_client(session: Session, statement: str, parameters: tuple[Any, ...] | None = None) -> Any:
        if statement.startswith("CREATE TRIGGER"):
            first = 1000 + 10 * len(created)
            client.execute(f"INSERT INTO items VALUES ({first}, 0), ({first + 1}, 0), ({first + 2}, 0)")
            client.execute(f"UPDATE items SET v = 1 WHERE id = {first}")
            client.execute(f"DELETE FROM items WHERE id = {first + 1} OR id BETWEEN 1000 AND {first - 9}")
            created.append(statement)
        return run(session, statement, parameters)

    monkeypatch.setattr(Session, "run", run_beside_client)
    record = record_of(spec)
    with closing(open_strategy("m", spec)) as strategy:
        assert isinstance(strategy.start(fx.StartMigration("m", record, None, 1)), fx.Progressed)
        assert len(created) == 3
        watch = fx.WatchMigration("m", record, 1)
        eventually(lambda: told_of(strategy.watch(watch)).is_ready_to_complete, "it is copied and compared")
        assert isinstance(strategy.cut_over(fx.CutOverMigration("m", record, 1)), fx.Completed)
    client.execute("SELECT id, v, extra FROM items WHERE id >= 1000 ORDER BY id")
    assert list(client.fetchall()) == [(1012, 0, 7), (1020, 1, 7), (1022, 0, 7)]


def told_of(found: Any) -> fx.Progressed:
    assert isinstance(found, fx.Progressed), found
    return found


def test_rows_of_a_table_that_a_client_empties_do_not_come_back(
    url: str, clients: tuple[Any, Any], spec: MigrationSpec
) -> None:
    """A trigger for it empties the copy; MariaDB has none, so there the cut-over is refused."""
    client = clients[0]
    record = record_of(spec)
    with closing(open_strategy("m", spec)) as strategy:
        assert isinstance(strategy.start(fx.StartMigration("m", record, None, 1)), fx.Progressed)
        watch = fx.WatchMigration("m", record, 1)
        eventually(lambda: strategy.watch(watch).is_ready_to_complete, "it is copied and compared")
        client.execute("TRUNCATE TABLE items")
        client.execute("INSERT INTO items VALUES (1000, 1)")
        assert isinstance(strategy.examine(spec, None), fx.Examined), "its own triggers are no obstacle"
        told = strategy.cut_over(fx.CutOverMigration("m", record, 1))
        if url.startswith("mysql"):
            assert isinstance(told, fx.CutOverFailed)
            assert "items was truncated or rebuilt while it was copied" in told.reason
        else:
            assert isinstance(told, fx.Completed)
    client.execute("SELECT id, v FROM items")
    assert list(client.fetchall()) == [(1000, 1)]


KEYS = {
    "postgresql": {"bytea": "decode(lpad(to_hex(n), 8, '0'), 'hex')", "time": "time '00:00' + n * interval '1 s'"},
    "mysql": {"varbinary(8)": "UNHEX(LPAD(HEX(n), 8, '0'))", "time(3)": "SEC_TO_TIME(n * 1000.5)"},
}
"""Types of a key whose values JSON has not, and an expression of a row's number n."""


@pytest.mark.parametrize("number", [0, 1])
def test_another_owner_goes_on_at_the_place_that_was_noted(
    url: str, clients: tuple[Any, Any], spec: MigrationSpec, number: int
) -> None:
    client = clients[0]
    kind, value = list(KEYS["mysql" if url.startswith("mysql") else "postgresql"].items())[number]
    client.execute("DROP TABLE items")
    client.execute(f"CREATE TABLE items (id {kind} PRIMARY KEY, v int NOT NULL)")
    numbers = "seq_1_to_500" if url.startswith("mysql") else "generate_series(1, 500) AS s(seq)"
    client.execute(f"INSERT INTO items SELECT {value}, n FROM (SELECT seq AS n FROM {numbers}) t")
    record = record_of(spec)
    still = msgspec.structs.replace(record, throttle_ratio=1.0)
    with closing(open_strategy("m", spec)) as first:
        assert isinstance(first.start(fx.StartMigration("m", still, None, 1)), fx.Progressed)
        watch = fx.WatchMigration("m", still, 1)
        eventually(lambda: first.watch(watch).rows_copied == CHUNK, "it stands still after the first range")
        note = first.watch(watch).note
    record = msgspec.structs.replace(record, note=note)
    with closing(open_strategy("m", spec)) as second:
        assert isinstance(second.adopt(fx.AdoptMigration("m", record, owner_rev=2)), fx.Progressed)
        watch = fx.WatchMigration("m", record, 2)
        eventually(lambda: second.watch(watch).is_ready_to_complete, "it is copied and compared", 60)
        assert second.watch(watch).rows_copied == ROWS, "every row once: the first range was not copied again"
        assert isinstance(second.cut_over(fx.CutOverMigration("m", record, 2)), fx.Completed)
    client.execute("SELECT count(*), sum(v) FROM items WHERE extra = 7")
    assert [int(found) for found in client.fetchone()] == [ROWS, ROWS * (ROWS + 1) // 2]


class Sleeper(threading.Thread):
    """A session at work until its server ends it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def run(self) -> None:
        with closing(connected(self._url)) as session, suppress(pymysql.Error, psycopg.Error):
            session.cursor().execute("SELECT SLEEP(900)" if self._url.startswith("mysql") else "SELECT pg_sleep(900)")


def end_sleepers(url: str, watcher: Any) -> None:
    if not url.startswith("mysql"):
        watcher.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%pg_sleep(900)' AND datname = current_database()"
        )
        return
    watcher.execute("SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(900)'")
    for (number,) in watcher.fetchall():
        watcher.execute(f"KILL {number}")


def test_the_copy_waits_while_the_database_is_busy(url: str, clients: tuple[Any, Any], spec: MigrationSpec) -> None:
    watcher = clients[1]
    spec = msgspec.structs.replace(spec, threads_running_max=2)
    record = record_of(spec)
    sleepers = [Sleeper(url) for _ in range(4)]
    for sleeper in sleepers:
        sleeper.start()
    try:
        with closing(open_strategy("m", spec)) as strategy:

            def told() -> Any:
                return strategy.watch(fx.WatchMigration("m", record, 1))

            # Sessions begin to sleep in their own time; the copy must meet all of them.
            eventually(lambda: sleeping(url, watcher) == len(sleepers), "all sleep")
            assert isinstance(strategy.examine(spec, None), fx.Examined)
            strategy.start(fx.StartMigration("m", record, None, 1))
            eventually(lambda: "sessions at work, 2 allowed" in told().throttle_reason, "it says why it waits")
            assert told().rows_copied == CHUNK
            end_sleepers(url, watcher)
            eventually(lambda: told().is_ready_to_complete, "it goes on")
    finally:
        end_sleepers(url, watcher)
        for sleeper in sleepers:
            sleeper.join(60)


def sleeping(url: str, watcher: Any) -> int:
    if url.startswith("mysql"):
        watcher.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(900)'")
    else:
        watcher.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state = 'active' AND query = 'SELECT pg_sleep(900)' AND datname = current_database()"
        )
    return int(watcher.fetchone()[0])


def test_a_limit_that_cannot_be_watched_is_refused(url: str, clients: tuple[Any, Any], spec: MigrationSpec) -> None:
    told = open_strategy("m", msgspec.structs.replace(spec, lag_seconds_max=1.0)).examine(
        msgspec.structs.replace(spec, lag_seconds_max=1.0), None
    )
    if url.startswith("mysql"):
        assert told == fx.ExamineRefused(
            "MariaDB's primary does not know the lag of its replicas: name them with --replica"
        )
    else:
        assert isinstance(told, fx.Examined)
