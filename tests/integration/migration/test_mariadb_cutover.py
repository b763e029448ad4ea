"""The cut-over of strategy online at MariaDB: nothing that a client writes is lost, whoever dies, whoever is slow."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fixtures.services import mariadb_connect
from headgate.migration.strategies.contract import (
    DatabaseUnavailableError,
    LockUnavailableError,
    RefusedError,
    SupersededError,
)
from headgate.migration.strategies.mariadb import swap as mariadb_swap
from headgate.migration.strategies.mariadb.swap import TableSwap
from headgate.migration.strategies.online.lane import FeedBehindError
from headgate.migration.strategies.planning import shadow_name
from integration.migration.mariadb_change import WHOLE, Change, Tail, cut_over_until_the_rename, opened
from support.waiting import DEADLINE_SECONDS, END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

ADD = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7"
RENAME = "ALTER TABLE items CHANGE note title varchar(30), DROP COLUMN v"

UNDER_LOCK = 2
"""The first mark is looked for before the lock, the second under it."""


@pytest.fixture
def url(mariadb_database: str) -> str:
    return mariadb_database


@pytest.fixture
def items(url: str) -> Iterator[Any]:
    with closing(mariadb_connect(url)) as session, session.cursor() as client:
        client.execute("CREATE TABLE items (id int AUTO_INCREMENT PRIMARY KEY, v int NOT NULL, note varchar(20))")
        client.execute("INSERT INTO items SELECT seq, seq, CONCAT('note ', seq) FROM seq_1_to_200")
        yield client


class Writer(threading.Thread):
    """A client whose statement waits; ``error`` if it failed."""

    def __init__(self, url: str, statement: str) -> None:
        super().__init__()
        self.error: Exception | None = None
        self._url, self._statement = url, statement

    def run(self) -> None:
        try:
            with closing(mariadb_connect(self._url)) as session:
                session.cursor().execute(self._statement)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
            self.error = error

    def waits(self, change: Change) -> bool:
        found = change.run(
            "SELECT info FROM information_schema.processlist "
            "WHERE state LIKE '%table metadata lock' AND db = DATABASE()"
        )
        return (self._statement,) in found


def under_lock(do: Any) -> Any:
    """``wait`` of a Tail: ``do`` once the table is locked."""
    return lambda number: do() if number == UNDER_LOCK else None


def columns(change: Change) -> list[str]:
    return [row[0] for row in change.run("SHOW COLUMNS FROM items")]


def tables(change: Change) -> set[str]:
    return {row[0] for row in change.run("SHOW TABLES")}


def test_clients_wait_and_write_to_the_new_table(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, RENAME) as change:
        change.copied()
        writer = Writer(url, "INSERT INTO items (id) VALUES (1000)")

        def write() -> None:
            writer.start()
            eventually(lambda: writer.waits(change), "it waits for the table")

        assert not change.is_changed
        change.cut_over(Tail(change, under_lock(write)))
        writer.join(END_SECONDS_MAX)
        assert writer.error is None
        assert change.is_changed
        assert columns(change) == ["id", "title"]
        assert change.run("SELECT id, title FROM items WHERE id IN (1, 1000)") == [(1, "note 1"), (1000, None)]
        old = f"{change.plan.plan.shadow}_old"
        assert tables(change) == {"items", old}
        assert change.run(f"SELECT COUNT(*) FROM {old}") == [(200,)]


def before_the_rename(monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    """All is in the copy then, and nothing but the rename is left to do."""
    rename = TableSwap.rename

    def do_and_rename(swap: TableSwap, *given: Any) -> None:
        do()
        rename(swap, *given)

    monkeypatch.setattr(TableSwap, "rename", do_and_rename)


def cut_over_beside_a_reader_of_the_copy(
    change: Change, monkeypatch: pytest.MonkeyPatch, *, writes_first: bool
) -> None:
    """Somebody reads the copy, so that the rename waits for that; a client writes meanwhile.

    ``writes_first``: it is expected to write before the rename, so the reader goes on until it has. One that must not
    is given a second in which to do so.
    """
    writer = Writer(change.url, "INSERT INTO items (id, v) VALUES (1000, 0)")
    old = f"{change.plan.plan.shadow}_old"
    with closing(mariadb_connect(change.url)) as session, session.cursor() as reader:

        def begin() -> None:
            reader.execute("BEGIN")
            reader.execute(f"SELECT COUNT(*) FROM {change.plan.plan.shadow}")
            writer.start()
            eventually(lambda: writer.waits(change), "it waits for the table")
            ending.start()

        def end() -> None:
            eventually(lambda: old not in tables(change), "the sentry is gone, the lock is about to go")
            writer.join(DEADLINE_SECONDS if writes_first else 1)
            reader.execute("ROLLBACK")

        ending = threading.Thread(target=end)
        before_the_rename(monkeypatch, begin)
        change.cut_over()
        ending.join(END_SECONDS_MAX)
    writer.join(END_SECONDS_MAX)
    assert writer.error is None


@pytest.mark.parametrize(
    ("changed", "row"),
    [
        ("CHANGE NOTE Title varchar(30)", {"id": 7, "v": 7, "Title": "note 7"}),
        ("MODIFY Note varchar(30) FIRST, RENAME COLUMN V TO value", {"Note": "note 7", "id": 7, "value": 7}),
        ("DROP COLUMN v, ADD COLUMN V int DEFAULT 47 AFTER ID", {"id": 7, "V": 47, "note": "note 7"}),
    ],
)
def test_columns_keep_their_values_however_they_are_written(
    url: str, tmp_path: Path, items: Any, changed: str, row: dict[str, Any]
) -> None:
    with opened(url, tmp_path, f"ALTER TABLE items {changed}") as change:
        change.copied().cut_over()
        assert change.is_changed
    items.execute("SELECT * FROM items WHERE id = 7")
    assert dict(zip((column[0] for column in items.description), items.fetchone(), strict=True)) == row


def test_a_rename_that_waits_for_the_copy_lets_no_client_write_to_the_table_before(
    url: str, tmp_path: Path, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url, tmp_path, ADD) as change:
        change.copied()
        cut_over_beside_a_reader_of_the_copy(change, monkeypatch, writes_first=False)
        assert change.run("SELECT id, extra FROM items WHERE id = 1000") == [(1000, 7)]


def test_with_names_that_come_before_the_tables_the_same_loses_the_row(
    url: str, tmp_path: Path, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is the names that do it: gh-ost's begin with an underscore."""
    with closing(Change(url, tmp_path, ADD)) as change:
        change.server.shadow_prefix = "_"
        change.make().copied()
        assert change.plan.plan.shadow == shadow_name("items", "m", 64, "_")
        cut_over_beside_a_reader_of_the_copy(change, monkeypatch, writes_first=True)
        assert change.is_changed
        assert change.run("SELECT id FROM items WHERE id = 1000") == []


