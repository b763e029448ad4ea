"""Online changes of the key by which change events name rows: extended, reduced, replaced, added."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures.services import database_connect
from headgate.migration.core import effects as fx
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import LockUnavailableError, RefusedError
from headgate.migration.strategies.online.marked import which_rows
from headgate.migration.strategies.online.strategy import OnlineStrategy
from integration.migration.played import Played, delete, played, upsert

pytestmark = pytest.mark.integration

EXTENDED = {"mysql": "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"}
REPLACED = {"mysql": "DROP PRIMARY KEY, ADD PRIMARY KEY (v), ADD COLUMN extra int NOT NULL DEFAULT 7"}
DROPPED = {"mysql": "DROP PRIMARY KEY, DROP COLUMN id, ADD PRIMARY KEY (v)"}
RENAMED = {"mysql": "DROP PRIMARY KEY, CHANGE v number int NOT NULL, ADD PRIMARY KEY (number)"}
for change in (EXTENDED, REPLACED, DROPPED):
    change["postgresql"] = change["mysql"].replace("PRIMARY KEY,", "CONSTRAINT items_pkey,", 1)


@contextmanager
def table(request: pytest.FixtureRequest, database: str, *statements: str) -> Iterator[str]:
    found: str = request.getfixturevalue("postgres_database" if database == "postgresql" else "mariadb_database")
    session = database_connect(found)
    client = session.cursor()
    for statement in statements:
        client.execute(statement)
    if database == "postgresql":
        client.execute("CREATE PUBLICATION captured FOR ALL TABLES")  # as Debezium makes it
    session.close()
    yield found


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with table(
        request,
        request.param,
        "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20))",
        "INSERT INTO items VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
    ) as found:
        yield found


def change_at(url: str, changes: dict[str, str]) -> str:
    return changes[url.partition(":")[0]]


def primary_of(change: Played) -> tuple[str, ...]:
    found = change.server.look(Statement("alter", None, "items", "", ""))
    assert found is not None
    return tuple(found.primary)


def write(change: Played) -> None:
    """A value goes from row 1 to row 2, which is allowed, and row 3 goes; each event names its row by ``id``."""
    change.run("UPDATE items SET v = 11 WHERE id = 1", "UPDATE items SET v = 10 WHERE id = 2")
    change.run("DELETE FROM items WHERE id = 3", "INSERT INTO items VALUES (4, 30, 'd')")
    change.send(
        upsert({"id": 1}, v=11, note="a"),
        upsert({"id": 2}, v=10, note="b"),
        delete({"id": 3}),
        upsert({"id": 4}, v=30, note="d"),
    )


@pytest.mark.parametrize("kind", ["extended", "replaced", "dropped"])
def test_rows_are_found_by_the_old_key_until_the_copy_takes_its_place(url: str, tmp_path: Path, kind: str) -> None:
    changes = {"extended": EXTENDED, "replaced": REPLACED, "dropped": DROPPED}[kind]
    if kind == "dropped" and url.startswith("mysql"):
        why = r"id, by which change events name rows, is dropped.*two migrations"
        with closing(Played(url, tmp_path, change_at(url, changes))) as refused, pytest.raises(RefusedError, match=why):
            refused.make()
        return
    with played(url, tmp_path, change_at(url, changes)) as change:
        touched = change.followed()
        write(change)
        change.cut_over(touched)
        assert change.is_changed
        change.lane.settle(change.plan)
        assert primary_of(change) == {"extended": ("id", "v"), "replaced": ("v",), "dropped": ("v",)}[kind]
        assert [row[0] for row in change.run("SELECT note FROM items ORDER BY v")] == ["b", "a", "d"]
        assert not change.run(
            "SELECT 1 FROM information_schema.statistics WHERE index_name LIKE 'headgate%'"
            if change.is_mariadb
            else "SELECT 1 FROM pg_class WHERE relname LIKE 'headgate_key%'"
        )


class Topic:
    """A topic of so many partitions, for an examination; see shell/feeds.py."""

    def __init__(self, partitions: int) -> None:
        self._ends = dict.fromkeys(range(partitions), 0)

    def check_topic(self, *_: object) -> None:
        pass

    def check_known(self, _feeds: object) -> None:
        pass

    def ends(self, _topic: str) -> dict[int, int]:
        return self._ends


EXTENDED_AND_UNIQUE = "ADD CONSTRAINT u UNIQUE (v, id)"
UNIQUE = "ADD CONSTRAINT u UNIQUE (v)"


@pytest.mark.parametrize(
    ("change", "partitions", "why"),
    [
        (UNIQUE, 2, "a value that goes from row to row could not be followed. Use strategy direct, or pt-osc"),
        (REPLACED, 2, "a value that goes from row to row could not be followed. Use strategy direct, or pt-osc"),
        (UNIQUE, 1, ""),
        (EXTENDED_AND_UNIQUE, 2, ""),
        (EXTENDED, 2, ""),
        (DROPPED, 1, "Use two migrations: the new key first, then DROP COLUMN"),
    ],
    ids=["unique", "replaced", "one-partition", "with-the-old-key", "extended", "dropped"],
)
def test_what_could_lose_a_value_is_refused_at_the_submission(
    url: str, tmp_path: Path, change: str | dict[str, str], partitions: int, why: str
) -> None:
    """Of rows in several partitions no unique key can be kept that another row breaks. Only MariaDB refuses a drop."""
    statement = change if isinstance(change, str) else change_at(url, change)
    if change is DROPPED and not url.startswith("mysql"):
        why = ""
    with closing(Played(url, tmp_path, statement)) as found:
        feeds: Any = Topic(partitions)
        strategy = OnlineStrategy(found.server, found.lane, feeds, None, "m")
        told = strategy.examine(found.spec, None)
        if not why:
            assert isinstance(told, fx.Examined), told
            return
        assert isinstance(told, fx.ExamineRefused)
        assert why in told.reason
        assert not found.run("SELECT 1 FROM information_schema.tables WHERE table_name LIKE '%items_%'")


def test_a_change_that_cannot_be_reverted_is_made_only_if_its_author_has_agreed(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, change_at(url, EXTENDED))) as found:
        feeds: Any = Topic(1)
        strategy = OnlineStrategy(found.server, found.lane, feeds, None, "m")
        told = strategy.examine(msgspec.structs.replace(found.spec, must_be_revertible=True), None)
        assert isinstance(told, fx.ExamineRefused), told
        assert "cannot be reverted" in told.reason
        assert told.reason.endswith("If it may be final, confirm it with --yes")
        agreed = strategy.examine(found.spec, None)
        assert isinstance(agreed, fx.Examined), agreed
        assert "cannot be reverted" in agreed.message


def test_a_value_of_the_new_key_is_in_two_rows_of_the_copy_on_the_way(url: str, tmp_path: Path) -> None:
    """Rows are copied later than the feed's position: what the feed then brings was true before."""
    with closing(Played(url, tmp_path, change_at(url, REPLACED)).make()) as change:
        change.run("UPDATE items SET v = 11 WHERE id = 1", "UPDATE items SET v = 10 WHERE id = 2")
        change.copied(keyed=False)
        change.run("UPDATE items SET v = 12 WHERE id = 2", "UPDATE items SET v = 10 WHERE id = 1")
        change.send(upsert({"id": 1}, v=11, note="a"), upsert({"id": 2}, v=10, note="b"))
        change.send(upsert({"id": 1}, v=10, note="a"))
        change.send(upsert({"id": 2}, v=12, note="b"))
        change.keyed()
        change.cut_over()
        change.lane.settle(change.plan)
        assert change.run("SELECT id, v FROM items ORDER BY v") == [(1, 10), (2, 12), (3, 30)]


