"""Columns that may lose values are compared as well: with what the server itself makes of the old value."""

from contextlib import closing
from pathlib import Path

import pytest

from fixtures.services import database_connect
from headgate.migration.core import effects as fx
from headgate.migration.strategies.contract import RefusedError
from integration.migration.played import WHOLE, Played, played, upsert

pytestmark = pytest.mark.integration

NARROW = {
    "postgresql": "ALTER COLUMN d TYPE numeric(6,1), ALTER COLUMN note TYPE varchar(3)",
    "mysql": "MODIFY d decimal(6,1), MODIFY note varchar(3)",
}


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    session = database_connect(found)
    client = session.cursor()
    client.execute("CREATE TABLE items (id int PRIMARY KEY, i int, d decimal(6,2), note varchar(20))")
    client.execute("INSERT INTO items VALUES (1, 0, 1.25, 'abcdef'), (2, 1, 2.5, 'ab'), (3, NULL, NULL, NULL)")
    if not found.startswith("mysql"):
        client.execute("CREATE PUBLICATION captured FOR TABLE items")
    session.close()
    return found


def test_a_value_is_what_the_server_makes_of_it(url: str, tmp_path: Path) -> None:
    change = NARROW[url.partition(":")[0]]
    with played(url, tmp_path, change, allow_lossy=("d", "note")) as narrowed:
        assert narrowed.lane.differing(narrowed.plan, WHOLE) == []
        narrowed.run(f"UPDATE {narrowed.plan.held.shadow} SET d = 1.2 WHERE id = 1")
        (key,) = narrowed.lane.differing(narrowed.plan, WHOLE)
        touched = narrowed.followed([key])
        with pytest.raises(RefusedError, match="differs in 1 rows while nothing changes"):
            narrowed.cut_over(touched)
        narrowed.run(f"UPDATE {narrowed.plan.held.shadow} SET d = 1.3 WHERE id = 1")
        narrowed.cut_over(touched)
        rows = narrowed.run("SELECT d, note FROM items ORDER BY id")
    assert [(str(d), note) for d, note in rows] == [("1.3", "abc"), ("2.5", "ab"), ("None", None)]


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_two_ways_to_a_row_that_convert_differently_are_refused_at_submission(url: str, tmp_path: Path) -> None:
    """Into a type of words a number goes by its place, and the text of an event as the word."""
    with closing(Played(url, tmp_path, "MODIFY i enum('0','1')", allow_lossy=("i",))) as change:
        told = change.strategy.examine(change.spec, None)
        assert isinstance(told, fx.ExamineRefused)
        assert "i: int(11) becomes enum('0','1'). A row that is copied and a row that the feed brings" in told.reason
        assert "Use strategy direct" in told.reason


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_two_ways_to_a_row_that_convert_differently_are_seen_before_the_cut_over(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no list of types knows: the comparison finds it."""
    monkeypatch.setattr("headgate.migration.strategies.planning.converts_alike", lambda *_, **__: True)
    with played(url, tmp_path, "MODIFY i enum('0','1')", allow_lossy=("i",)) as change:
        touched = change.followed()
        change.run("UPDATE items SET d = 7 WHERE id = 2")
        change.send(upsert({"id": 2}, i=1, d="7.00", note="ab"))
        with pytest.raises(RefusedError, match="differs in 1 rows while nothing changes"):
            change.cut_over(touched)
        assert not change.is_changed


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_timestamp_becomes_a_datetime_by_one_time_zone(url: str, tmp_path: Path) -> None:
    """Rows that were there and rows that the feed brings are in UTC, whatever the time zones of clients."""
    zone = "SET time_zone = '+05:30'"
    with closing(Played(url, tmp_path, "MODIFY at datetime NULL", allow_lossy=("at",))) as change:
        change.run("ALTER TABLE items ADD at timestamp NULL", zone, "UPDATE items SET at = '2024-01-01 10:00:00'")
        change.make().copied()
        touched = change.followed()
        change.run(zone, "INSERT INTO items (id, at) VALUES (4, '2024-01-01 10:00:00')")
        change.send(upsert({"id": 4}, i=None, d=None, note=None, at="2024-01-01T04:30:00Z"))
        change.cut_over(touched)
        assert {str(at) for (at,) in change.run("SELECT at FROM items")} == {"2024-01-01 04:30:00"}


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_time_that_came_by_another_time_zone_is_seen(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, "MODIFY at datetime NULL", allow_lossy=("at",))) as change:
        change.run("ALTER TABLE items ADD at timestamp NULL", "UPDATE items SET at = '2024-01-01 10:00:00'")
        change.make().copied()
        touched = change.followed()
        change.run("SET time_zone = '+05:30'", "UPDATE items SET at = '2024-01-01 10:00:00' WHERE id = 3")
        change.send(upsert({"id": 3}, i=None, d=None, note=None, at="2024-01-01T10:00:00Z"))
        with pytest.raises(RefusedError, match="differs in 1 rows while nothing changes"):
            change.cut_over(touched)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", ["text", "varchar", "varchar(63)"])
def test_a_word_becomes_a_text_without_an_option(url: str, tmp_path: Path, kind: str) -> None:
    with closing(Played(url, tmp_path, f"ALTER mood TYPE {kind}")) as change:
        change.run("CREATE TYPE mood AS ENUM ('sad', 'it''s ok')", "ALTER TABLE items ADD mood mood")
        change.run("UPDATE items SET mood = 'it''s ok' WHERE id = 1", "UPDATE items SET mood = 'sad' WHERE id = 2")
        change.make().copied()
        touched = change.followed()
        change.run("UPDATE items SET mood = 'sad' WHERE id = 3")
        change.send(upsert({"id": 3}, i=None, d=None, note=None, mood="sad"))
        change.cut_over(touched)
        assert change.run("SELECT mood FROM items ORDER BY id") == [("it's ok",), ("sad",), ("sad",)]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_word_that_may_not_fit_needs_the_option(url: str, tmp_path: Path) -> None:
    with closing(Played(url, tmp_path, "ALTER mood TYPE varchar(9)")) as change:
        change.run("CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE items ADD mood mood")
        with pytest.raises(RefusedError, match="--allow-lossy mood"):
            change.make()
