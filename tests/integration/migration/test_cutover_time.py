"""How long clients wait for a cut-over: from the moment at which its lock is requested, behind which they queue."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.services import database_connect
from headgate.migration.strategies.contract import LockUnavailableError
from headgate.migration.strategies.online.lane import LastChange, TopicPosition
from integration.migration.played import played
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

ADD = "ADD COLUMN extra int NOT NULL DEFAULT 7"
SECONDS = 10.0
WAITED_SECONDS = 1.0
"""How long somebody holds the table before the cut-over gets its lock."""

_WAITS = {
    "postgresql": (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE "
        f"'LOCK TABLE%' AND clock_timestamp() - query_start > interval '{WAITED_SECONDS} s'"
    ),
    "mariadb": (
        "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'LOCK TABLES%' AND "
        f"time_ms > {WAITED_SECONDS * 1000}"
    ),
}
"""Whether the lock has been waited for so long, by the server's own clock."""


@pytest.fixture(params=["postgresql", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{kind.replace('postgresql', 'postgres')}_database")
    with closing(database_connect(found)) as session, closing(session.cursor()) as client:
        client.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)")
        client.execute("INSERT INTO items VALUES (1, 1), (2, 2), (3, 3)")
        if kind == "postgresql":
            client.execute("CREATE PUBLICATION captured FOR TABLE items")
    return found


@contextmanager
def reader_of(url: str) -> Iterator[Any]:
    """Somebody who holds the table."""
    with closing(database_connect(url)) as session, closing(session.cursor()) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items")
        yield reader


def test_what_the_lock_takes_is_missing_under_it(
    url: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with played(url, tmp_path, ADD) as change, reader_of(url) as reader:
        left: list[float] = []
        find = change.find

        def recorded(changes: Sequence[LastChange], seconds: float) -> list[tuple[TopicPosition, ...]]:
            left.append(seconds)
            return find(changes, seconds)

        def end() -> None:
            eventually(lambda: change.run(_WAITS[kind]), "the lock is waited for")
            reader.execute("ROLLBACK")

        monkeypatch.setattr(change, "find", recorded)
        ending = threading.Thread(target=end)
        ending.start()
        try:
            change.cut_over(seconds=SECONDS)
        finally:
            ending.join(END_SECONDS_MAX)
        assert change.is_changed
        assert left[-1] <= SECONDS - WAITED_SECONDS


def test_a_lock_that_takes_most_of_the_time_is_given_up(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, ADD) as change:
        with reader_of(url), pytest.raises(LockUnavailableError):
            change.cut_over(seconds=2.0)
        assert not change.is_changed
        change.run("UPDATE items SET v = v")
        change.cut_over()
        assert change.is_changed
