"""A copy beside clients: it waits while the database is busy, and a limit that cannot be watched is refused."""

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
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.pace import CopyPace
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from headgate.supervision.threads import BackgroundThread
from support.connections import described
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    return found


def connected(url: str) -> Any:
    return database_connect(url)


@pytest.fixture
def watcher(url: str) -> Iterator[Any]:
    with closing(connected(url)) as session:
        cursor = session.cursor()
        cursor.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)")
        yield cursor


@pytest.fixture
def spec(url: str, tmp_path: Path) -> MigrationSpec:
    parts = urlsplit(url)
    (tmp_path / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
    return MigrationSpec(
        statement="ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7",
        database=described(
            f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}", tmp_path / "password"
        ),
        strategy=MigrationStrategy.ONLINE,
        topic="topic",
    )


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
    watcher.execute(
        "SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(900)' AND db = DATABASE()"
    )
    for (number,) in watcher.fetchall():
        watcher.execute(f"KILL {number}")


def test_the_copy_waits_while_the_database_is_busy(url: str, watcher: Any, spec: MigrationSpec) -> None:
    spec = msgspec.structs.replace(spec, threads_running_max=2)
    sleepers = [Sleeper(url) for _ in range(4)]
    for sleeper in sleepers:
        sleeper.start()
    try:
        with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
            server, passed = strategy._server, threading.Event()
            checked_plan(server, spec)
            server.take_over(1)
            pace = CopyPace(server, spec, 0.0, threading.Event(), None)

            def copy() -> None:
                pace.slow_down(0.0)
                passed.set()
                server.let_go()

            # Sessions begin to sleep in their own time; the copy must meet all of them.
            eventually(lambda: sleeping(url, watcher) == len(sleepers), "all sleep")
            copying = BackgroundThread(copy, name="copy", on_crash=pytest.fail)
            copying.start()
            eventually(lambda: "sessions at work, 2 allowed" in pace.reason, "it says why it waits")
            assert not passed.is_set()
            end_sleepers(url, watcher)
            eventually(passed.is_set, "it goes on")
            copying.join(END_SECONDS_MAX)
    finally:
        end_sleepers(url, watcher)
        for sleeper in sleepers:
            sleeper.join(END_SECONDS_MAX)


def sleeping(url: str, watcher: Any) -> int:
    if url.startswith("mysql"):
        watcher.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(900)' AND db = DATABASE()"
        )
    else:
        watcher.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state = 'active' AND query = 'SELECT pg_sleep(900)' AND datname = current_database()"
        )
    return int(watcher.fetchone()[0])


@pytest.mark.usefixtures("watcher")
def test_a_limit_that_cannot_be_watched_is_refused(url: str, spec: MigrationSpec) -> None:
    spec = msgspec.structs.replace(spec, lag_seconds_max=1.0)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        if not url.startswith("mysql"):
            checked_plan(strategy._server, spec)
            return
        with pytest.raises(RefusedError, match="does not know the lag of its replicas: name them with --replica"):
            checked_plan(strategy._server, spec)
