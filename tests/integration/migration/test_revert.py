"""A change is reverted while clients write: with its way back kept, or begun by the revert; owners killed meanwhile."""

import json
import signal
from decimal import Decimal
from typing import Any

import pytest

from fixtures.capture import Sources
from headgate.cli.migration_way_back import WayBackState
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import headgate
from integration.migration.shop import (
    Client,
    Serve,
    Shop,
    done,
    go_on,
    settled,
    state_of,
)
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration

ENDED_SECONDS = 400


def ended(migration: str) -> dict[str, Any]:
    eventually(lambda: state_of(migration)["ended_ms"], f"{migration} has ended", ENDED_SECONDS)
    return state_of(migration)


def changed(shop: Shop, migration: str, change: str, *options: str) -> None:
    asked = shop.submit(migration, change, *options)
    assert asked.exit_code == 0, asked.output
    shown = ended(migration)
    assert shown["state"] == "complete", shown


def revert(migration: str, new: str, *options: str) -> Any:
    return headgate("migration", "revert", migration, "--id", new, "--timeout", "120", *options)


def reverted(migration: str, new: str) -> None:
    asked = revert(migration, new)
    assert asked.exit_code == 0, asked.output
    shown = ended(new)
    assert shown["state"] == "complete", shown


def feeds() -> list[str]:
    return [feed["feed"] for feed in json.loads(headgate("feed", "list", "-o", "json").stdout)]


def way_back(migration: str) -> dict[str, Any]:
    found: dict[str, Any] = state_of(migration)["way_back"]
    return found


def mend(sources: Sources, shop: Shop, statement: str, key: int) -> None:
    """Change the row that did not fit, and resume the way back once its topic has that change.

    A feed that is resumed earlier may read the value that does not fit without the one behind it, and stop again.
    """
    sources.change_until_captured(shop.topic, {"id": key}, lambda: shop.run(statement))
    feed = way_back("m1")["feed"]
    asked = headgate("feed", "resume", feed, "--timeout", "120")
    assert asked.exit_code == 0, asked.output


