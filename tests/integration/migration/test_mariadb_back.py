"""The way back at MariaDB: the table before is held in the new form, caught up, and put in its place again.

The feed is played, as in mariadb_change.py; the real one is in test_revert.py.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures.services import mariadb_connect
from headgate.config.start_offsets import StartOffsets
from headgate.migration.core.copy_steps import FeedSeen
from headgate.migration.strategies.contract import Memory, RefusedError
from headgate.migration.strategies.online.back import OnlineBack
from headgate.migration.strategies.online.lane import CopySink, Held
from headgate.migration.strategies.online.way_back import WayBack
from headgate.records.migration import Artifact, MigrationRecorded
from integration.migration.mariadb_change import WHOLE, Change, opened
from support.migration_records import recorded

pytestmark = pytest.mark.integration

CHANGE = "ALTER TABLE items CHANGE note title varchar(30), DROP COLUMN v, ADD COLUMN extra int NOT NULL DEFAULT 7"


class Feeds:
    """There are none; what is asked for is noted."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str, dict[int, int]]] = []
        self.offsets: dict[int, int] = {}

    def record(self, _feed: str) -> None:
        return None

    def seen(self, _record: None) -> FeedSeen:
        return FeedSeen.ABSENT

    def check_start(self, _topic: str, start: StartOffsets) -> None:
        self.offsets = start.offsets

    def create(self, feed: str, _topic: str, sink: CopySink, *, start: StartOffsets) -> None:
        self.begun.append((feed, sink.table, start.offsets))


@pytest.fixture
def items(mariadb_database: str) -> Iterator[Any]:
    with closing(mariadb_connect(mariadb_database)) as session, session.cursor() as client:
        client.execute(
            "CREATE TABLE items (id int AUTO_INCREMENT PRIMARY KEY, v int NOT NULL DEFAULT 3, note varchar(20))"
        )
        client.execute("INSERT INTO items SELECT seq, seq, CONCAT('note ', seq) FROM seq_1_to_50")
        yield client


def cut_over(change: Change) -> Memory:
    """It remembers where the new table's changes begin."""
    held = msgspec.json.encode(Held(change.held, change.lane.built(change.plan))).decode()
    change.memory = msgspec.structs.replace(change.memory, after=held)
    change.cut_over()
    memory = change.server.take_over(change.owner_rev)
    assert memory is not None
    return memory


@contextmanager
def done(
    url: str, folder: Path, *, is_kept: bool = False, statement: str = CHANGE, **more: Any
) -> Iterator[tuple[Change, MigrationRecorded, Feeds]]:
    """A change that has completed."""
    with opened(url, folder, statement, **more) as change:
        memory = cut_over(change.copied())
        feeds = Feeds()
        way = OnlineBack(change.server, change.lane, feeds).open(
            "m", change.plan, memory, connection="shop", is_kept=is_kept
        )
        table = f"{change.schema}.items"
        left = (Artifact("table", way.table),)
        note = msgspec.json.encode(way).decode()
        yield change, recorded('{"topic": "topic"}', table=table, artifacts=left, note=note), feeds


def back(change: Change, record: MigrationRecorded, feeds: Feeds) -> Change:
    """The revert, as far as the table before is its copy."""
    revert = Change(change.url, change.folder, change.statement, owner_rev=2, migration="r")
    assert revert.server.take_over(2) is None
    plan, held = OnlineBack(revert.server, revert.lane, feeds).plan("m", record, 2)
    revert.plan, revert.held = plan, held.position
    before, after = (msgspec.json.encode(part).decode() for part in (plan, held))
    revert.memory = revert.lane.take(plan, Memory(2, 1, "returning", before, after), 10.0)
    row = f"'f', '{change.schema}.{plan.plan.shadow}', 0, 7, FALSE, NULL"
    revert.run(f"REPLACE INTO headgate.progress VALUES ({row})")
    return revert


def columns(change: Change, table: str) -> list[str]:
    return [row[0] for row in change.run(f"SHOW COLUMNS FROM {table}")]