@pytest.mark.long
def test_a_rename_that_does_not_come_into_force_leaves_everything_as_it_was(
    url: str, tmp_path: Path, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url, tmp_path, RENAME) as change:
        change.copied()
        before = columns(change)
        with closing(mariadb_connect(url)) as session, session.cursor() as reader:

            def read() -> None:
                reader.execute("BEGIN")
                reader.execute(f"SELECT COUNT(*) FROM {change.plan.plan.shadow}")

            with monkeypatch.context() as patched:
                before_the_rename(patched, read)
                with pytest.raises((LockUnavailableError, DatabaseUnavailableError)):
                    change.cut_over(seconds=5)
            assert not change.is_changed
            assert columns(change) == before
            reader.execute("ROLLBACK")
        assert tables(change) == {"items", change.plan.plan.shadow}, "no sentry is left"
        items.execute("UPDATE items SET v = v")
        change.cut_over()
        assert columns(change) == ["id", "title"]


def test_the_table_counts_on_after_rows_that_came_and_went(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, ADD) as change:
        change.copied()
        items.execute("INSERT INTO items (id, v) VALUES (500, 1)")
        items.execute("DELETE FROM items WHERE id = 500")
        change.cut_over()
        items.execute("INSERT INTO items (v) VALUES (1)")
        assert change.run("SELECT MAX(id) FROM items") == [(501,)]


def test_an_empty_table_changes_places_once_its_copy_is_empty(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, ADD) as change:
        change.copied()
        items.execute("DELETE FROM items")
        with pytest.raises(LockUnavailableError, match="has not caught up"):
            change.cut_over(seconds=5)
        items.execute(f"DELETE FROM {change.plan.plan.shadow}")
        change.cut_over()
        assert change.is_changed


# --- what stops it ---


def test_a_feed_that_is_behind_is_seen_before_the_table_is_locked(url: str, tmp_path: Path, items: Any) -> None:
    class Slow(Tail):
        def find(self, changes: Any, seconds: float) -> Any:
            super().find(changes, seconds)
            return [() for _ in changes]

    with opened(url, tmp_path, ADD) as change:
        change.copied()
        tail = Slow(change)
        with pytest.raises(FeedBehindError, match="to the topic: the table was not locked"):
            change.cut_over(tail)
        assert len(tail.found) == 1


