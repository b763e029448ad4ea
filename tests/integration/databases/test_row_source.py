"""Rows are read only once everything is visible that the change log may have: both databases log a commit first."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fixtures.servers import reachable_folder
from fixtures.services import mariadb_connect
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.row_source import open_rows as open_mysql
from headgate.databases.postgresql.row_source import open_rows as open_postgresql
from headgate.databases.row_source import RowSource, RowSourceError
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.postgres import EmbeddedPostgres
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration


def never() -> bool:
    return False


def at_once() -> bool:
    return True


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A server of its own: no commit ends there once it waits for a standby that does not exist."""
    with tempfile.TemporaryDirectory(prefix="headgate-test-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder, "postgres"), logical=True) as server:
            yield server


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[EmbeddedMariadb]:
    with reachable_folder() as folder, EmbeddedMariadb(folder / "mariadb", captured=True) as server:
        yield server


def test_a_commit_that_postgresql_has_logged_and_does_not_show_yet_is_awaited(
    postgres_server: EmbeddedPostgres,
) -> None:
    dsn = postgres_server.dsn()
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'idle')")
        owner.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        owner.execute("SELECT pg_reload_conf()")
        eventually(
            lambda: owner.execute("SHOW synchronous_standby_names").fetchone() == ("nobody",), "the server has read it"
        )
        owner.execute("SET synchronous_commit = off")
        idle = psycopg.connect(dsn)
        idle.execute("UPDATE t SET v = 'open' WHERE id = 2")
        writer = threading.Thread(target=_update, args=(dsn,))
        writer.start()
        try:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
            eventually(lambda: owner.execute(waiting).fetchall(), "the commit is in the log")
            assert owner.execute("SELECT v FROM t WHERE id = 1").fetchone() == ("old",), "and not visible"
            with open_postgresql(Target(dsn)) as rows:
                with pytest.raises(RowSourceError, match="waits for SyncRep") as refused:
                    rows.await_commits(at_once)
                assert "idle" not in str(refused.value), "what is idle commits later"
                owner.execute("ALTER SYSTEM RESET synchronous_standby_names")
                owner.execute("SELECT pg_reload_conf()")
                rows.await_commits(never)
                found = list(rows.rows("t", ["v"], ["id"], [["1"], ["2"], ["3"]]))
        finally:
            idle.close()
            owner.execute("ALTER SYSTEM RESET synchronous_standby_names")
            owner.execute("SELECT pg_reload_conf()")
            writer.join(END_SECONDS_MAX)
    assert sorted(found) == [("1", "new"), ("2", "idle")]
    assert not writer.is_alive()