@pytest.mark.long
def test_a_change_whose_way_back_is_kept_is_reverted_and_that_reverted_again(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    changed(shop, "m1", shop.CHANGE, "--keep-revertible")
    after = shop.columns()
    assert after != before
    assert way_back("m1")["state"] == WayBackState.KEPT
    assert feeds() == [way_back("m1")["feed"]]
    go_on(clients)

    reverted("m1", "r1")
    assert shop.columns() == before
    go_on(clients)
    assert (state_of("m1")["artifacts"], way_back("m1")["state"]) == ([], WayBackState.GONE)
    assert way_back("r1")["state"] == WayBackState.BEGINS_WITH_REVERT
    assert feeds() == []
    again = revert("m1", "r2")
    assert "r1 has changed the same table since" in again.output, again.output

    reverted("r1", "r3")
    assert shop.columns() == after
    expected = settled(clients)
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    assert feeds() == []
    done("cleanup", "r3")
    assert shop.tables() == ["items"]


@pytest.mark.long
def test_a_way_back_that_is_begun_by_a_revert_outlives_it_and_the_owner_and_stops_at_what_does_not_fit(
    cluster: KafkaLog, sources: Sources, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    first = serve("first", "migration")
    before = shop.columns()
    changed(shop, "m1", shop.BROADER)
    assert (way_back("m1")["state"], feeds()) == (WayBackState.BEGINS_WITH_REVERT, [])

    wide, key = 5_000_000_000, 10_000_000
    shop.run(f"INSERT INTO items (id, v) VALUES ({key}, {wide})")
    asked = revert("m1", "r1")
    assert asked.exit_code == 0, asked.output
    shown = ended("r1")
    assert shown["state"] == "failed", shown
    assert "column v" in shown["message"], shown
    assert f"{wide}" not in shown["message"], "values of rows are not quoted"
    assert "the feed into the copy has failed" in shown["message"], shown
    assert shop.columns()["v"] == shop.BROAD, "the table is untouched"
    assert way_back("m1")["state"] == WayBackState.DOES_NOT_ADVANCE
    go_on(clients)

    mend(sources, shop, f"DELETE FROM items WHERE id = {key}", key)
    asked = revert("m1", "r2", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("r2")["stage"] not in ("", "starting"), "it has begun", ENDED_SECONDS)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(END_SECONDS_MAX)
    serve("second", "migration")
    eventually(lambda: state_of("r2")["is_ready_to_complete"], "the second owner goes on with it", ENDED_SECONDS)
    done("cancel", "r2")
    assert (state_of("r2")["state"], state_of("r2")["artifacts"]) == ("cancelled", [])
    assert (way_back("m1")["state"], feeds()) == (WayBackState.KEPT, [way_back("m1")["feed"]])
    go_on(clients)

    reverted("m1", "r3")
    assert (shop.columns(), feeds()) == (before, [])
    expected = settled(clients)
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    done("cleanup", "all")
    assert shop.tables() == ["items"]


@pytest.mark.long
def test_a_renamed_column_comes_back_under_its_old_name_with_the_values_of_now(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    changed(shop, "m1", "RENAME COLUMN label TO title")
    shop.run("UPDATE items SET title = 'label of now' WHERE id < 100")
    go_on(clients)
    reverted("m1", "r1")
    expected = settled(clients)
    assert shop.columns() == before
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    assert shop.run("SELECT id FROM items WHERE (label LIKE 'label %' OR label = 'new') IS NOT TRUE") == []
    assert shop.run("SELECT count(*) FROM items WHERE label = 'label of now'")[0][0] > 0


@pytest.mark.long
def test_a_way_back_that_stands_still_says_why_goes_on_and_ends_with_the_next_change(
    cluster: KafkaLog, sources: Sources, serve: Serve, shop: Shop
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    changed(shop, "m1", shop.BROADER, "--keep-revertible")
    before, feed = shop.tables(), way_back("m1")["feed"]
    wide = 5_000_000_000
    shop.run(f"UPDATE items SET v = {wide} WHERE id = 1")
    eventually(lambda: way_back("m1")["state"] == WayBackState.DOES_NOT_ADVANCE, "a value does not fit", ENDED_SECONDS)
    why = way_back("m1")["why"]
    assert "column v" in why, why
    assert f"{wide}" not in why, "values of rows are not quoted"
    asked = revert("m1", "r1")
    assert asked.exit_code != 0, asked.output
    assert "column v" in " ".join(asked.output.split()), asked.output
    assert f"feed resume {feed}" in " ".join(asked.output.split()), asked.output

    mend(sources, shop, "UPDATE items SET v = 5 WHERE id = 1", 1)
    eventually(lambda: way_back("m1")["state"] == WayBackState.KEPT, "it goes on", ENDED_SECONDS)

    asked = headgate(
        *(
            "migration",
            "submit",
            f"ALTER TABLE {shop.schema}.items ADD COLUMN more int",
            "--strategy",
            "direct",
            "--yes",
        ),
        *("--id", "m2", "--database", shop.connection, "--timeout", "120"),
    )
    assert asked.exit_code == 0, asked.output
    assert ended("m2")["state"] == "complete", state_of("m2")
    eventually(lambda: feeds() == [], "its form is not that of changes any more", ENDED_SECONDS)
    assert way_back("m1")["state"] == WayBackState.ENDED
    asked = revert("m1", "r2")
    assert "m2 has changed the same table since" in asked.output, asked.output
    assert shop.tables() == before, "the table before stays for its time"
    done("cleanup", "m1")
    assert shop.tables() == ["items"]


@pytest.mark.long
def test_a_value_with_more_digits_than_the_old_form_keeps_is_not_rounded_on_its_way_back(
    cluster: KafkaLog, sources: Sources, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    shop.run("ALTER TABLE items ADD COLUMN price decimal(10,2)")
    shop.run("UPDATE items SET price = 1.25 WHERE id < 10")
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    changed(shop, "m1", shop.MORE_DIGITS, "--keep-revertible")
    shop.run("UPDATE items SET price = 1.2345 WHERE id = 7")
    eventually(lambda: way_back("m1")["state"] == WayBackState.DOES_NOT_ADVANCE, "its digits do not fit", ENDED_SECONDS)
    why = way_back("m1")["why"]
    assert "column price" in why, why
    asked = revert("m1", "r1")
    assert asked.exit_code != 0, asked.output
    assert shop.run("SELECT price FROM items WHERE id = 7") == [(Decimal("1.2345"),)], "the table is untouched"

    mend(sources, shop, "UPDATE items SET price = 1.2300 WHERE id = 7", 7)
    eventually(lambda: way_back("m1")["state"] == WayBackState.KEPT, "it goes on", ENDED_SECONDS)
    reverted("m1", "r2")
    expected = settled(clients)
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    assert shop.run("SELECT price FROM items WHERE id IN (6, 7) ORDER BY id") == [
        (Decimal("1.25"),),
        (Decimal("1.23"),),
    ]