def test_rows_that_become_equal_are_named_at_the_submission(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, change_at(url, REPLACED))) as change:
        change.run("UPDATE items SET v = 10")
        with pytest.raises(RefusedError, match=r"items has rows that are equal in \(v\)"):
            change.make()


def test_rows_that_become_equal_later_end_the_change(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, change_at(url, REPLACED)).make()) as change:
        change.run("UPDATE items SET v = 10")
        change.copied(keyed=False)
        with pytest.raises(RefusedError, match=r"(?i)duplicate|could not create unique index") as told:
            change.keyed()
        assert "rows that are equal in (v), written since" in str(
            which_rows(change.server, change.plan.plan, told.value)
        )
        assert not change.is_changed
        assert primary_of(change) == ("id",)


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_a_table_with_a_unique_key_only_gets_a_primary_one(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    with table(
        request,
        database,
        "CREATE TABLE items (id int NOT NULL, v int NOT NULL, note varchar(20), CONSTRAINT u UNIQUE (id))",
        "INSERT INTO items VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
    ) as url:
        if database == "postgresql":
            with closing(Played(url, tmp_path, "ADD PRIMARY KEY (v)")) as unidentified:
                with pytest.raises(RefusedError, match="REPLICA IDENTITY USING INDEX u, or FULL"):
                    unidentified.make()
                unidentified.run("ALTER TABLE items REPLICA IDENTITY USING INDEX u")
        with played(url, tmp_path, "ADD PRIMARY KEY (v)") as change:
            write(change)
            change.cut_over()
            change.lane.settle(change.plan)
            assert primary_of(change) == ("v",)
            assert change.run("SELECT id, v FROM items ORDER BY v") == [(2, 10), (1, 11), (4, 30)]


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_counting_column_keeps_a_key_while_it_is_not_the_primary_one(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, "FORCE")) as before:
        before.run("ALTER TABLE items MODIFY id int AUTO_INCREMENT")
    with played(url, tmp_path, "DROP PRIMARY KEY, ADD PRIMARY KEY (v), ADD INDEX (id)") as change:
        write(change)
        change.cut_over()
        change.lane.settle(change.plan)
        change.run("INSERT INTO items (v) VALUES (70)")
        assert change.run("SELECT id FROM items WHERE v = 70") == [(5,)]


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_renamed_column_becomes_the_key(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, change_at(url, RENAMED)) as change:
        write(change)
        change.cut_over()
        change.lane.settle(change.plan)
        assert primary_of(change) == ("number",)
        assert change.run("SELECT id, number FROM items ORDER BY number") == [(2, 10), (1, 11), (4, 30)]


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_the_index_of_ours_goes_once_nobody_holds_the_table(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, change_at(url, EXTENDED)) as change:
        change.cut_over()
        reader = database_connect(url)
        try:
            reader.autocommit(False)
            reader.cursor().execute("SELECT COUNT(*) FROM items")
            with pytest.raises(LockUnavailableError):
                change.lane.settle(change.plan)
        finally:
            reader.close()
        change.lane.settle(change.plan)
        change.lane.settle(change.plan)
        assert not change.run("SHOW INDEX FROM items WHERE Key_name LIKE 'headgate%'")
