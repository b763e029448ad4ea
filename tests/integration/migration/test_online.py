"""An online change whose rows come through Spark: real capture, real lanes, clients all the while, a killed owner."""

import json
import signal

import pytest

from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import headgate
from integration.migration.shop import (
    Client,
    PostgresShop,
    Serve,
    Shop,
    done,
    go_on,
    settled,
    state_of,
)
from support.waiting import END_SECONDS_MAX, eventually

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("shop", "is_killed"),
    [
        ("postgres", False),
        pytest.param("postgres", True, marks=pytest.mark.long),
        pytest.param("mariadb", True, marks=pytest.mark.long),
    ],
    indirect=["shop"],
)
def test_rows_come_through_spark_while_the_owner_is_killed_and_the_feed_falls_behind(
    *, cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client], is_killed: bool
) -> None:
    serve("coordinator", "coordinator")
    agent = serve("agent", "agent", "--name", "a")
    first = serve("first", "migration")
    before = shop.columns()
    asked = shop.submit("m1", shop.CHANGE, "--postpone-launch", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    done("throttle", "m1", "--ratio", "1")
    done("launch", "m1")
    eventually(lambda: state_of("m1")["stage"] == "copying", "the feed has been shown to work, and stands still")
    if is_killed:
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(END_SECONDS_MAX)
        serve("second", "migration")
    done("throttle", "m1", "--ratio", "0")
    eventually(lambda: state_of("m1")["is_ready_to_complete"], "the copy is ready", 400)
    agent.process.send_signal(signal.SIGSTOP)
    done("complete", "m1")
    eventually(lambda: state_of("m1")["throttle_reason"], "it is seen that the feed is behind")
    go_on(clients)
    assert state_of("m1")["cutover_attempts"] == 0, "the table was not locked in vain"
    agent.process.send_signal(signal.SIGCONT)
    eventually(lambda: state_of("m1")["state"] != "running", "it has ended", 400)
    go_on(clients)
    expected = settled(clients)
    shown = state_of("m1")
    assert shown["state"] == "complete", shown
    assert shown["attempt"] == 1, "the second owner went on with what the first had begun"
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    is_int = before["id"]
    assert shop.columns() == {"id": is_int, "v": shop.BROAD, "label": shop.TEXTS["label"], "extra": is_int}
    assert shop.run("SELECT DISTINCT extra FROM items") == [(7,)]
    feeds = json.loads(headgate("feed", "list", "-o", "json").stdout)
    assert feeds == [], "the feed into the copy is gone"
    done("cleanup", "m1")
    assert shop.tables() == ["items"]


@pytest.mark.long
def test_a_feed_that_is_resumed_during_the_copy_ends_it_and_another_try_renames(
    cluster: KafkaLog, serve: Serve, shop: Shop, clients: list[Client]
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    asked = shop.submit("r1", "RENAME COLUMN label TO title", "--postpone-launch")
    assert asked.exit_code == 0, asked.output
    done("throttle", "r1", "--ratio", "1")
    done("launch", "r1")
    eventually(lambda: state_of("r1")["stage"] == "copying", "the feed stands still")
    (feed,) = json.loads(headgate("feed", "list", "-o", "json").stdout)
    resumed = headgate("feed", "resume", feed["feed"], "--timeout", "120")
    assert resumed.exit_code == 0, resumed.output
    done("throttle", "r1", "--ratio", "0")
    eventually(lambda: state_of("r1")["state"] == "failed", "it has ended", 400)
    assert "resumed" in state_of("r1")["message"]
    assert shop.columns() == before
    assert json.loads(headgate("feed", "list", "-o", "json").stdout) == []

    done("retry", "r1")
    eventually(lambda: state_of("r1")["state"] not in ("queued", "ready", "running"), "it has ended", 400)
    expected = settled(clients)
    shown = state_of("r1")
    assert (shown["state"], shown["attempt"]) == ("complete", 2), shown
    assert dict(shop.run("SELECT id, v FROM items")) == expected
    is_int = before["id"]
    assert shop.columns() == {"id": is_int, "v": is_int, "title": shop.TEXTS["label"], "note": shop.TEXTS["note"]}
    assert shop.run("SELECT id FROM items WHERE (title LIKE 'label %' OR title = 'new') IS NOT TRUE") == []


def test_what_cannot_be_followed_is_refused_and_nothing_is_touched(cluster: KafkaLog, serve: Serve, shop: Shop) -> None:
    serve("owner", "migration")
    shop.run("CREATE TABLE elsewhere (id int PRIMARY KEY)")
    refusals = [
        (("ADD COLUMN c int",), {"topic": "nothing"}, "does not exist"),
        (("ADD UNIQUE (v)",), {}, "rows that are equal in (v)"),
        (("DROP COLUMN v", "--keep-revertible"), {}, "NOT NULL without a default"),
    ]
    if isinstance(shop, PostgresShop):
        refusals.append((("ADD COLUMN c int",), {"table": "elsewhere"}, "in no publication"))
    else:
        shop.run("CREATE TABLE key_alone (id int PRIMARY KEY)")
        refusals.append((("ADD COLUMN c int",), {"table": "key_alone"}, "no column beside its key"))
        refusals.append((("DROP COLUMN id",), {}, "by which change events name rows, is dropped"))
    before = shop.tables()
    for number, (change, options, why) in enumerate(refusals):
        asked = shop.submit(f"n{number}", *change, **options)
        assert asked.exit_code == 40, (change, options, asked.output)
        assert why in " ".join(asked.output.split()), asked.output
    without = headgate(
        *("migration", "submit", f"ALTER TABLE {shop.schema}.items ADD COLUMN c int", "--database", shop.connection),
        *("--timeout", "120"),
    )
    assert without.exit_code == 40
    assert "--topic" in without.output
    assert shop.tables() == before


@pytest.mark.long
def test_a_table_that_was_truncated_since_is_left_alone_and_an_empty_one_is_changed(
    cluster: KafkaLog, serve: Serve, shop: Shop
) -> None:
    serve("coordinator", "coordinator")
    serve("agent", "agent", "--name", "a")
    serve("owner", "migration")
    before = shop.columns()
    asked = shop.submit("t1", "ADD COLUMN extra int", "--postpone-completion")
    assert asked.exit_code == 0, asked.output
    eventually(lambda: state_of("t1")["is_ready_to_complete"], "it waits for its completion", 400)
    shop.run("TRUNCATE items")
    done("complete", "t1")
    eventually(lambda: state_of("t1")["state"] == "failed", "it has ended", 400)
    assert "truncated" in state_of("t1")["message"]
    assert (shop.columns(), shop.run("SELECT count(*) FROM items")) == (before, [(0,)])

    done("retry", "t1")
    eventually(lambda: state_of("t1")["state"] not in ("queued", "ready", "running"), "it has ended", 400)
    assert state_of("t1")["state"] == "complete", state_of("t1")
    assert shop.columns() == before | {"extra": before["id"]}
    assert shop.run("SELECT count(*) FROM items") == [(0,)]