def _update(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("SET synchronous_commit = on")
        writer.execute("UPDATE t SET v = 'new' WHERE id = 1")


def test_a_commit_that_mariadb_has_logged_and_does_not_show_yet_is_awaited(mariadb_server: EmbeddedMariadb) -> None:
    url = mariadb_server.dsn("shop")
    with mariadb_connect(mariadb_server.dsn()) as owner:
        for statement in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id int PRIMARY KEY, v varchar(20))",
            "INSERT INTO shop.t VALUES (1, 'old')",
            "SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON",
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
            "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
        ):
            _run(owner, statement)
        before = _run(owner, "SHOW MASTER STATUS")[0][:2]
        _run(owner, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
        writer = threading.Thread(target=_update_mariadb, args=(url,))
        writer.start()
        try:
            logged = f"SHOW BINLOG EVENTS IN '{before[0]}' FROM {before[1]}"
            eventually(lambda: any("Xid" in row for row in _run(owner, logged)), "the change is in the log")
            assert _run(owner, "SELECT v FROM shop.t") == [("old",)], "and not visible"
            with open_mysql(Target(url)) as rows:
                with pytest.raises(RowSourceError, match="a commit waits"):
                    rows.await_commits(at_once)
                _run(owner, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
                rows.await_commits(never)
                found = list(rows.rows("shop.t", ["v"], ["id"], [["1"], ["2"]]))
        finally:
            _run(owner, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
            writer.join(END_SECONDS_MAX)
    assert found == [("1", "new")]
    assert not writer.is_alive()


def test_a_binary_log_that_ends_with_events_of_the_servers_own_is_seen_whole(mariadb_server: EmbeddedMariadb) -> None:
    with mariadb_connect(mariadb_server.dsn()) as owner, open_mysql(Target(mariadb_server.dsn("mysql"))) as rows:
        rows.await_commits(at_once)
        _run(owner, "FLUSH BINARY LOGS")
        rows.await_commits(never)


def _update_mariadb(url: str) -> None:
    with mariadb_connect(url) as writer:
        _run(writer, "UPDATE shop.t SET v = 'new' WHERE id = 1")


def _run(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_a_user_without_the_right_to_see_the_end_of_the_binary_log_is_told_which_one(
    mariadb_server: EmbeddedMariadb,
) -> None:
    with mariadb_connect(mariadb_server.dsn()) as owner:
        _run(owner, "CREATE USER reader@'%' IDENTIFIED BY 'x'")
        _run(owner, "GRANT SELECT ON *.* TO reader@'%'")
    address = f"mysql://reader:x@127.0.0.1:{mariadb_server.port}/mysql"
    with open_mysql(Target(address)) as rows, pytest.raises(RowSourceError, match="GRANT BINLOG MONITOR"):
        rows.await_commits(never)


def test_a_replica_is_refused_and_so_is_one_that_may_not_be_known(mariadb_server: EmbeddedMariadb) -> None:
    with mariadb_connect(mariadb_server.dsn()) as owner, open_mysql(Target(mariadb_server.dsn("mysql"))) as rows:
        _run(owner, "CREATE USER watcher@'%' IDENTIFIED BY 'x'")
        _run(owner, "GRANT SELECT, BINLOG MONITOR ON *.* TO watcher@'%'")
        watcher = Target(f"mysql://watcher:x@127.0.0.1:{mariadb_server.port}/mysql")
        _run(owner, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'x'")
        with pytest.raises(RowSourceError, match="is a replica"):
            rows.await_commits(never)
        _run(owner, "RESET SLAVE ALL")
        rows.await_commits(never)
        with open_mysql(watcher) as watched:
            watched.await_commits(never)
            _run(owner, "SET GLOBAL gtid_slave_pos = '7-9-5'")
            try:
                with pytest.raises(RowSourceError, match="GRANT REPLICA MONITOR"):
                    watched.await_commits(never)
                rows.await_commits(never)
            finally:
                _run(owner, "SET GLOBAL gtid_slave_pos = ''")


def test_keys_are_found_as_they_are_written(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute(
            "CREATE TABLE t (a text, b bigint, u uuid, v bytea, w boolean, c int GENERATED ALWAYS AS (1) STORED, "
            "PRIMARY KEY (a, b))"
        )
        owner.execute("""INSERT INTO t (a, b, v, w) VALUES ('x''"\\', 1, '\\x00ff', true), ('%', -2, NULL, false)""")
    with open_postgresql(Target(postgres_database)) as rows:
        assert rows.columns("public.t") == {"a": "text", "b": "int8", "u": "uuid", "v": "bytea", "w": "bool"}
        assert rows.columns("public.none") == {}
        keys = [["x'\"\\", "1"], ["%", "-2"], ["%", "99999999999999999999"], ["\0", "1"]]
        found = set(rows.rows("public.t", ["v", "w"], ["a", "b"], keys))
        with pytest.raises(RowSourceError, match="column w, which is of type bool"):
            rows.key_forms("public.t", ["w"])
    assert found == {("x'\"\\", "1", b"\x00\xff", "1"), ("%", "-2", None, "0")}


KEY = ("part%", "id")
KEYS = [("", 1), ("a", 2), ("a", 10), ("b%s", -3), ("b%s", 9), ("z", 0), ("é", 1)]


def _walked(rows: RowSource, table: str, size: int) -> list[list[tuple[Any, ...]]]:
    """The rows of the table, range by range."""
    ranges: list[list[tuple[Any, ...]]] = []
    above: tuple[str, ...] | None = None
    while True:
        upto = rows.next_bound(table, KEY, above, size)
        ranges.append(sorted(rows.rows_within(table, ("v",), KEY, Chunk(above, upto))))
        if upto is None:
            return ranges
        above = upto


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_ranges_of_a_key_have_every_row_once(
    postgres_server: EmbeddedPostgres, mariadb_server: EmbeddedMariadb, size: int
) -> None:
    wanted = sorted((part, str(number), "x") for part, number in KEYS)
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS r")
        owner.execute('CREATE TABLE r ("part%" text, id int, v text, PRIMARY KEY ("part%", id))')
        for key in KEYS:
            owner.execute("INSERT INTO r VALUES (%s, %s, 'x')", key)
        owner.execute("ANALYZE r")
        with open_postgresql(Target(postgres_server.dsn())) as rows:
            _check_ranges(_walked(rows, "r", size), wanted, size)
            assert rows.rows_about("r") == len(KEYS)
            _check_end(rows, "r", size)
            assert rows.equality("r", KEY) == (None, None)
    with mariadb_connect(mariadb_server.dsn()) as owner:
        _run(owner, "CREATE DATABASE IF NOT EXISTS ranges")
        _run(owner, "CREATE OR REPLACE TABLE ranges.r (`part%` varchar(9), id int, v text, PRIMARY KEY (`part%`, id))")
        for part, number in KEYS:
            _run(owner, f"INSERT INTO ranges.r VALUES ('{part}', {number}, 'x')")
    with open_mysql(Target(mariadb_server.dsn("ranges"))) as rows:
        _check_ranges(_walked(rows, "ranges.r", size), wanted, size)
        assert rows.rows_about("ranges.r") is not None
        _check_end(rows, "ranges.r", size)
        assert [collation is None for collation in rows.equality("ranges.r", KEY)] == [False, True]


def _check_end(rows: RowSource, table: str, size: int) -> None:
    last = ("é", "1") if rows.last_key(table, KEY) == ("é", "1") else ("z", "0")  # by the server's own order
    assert rows.last_key(table, KEY) == last
    assert rows.next_bound(table, KEY, None, len(KEYS), last) == last
    assert rows.next_bound(table, KEY, None, len(KEYS) + 1, last) is None
    assert rows.next_bound(table, KEY, None, size, ("", "1")) == (("", "1") if size == 1 else None)
    assert rows.next_bound(table, KEY, last, 1, last) is None


def _check_ranges(ranges: list[list[tuple[Any, ...]]], wanted: list[tuple[str, ...]], size: int) -> None:
    assert sorted(row for each in ranges for row in each) == wanted
    assert {len(each) for each in ranges[:-1]} <= {size}
    assert len(ranges[-1]) < size or size == 1