@pytest.mark.parametrize(
    ("meddling", "why"),
    [
        ("TRUNCATE TABLE items", "truncated or built again"),
        ("ALTER TABLE items ADD COLUMN other int, ALGORITHM=INSTANT", "definition has changed"),
        ("UPDATE items SET v = -1 WHERE id = 5", "differs in 1 rows while nothing changes"),
    ],
)
def test_a_table_that_is_not_what_was_copied_is_left_alone(
    url: str, tmp_path: Path, items: Any, meddling: str, why: str
) -> None:
    with opened(url, tmp_path, ADD) as change:
        change.copied()
        built = change.lane.built(change.plan)
        items.execute(meddling)
        hot = change.lane.differing(change.plan, WHOLE)[:5] if meddling.startswith("UPDATE") else []
        with pytest.raises(RefusedError, match=why):
            change.cut_over(hot=hot, built=built)
        assert not change.is_changed
        items.execute("INSERT INTO items (id, v) VALUES (1000, 0)")


# --- who is lost ---


def killed(change: Change, part: str) -> None:
    """End the session of that part, as a lost connection would."""
    number = change.server.sessions.holder(part)
    assert number is not None
    change.run(f"KILL {number}")
    eventually(lambda: change.server.sessions.holder(part) is None, "the session is gone")


def test_the_session_that_holds_the_table_is_lost(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, RENAME) as change:
        change.copied()
        with pytest.raises(DatabaseUnavailableError):
            change.cut_over(Tail(change, under_lock(lambda: killed(change, "lock"))))
        assert not change.is_changed
        items.execute("UPDATE items SET v = v")
        change.cut_over()
        assert change.is_changed


def test_the_session_that_renames_is_lost_while_it_waits(
    url: str, tmp_path: Path, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited = TableSwap._await_waiting
    lost: list[str] = []

    def await_and_lose(swap: TableSwap, rename: Any) -> None:
        awaited(swap, rename)
        for part in lost:
            killed(change, part)

    monkeypatch.setattr(TableSwap, "_await_waiting", await_and_lose)
    with opened(url, tmp_path, RENAME) as change:
        change.copied()
        for part in ("rename", "lock"):
            lost[:] = [part]
            with pytest.raises(DatabaseUnavailableError):
                change.cut_over()
            assert not change.is_changed
            assert change.run("SELECT COUNT(*) FROM items WHERE v = id AND note IS NOT NULL") == [(200,)]
        lost.clear()
        change.cut_over()
        assert change.is_changed


def test_an_answer_that_is_lost_is_looked_up(
    url: str, tmp_path: Path, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = mariadb_swap._Rename.finish

    def finish_and_lose(rename: Any, seconds: float) -> None:
        finished(rename, seconds)
        raise DatabaseUnavailableError("the answer is lost")

    monkeypatch.setattr(mariadb_swap._Rename, "finish", finish_and_lose)
    with opened(url, tmp_path, RENAME) as change:
        change.copied()
        with pytest.raises(DatabaseUnavailableError, match="the answer is lost"):
            change.cut_over()
        assert change.is_changed
        assert columns(change) == ["id", "title"]


def test_another_owner_goes_on_after_one_that_was_killed_under_the_lock(url: str, tmp_path: Path, items: Any) -> None:
    spawning = multiprocessing.get_context("spawn")
    ready = spawning.Event()
    owner = spawning.Process(target=cut_over_until_the_rename, args=(url, str(tmp_path), RENAME, ready))
    owner.start()
    assert ready.wait(DEADLINE_SECONDS), "it is about to rename"
    owner.kill()
    owner.join(END_SECONDS_MAX)
    with closing(Change(url, tmp_path, RENAME, owner_rev=2).adopted()) as change:
        assert columns(change) == ["id", "v", "note"]
        assert {row[0] for row in change.run(f"SHOW COLUMNS FROM {change.plan.plan.shadow}")} == {"id", "v", "note"}
        items.execute("UPDATE items SET v = v")
        change.cut_over()
        assert change.is_changed
        assert columns(change) == ["id", "title"]
        assert change.run("SELECT COUNT(*) FROM items WHERE title = CONCAT('note ', id)") == [(200,)]


def test_an_owner_that_was_frozen_under_the_lock_renames_nothing(url: str, tmp_path: Path, items: Any) -> None:
    with opened(url, tmp_path, RENAME) as first:
        first.copied()
        others: list[Change] = []
        adopted = under_lock(lambda: others.append(Change(url, tmp_path, RENAME, owner_rev=2).adopted()))
        with pytest.raises((DatabaseUnavailableError, SupersededError)):
            first.cut_over(Tail(first, adopted))
        (second,) = others
        with closing(second):
            assert not second.is_changed
            second.cut_over()
            assert second.is_changed
        with pytest.raises(SupersededError):
            first.server.take_over(1)
