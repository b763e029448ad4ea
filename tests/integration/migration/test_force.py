"""A forced cut-over ends the sessions that hold the table or wait for it, no others, or is refused."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from fixtures.services import mariadb_connect
from headgate.migration.strategies.contract import LockUnavailableError
from headgate.migration.strategies.mariadb.holders import end_holders as end_at_mariadb
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.postgresql.holders import end_holders as end_at_postgres
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration


def is_over(session: Any) -> bool:
    try:
        with session.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (psycopg.Error, pymysql.Error):
        return True
    return False


def waiting(run: Any) -> threading.Thread:
    """A client that waits for a lock until its session is ended."""

    def wait() -> None:
        with suppress(psycopg.Error, pymysql.Error):
            run()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_at_postgresql_only_sessions_of_this_table_and_database_are_ended(postgres_database: str) -> None:
    other = postgres_database.rpartition("/")[0] + "/postgres"
    with (
        psycopg.connect(postgres_database, autocommit=True, application_name="headgate migration m") as main,
        psycopg.connect(postgres_database) as holder,
        psycopg.connect(postgres_database, options="-c lock_timeout=60s") as waiter,
        psycopg.connect(postgres_database) as beside,
        psycopg.connect(other) as elsewhere,
    ):
        main.execute("CREATE TABLE items (id int)")
        main.execute("CREATE TABLE others (id int)")
        holder.execute("SELECT * FROM items")
        beside.execute("SELECT * FROM others")
        elsewhere.execute("SELECT * FROM pg_class")
        thread = waiting(lambda: waiter.execute("LOCK TABLE items"))
        asked = (
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE relation = 'items'::regclass AND NOT granted AND datname = current_database()"
        )
        eventually(lambda: main.execute(asked).fetchone() == (1,), "it waits for the table")
        numbers = [str(session.info.backend_pid) for session in (waiter, holder)]
        ended = end_at_postgres(main, "public.items")
        thread.join(END_SECONDS_MAX)
        assert [word.partition(" ")[0] for word in ended] == numbers
        assert ["waited for it" in ended[0], "held it" in ended[1]] == [True, True]
        eventually(lambda: is_over(holder) and is_over(waiter), "both are ended")
        assert not is_over(beside)
        assert not is_over(elsewhere)


def hold(session: Any, table: str) -> None:
    with session.cursor() as client:
        client.execute("ROLLBACK")
        client.execute("START TRANSACTION")
        client.execute(f"SELECT * FROM {table}")


@pytest.fixture
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariadb]:
    with EmbeddedMariadb(tmp_path_factory.mktemp("mariadb"), settings={"performance_schema": "ON"}) as server:
        yield server


def test_at_mariadb_it_is_refused_until_the_server_tells_who_holds_the_table(
    mariadb: EmbeddedMariadb, tmp_path: Path
) -> None:
    parts = urlsplit(mariadb.dsn())
    (tmp_path / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
    with closing(mariadb_connect(mariadb.dsn())) as main, main.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.items (id int PRIMARY KEY)")
        cursor.execute("CREATE TABLE shop.others (id int PRIMARY KEY)")
        address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}/shop"
        with (
            closing(
                MariadbServer("m", target_of(address, str(tmp_path / "password")), cluster_id=NO_CLUSTER)
            ) as server,
            closing(mariadb_connect(mariadb.dsn("shop"))) as holder,
            closing(mariadb_connect(mariadb.dsn("shop"))) as dump,
        ):
            server.take_over(1)
            for session, table in ((holder, "items"), (dump, "others")):
                hold(session, table)
            with pytest.raises(LockUnavailableError, match=r"does not report which session holds shop\.items"):
                server.end_holders("shop", "items")
            assert not is_over(holder)
            cursor.execute(
                "UPDATE performance_schema.setup_instruments SET enabled = 'YES' "
                "WHERE name = 'wait/lock/metadata/sql/mdl'"
            )
            for session, table in ((holder, "items"), (dump, "others")):
                hold(session, table)
            number = holder.thread_id()
            server.end_holders("shop", "items")
            assert [word.partition(" ")[0] for word in server.ended] == [str(number)]
            eventually(lambda: is_over(holder), "it is ended")
            assert not is_over(dump), "an old transaction on another table"
            assert end_at_mariadb(server.sessions.main, "shop", "items", server.sessions.numbers()) == []