def test_there_and_back(mariadb_database: str, tmp_path: Path, items: Any) -> None:
    with done(mariadb_database, tmp_path) as (change, record, feeds):
        old = change.plan.plan.shadow + "_old"
        with closing(back(change, record, feeds)) as revert:
            assert feeds.offsets == {0: 102}, "behind the mark under the lock"
            assert columns(change, old) == ["id", "v", "title", "extra"], "as events of the new form need it"
            items.execute("INSERT INTO items (id, title) VALUES (100, 'new')")
            items.execute("UPDATE items SET title = 'changed' WHERE id = 1")
            items.execute("DELETE FROM items WHERE id = 2")
            # What the feed makes of it:
            items.execute(f"INSERT INTO {old} (id, title, extra) VALUES (100, 'new', 7)")
            items.execute(f"UPDATE {old} SET title = 'changed' WHERE id = 1")
            items.execute(f"DELETE FROM {old} WHERE id = 2")
            memory = cut_over(revert)
            assert revert.is_changed
            assert columns(change, "items") == ["id", "v", "note"]
            items.execute("SELECT * FROM items WHERE id IN (1, 2, 3, 100)")
            assert list(items.fetchall()) == [(1, 1, "changed"), (3, 3, "note 3"), (100, 3, "new")]
            assert {row[0] for row in change.run("SHOW TABLES")} == {"items", change.plan.plan.shadow}
            way = OnlineBack(revert.server, revert.lane, feeds)
            assert way.open("r", revert.plan, memory, connection="shop", is_kept=False).table.endswith(
                change.plan.plan.shadow
            )
            way.forget("m", 2)
            assert change.run("SELECT id FROM headgate.migration") == [("r",)]


def test_a_way_back_that_is_kept_is_opened_once(mariadb_database: str, tmp_path: Path, items: Any) -> None:
    with done(mariadb_database, tmp_path, is_kept=True) as (change, _record, feeds):
        old = change.plan.plan.shadow + "_old"
        assert [(table.split(".")[1], offsets) for _, table, offsets in feeds.begun] == [(old, {0: 102})]
        assert columns(change, old) == ["id", "v", "title", "extra"]


def test_a_difference_ends_it_and_the_table_is_untouched(mariadb_database: str, tmp_path: Path, items: Any) -> None:
    with done(mariadb_database, tmp_path) as (change, record, feeds):
        with closing(back(change, record, feeds)) as revert:
            items.execute("UPDATE items SET title = 'never seen' WHERE id = 1")
            with pytest.raises(RefusedError, match="differs"):
                revert.cut_over(hot=[("1",)])
        assert columns(change, "items") == ["id", "title", "extra"]


def test_columns_that_have_lost_are_compared_with_what_they_would_have_lost(
    mariadb_database: str, tmp_path: Path, items: Any
) -> None:
    narrowed = "ALTER TABLE items MODIFY note varchar(4)"
    with done(mariadb_database, tmp_path, statement=narrowed, allow_lossy=("note",)) as (change, record, feeds):
        old = change.plan.plan.shadow + "_old"
        with closing(back(change, record, feeds)) as revert:
            assert revert.plan.held.loose == ("note",)
            assert revert.lane.differing(revert.plan, WHOLE) == [], "the old table has more, which was lost"
            items.execute("UPDATE items SET note = 'new' WHERE id = 1")
            items.execute(f"UPDATE {old} SET note = 'nope' WHERE id = 1")
            assert revert.lane.differing(revert.plan, WHOLE) == [("1",)]
            assert revert.lane.still_differing(revert.plan, [("1",), ("2",)]) == [("1",)]
            with pytest.raises(RefusedError, match="differs in 1 rows"):
                revert.cut_over(hot=[("1",), ("2",)])
            items.execute(f"UPDATE {old} SET note = 'new' WHERE id = 1")
            revert.lane.hold_form(revert.plan)
            revert.cut_over(hot=[("1",), ("2",)])
            assert revert.is_changed
            items.execute("SELECT note FROM items WHERE id IN (1, 2) ORDER BY id")
            assert list(items.fetchall()) == [("new",), ("note 2",)]


def test_what_has_become_another_table_is_not_reverted(mariadb_database: str, tmp_path: Path, items: Any) -> None:
    with done(mariadb_database, tmp_path) as (change, record, feeds):
        way = OnlineBack(change.server, change.lane, feeds)
        assert isinstance(way.check("m", record), WayBack)
        items.execute("ALTER TABLE items ADD COLUMN more int, ALGORITHM=INSTANT")
        with pytest.raises(RefusedError, match="altered since"):
            way.check("m", record)
        items.execute("ALTER TABLE items DROP COLUMN more, ALGORITHM=INSTANT")
        way.check("m", record)
        items.execute("TRUNCATE items")
        with pytest.raises(RefusedError, match="truncated"):
            way.check("m", record)
        items.execute(f"DROP TABLE {change.plan.plan.shadow}_old")
        with pytest.raises(RefusedError, match="is gone"):
            way.check("m", record)
