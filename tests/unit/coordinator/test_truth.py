"""Every error code, as an agent's report or as the reason why a table failed: whatever people look at tells of it.

Parametrised over the table of codes, so that a new code is covered the day it is written.
"""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from headgate.coordinator.core.effects import TablesDiscovered
from headgate.coordinator.core.feeds.explain import Explanation, explain
from headgate.coordinator.shell.metrics import CoordinatorMetrics, figures_of
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.snapshot import Snapshot
from headgate.records.error_codes import ERROR_CODES, NO_ERRORS
from headgate.views.rows import FeedRow, TableRow, feed_rows, table_rows
from scenarios.runner import World

CODES = sorted(ERROR_CODES)
REASON = "what_the_agent_says"


@pytest.fixture
def world() -> Iterator[World]:
    """An owner, an agent, and a feed of two tables, both replicating."""
    made = World()
    made.run("owner start o1")
    made.run("agent join a1")
    made.run("request create r1 shop tables=t1,t2")
    made.run("status a1 shop/t1 replicating pos=0")
    made.run("status a1 shop/t2 replicating pos=0")
    made.run("advance 2s")
    yield made
    made.check()


def seen_by_commands(world: World) -> tuple[Explanation, FeedRow, dict[str, TableRow]]:
    """What ``why``, ``feed list`` and ``table list`` make of the topics; the views make their rows the same way."""
    held, (why, feed, tables) = figures_of(world.state())["shop"].held, shown(world)
    assert (held > 0) == (why.held_count > 0 or bool(why.feed_held_by)), "metrics say what the commands say"
    return why, feed, tables


def shown(world: World) -> tuple[Explanation, FeedRow, dict[str, TableRow]]:
    """The same where metrics count no table: those of a stopped feed, and those that are copied."""
    snapshot = Snapshot()
    reader = world.broker.client().reader(dict.fromkeys(world.broker.partitions(), 0))
    while batch := reader.poll(1_000, 0.0):
        for item in batch:
            snapshot.take(item)
    (feed,) = feed_rows(snapshot)
    return explain(world.state(), "shop"), feed, {row.span: row for row in table_rows(snapshot, "shop")}


def test_nothing_is_said_of_a_feed_that_is_well(world: World) -> None:
    why, feed, tables = seen_by_commands(world)
    assert (why.reasons, why.held_count, why.feed_held_by) == ((), 0, ())
    assert (feed.state, feed.replicating, feed.held_by, feed.error) == ("normal", 2, None, None)
    assert [row.error for row in tables.values()] == [None, None]


def test_a_paused_table_is_told_everywhere(world: World) -> None:
    world.run("progress a1 shop/t1 pos=3 ts=40 rows=3")
    world.run("progress a1 shop/t2 pos=5 ts=90 rows=5")
    world.run("request pause_table p1 shop t1")
    world.run("status a1 shop/t1 stopped pos=3")
    world.run("advance 2s")
    why, feed, tables = seen_by_commands(world)
    (reason,) = why.reasons
    assert (reason.span, reason.stage, reason.agent) == ("t1", "paused", None)
    assert reason.detail == "paused by tester"
    assert "headgate table resume shop t1" in reason.advice
    assert (feed.state, feed.replicating, feed.held_by, feed.error) == ("normal", 1, "t1 (paused)", None)
    paused = tables["t1"]
    assert (paused.state, paused.paused_by, paused.agent) == ("paused", "tester", None)
    assert paused.paused_since_ms == reason.since_ms
    assert (tables["t2"].state, tables["t2"].paused_by) == ("replicating", None)
    world.run("request resume_table p2 shop t1")
    world.run("status a1 shop/t1 replicating pos=3")
    world.run("advance 2s")
    why, feed, tables = seen_by_commands(world)
    assert (why.reasons, feed.replicating, tables["t1"].paused_by) == ((), 2, None)


@pytest.mark.parametrize("code", [code for code in CODES if code not in NO_ERRORS])
def test_an_error_that_the_agent_retries_by_itself_is_told_everywhere(world: World, code: str) -> None:
    world.run(f"status a1 shop/t1 replicating error={code}:{REASON}")
    world.run("advance 2s")
    why, feed, tables = seen_by_commands(world)
    (reason,) = why.reasons
    assert (reason.span, reason.stage, reason.agent) == ("t1", ERROR_CODES[code].stage, "a1")
    assert reason.detail == f"{code}: {REASON}"
    assert ERROR_CODES[code].advice in reason.advice
    assert (feed.state, feed.replicating) == ("warning", 1)
    assert feed.held_by == f"t1 ({ERROR_CODES[code].stage})"
    assert feed.error is not None
    assert f"t1: {code}: {REASON}" in feed.error
    assert tables["t1"].error == f"{code}: {REASON}"
    assert tables["t2"].error is None


@pytest.mark.parametrize("code", CODES)
def test_once_the_agent_reports_no_error_any_more_nothing_is_said(world: World, code: str) -> None:
    world.run(f"status a1 shop/t1 replicating error={code}:{REASON}")
    world.run("advance 2s")
    world.run("status a1 shop/t1 replicating pos=0")
    world.run("advance 2s")
    why, feed, tables = seen_by_commands(world)
    assert why.reasons == ()
    assert (feed.state, feed.replicating, feed.held_by, feed.error) == ("normal", 2, None, None)
    assert tables["t1"].error is None


@pytest.mark.parametrize("fatal", ["", " fatal=yes"], ids=["retryable", "fatal"])
@pytest.mark.parametrize("code", CODES)
def test_an_error_that_a_table_has_failed_with_is_told_everywhere(world: World, code: str, fatal: str) -> None:
    world.run(f"status a1 shop/t1 failed error={code}:{REASON}{fatal}")
    world.run("advance 0.25s")
    world.run("advance 1s")
    why, feed, tables = seen_by_commands(world)
    (reason,) = why.reasons
    assert reason.span == "t1"
    assert f"{code}: {REASON}" in reason.detail
    assert (feed.state, feed.replicating) == ("warning", 1)
    assert feed.held_by is not None
    assert feed.held_by.startswith("t1 ")
    assert feed.error is not None
    assert f"{code}: {REASON}" in feed.error
    assert (tables["t1"].error or "").startswith(f"{code}: {REASON}")


def test_a_feed_that_the_owner_has_stopped_says_why(world: World) -> None:
    world.run("found shop grown=db.t1_has_4_partitions")
    world.run("advance 12s")
    why, feed, _ = seen_by_commands(world)
    assert why.feed_held_by
    assert "db.t1 has 4 partitions" in why.feed_held_by[0]
    assert feed.error is not None
    assert "db.t1 has 4 partitions" in feed.error


def test_the_feed_tells_of_the_table_that_fails_now(world: World) -> None:
    world.run("status a1 shop/t1 replicating error=sink_unavailable:away")
    world.run("status a1 shop/t2 replicating error=value_refused:too_long")
    world.run("advance 2s")
    world.run("status a1 shop/t1 replicating pos=0")
    world.run("advance 2s")
    _, feed, _ = seen_by_commands(world)
    assert feed.held_by == "t2 (sink)"
    assert feed.error is not None
    assert "t2: value_refused" in feed.error


# --- what the owner measures at the source, whatever agents report ----------------------------------------------------


def logged_ms_ago(seconds: float) -> int:
    """An append time by the clock that the rows are shown with."""
    return wall_ms() - round(seconds * 1000)


@pytest.mark.parametrize(
    "silent",
    [
        "advance 0.25s",
        "status a1 shop/t1 failed error=sink_unavailable:away",
        "kill a1",
    ],
    ids=["the agent reports nothing", "the table has failed", "the agent is gone"],
)
def test_lag_grows_though_nobody_reports_it(world: World, silent: str) -> None:
    world.run("progress a1 shop/t1 pos=5 rows=5")
    world.run(silent)
    append_ms = logged_ms_ago(95)
    world.run(f"found shop waits=t1:{append_ms}")
    world.run("advance 22s")
    why, feed, tables = seen_by_commands(world)
    assert (tables["t1"].lag_ms or 0) >= 95_000
    assert (feed.lag_ms or 0) >= 95_000
    assert feed.held_by is not None
    assert why.held_count >= 1
    assert any(reason.span == "t1" for reason in why.reasons)


def test_a_table_whose_agent_is_silent_is_named_with_since_when(world: World) -> None:
    append_ms = logged_ms_ago(95)
    world.run(f"found shop waits=t1:{append_ms}")
    world.run("advance 12s")
    why, feed, tables = seen_by_commands(world)
    (reason,) = why.reasons
    assert (reason.span, reason.agent, reason.since_ms) == ("t1", "a1", append_ms)
    assert "reports no error: it works off a backlog, or hangs" in reason.detail
    assert "`headgate table list shop`" in reason.advice
    assert feed.held_by == "t1 (sink)"
    world.run("found shop")
    world.run("advance 12s")
    why, feed, tables = seen_by_commands(world)
    assert (why.reasons, feed.held_by, tables["t1"].lag_ms) == ((), None, None)


def test_between_two_attempts_of_different_agents_the_last_error_is_still_told(world: World) -> None:
    world.run(f"found shop waits=t1:{logged_ms_ago(20)}")
    world.run("advance 11s")
    world.run("status a1 shop/t1 failed error=sink_column_missing:no_column_c")
    world.run("advance 3s")
    world.run("status a1 shop/t1 replicating pos=0")
    world.run("advance 2s")
    why, feed, tables = seen_by_commands(world)
    (reason,) = why.reasons
    assert "sink_column_missing: no_column_c" in reason.detail
    assert (feed.state, feed.replicating) == ("warning", 1)
    assert tables["t1"].error == "sink_column_missing: no_column_c"


def test_a_new_owner_says_what_the_last_one_measured(world: World) -> None:
    append_ms = logged_ms_ago(95)
    world.run(f"found shop waits=t1:{append_ms}")
    world.run("advance 12s")
    world.run("effects hold")
    world.run("owner switch o1 o2")
    world.run("status a1 shop/t2 replicating pos=1")
    world.run("advance 3s")
    why, _, _ = seen_by_commands(world)
    assert [(reason.span, reason.since_ms) for reason in why.reasons] == [("t1", append_ms)]


def test_a_table_that_has_failed_once_and_has_nothing_left_to_apply_has_recovered(world: World) -> None:
    world.run("status a1 shop/t1 failed error=sink_unavailable:away")
    world.run("advance 3s")
    world.run("status a1 shop/t1 replicating pos=0")
    world.run("found shop")
    world.run("advance 11s")
    _, feed, tables = seen_by_commands(world)
    assert (feed.state, feed.replicating, tables["t1"].error, tables["t1"].failures) == ("normal", 2, None, 0)


def test_the_owners_metrics_tell_of_a_table_that_no_agent_tells_of(world: World) -> None:
    append_ms = logged_ms_ago(95)
    world.run(f"found shop waits=t1:{append_ms}")
    world.run("advance 12s")
    registry = CollectorRegistry()
    metrics = CoordinatorMetrics(registry, lambda: append_ms + 95_000)
    metrics.stands(0, world.owners["o1"].role.view)
    assert registry.get_sample_value("headgate_feed_held_tables", {"feed": "shop"}) == 1
    assert registry.get_sample_value("headgate_feed_oldest_unapplied_seconds", {"feed": "shop"}) == 95
    metrics.stands(0, None)
    assert registry.get_sample_value("headgate_feed_held_tables", {"feed": "shop"}) is None


def test_what_is_applied_does_not_go_back_when_a_table_moves(world: World) -> None:
    world.run("progress a1 shop/t1 pos=40 rows=40")
    world.run("advance 2s")
    assert seen_by_commands(world)[1].applied == 40
    world.run("agent join a2")
    world.run("request move m1 shop t1 a2")
    world.run("status a2 shop/t1 prepared")
    world.run("advance 2s")
    assert seen_by_commands(world)[1].applied == 40
    world.run("status a1 shop/t1 stopped pos=41")
    world.run("status a2 shop/t1 replicating pos=41")
    world.run("progress a2 shop/t1 pos=43 rows=2")
    world.run("advance 2s")
    _, feed, tables = seen_by_commands(world)
    assert (feed.applied, tables["t1"].applied, tables["t1"].rows, tables["t1"].agent) == (43, 43, 2, "a2")


def test_a_quiet_table_does_not_hold_the_time_that_is_shown(world: World) -> None:
    second = 1000 << 18
    world.run(f"progress a1 shop/t2 pos=3 rows=3 ts={2 * second}")
    world.run(f"progress a1 shop/t1 pos=40 rows=40 ts={90 * second}")
    world.run("advance 2s")
    assert seen_by_commands(world)[0].checkpoint_ts == 2 * second
    world.found["shop"] = TablesDiscovered(unapplied={}, complete=("t2",), looked_ms=100_000)
    world.run("advance 12s")
    assert seen_by_commands(world)[0].checkpoint_ts == 90 * second


SNAPSHOT = (
    ("request create r1 shop tables=t1 copies=t1", "copying", 0),
    ("advance 1s", "copying", 0),
    ("status a1 shop/t1 preparing", "copying", 0),
    (f"status a1 shop/t1 preparing error=copying:{REASON}", "copying", 0),
    ("status a1 shop/t1 failed error=copy_failed:no_right", "copying", 1),
    ("advance 2s", "copying", 1),
    (f"status a1 shop/t1 replicating pos=3 error=copying:{REASON}", "copying", 0),
    (f"status a1 shop/t1 replicating pos=9 error=copying_held:{REASON}", "copying", 1),
    ("request pause p1 shop", "removing", 0),
    ("status a1 shop/t1 stopped pos=9", "copy_paused", 0),
    ("request resume p2 shop", "copying", 0),
    ("advance 1s", "copying", 0),
    ("status a1 shop/t1 replicating pos=9", "replicating", 0),
)
"""A table whose rows are copied as it joins: what happens, the state that people see, and the number of held tables."""

RESYNC = (
    ("request create r1 shop tables=t1", "commit", 1),
    ("status a1 shop/t1 replicating pos=0", "replicating", 0),
    ("request resync_table c1 shop t1 whole", "copying", 0),
    ("status a1 shop/t1 stopped pos=3", "copying", 0),
    ("advance 1s", "copying", 0),
    (f"status a1 shop/t1 replicating pos=3 error=copying:{REASON}", "copying", 0),
    ("request delete c1", "replicating", 0),
)
"""The same by request of an operator, who then withdraws it."""


@pytest.mark.parametrize("steps", [SNAPSHOT, RESYNC])
def test_one_word_says_that_rows_are_copied_from_the_beginning_to_the_end(
    steps: tuple[tuple[str, str, int], ...],
) -> None:
    world = World()
    world.run("owner start o1")
    world.run("agent join a1")
    for step, state, held in steps:
        world.run(step)
        why, feed, tables = shown(world)
        assert (step, tables["t1"].state, feed.copying) == (step, state, state.startswith("copy"))
        figures = figures_of(world.state())["shop"]
        assert (step, figures.held, figures.uncopied) == (step, held, state.startswith("copy") or state == "removing")
        is_stopped = feed.wanted == "stopped"
        found = {reason.span: reason.is_copying for reason in why.reasons}
        assert found.get("t1", False) is (state == "copying" and not is_stopped), step
        assert any("rows of t1 are not all copied" in line for line in why.feed_held_by) is is_stopped, step
    world.check()


COPIED = (*(step for step, _, _ in SNAPSHOT[:3]), f"status a1 shop/t1 replicating pos=3 error=copying:{REASON}")
"""Until the table is copied in turns."""


def gauges(world: World) -> tuple[float | None, float | None]:
    """What the owner exports: tables that are held, and tables that are not copied."""
    registry = CollectorRegistry()
    CoordinatorMetrics(registry).stands(0, world.owners["o1"].role.view)
    names = ("headgate_feed_held_tables", "headgate_feed_uncopied_tables")
    held, uncopied = (registry.get_sample_value(name, {"feed": "shop"}) for name in names)
    return held, uncopied


@pytest.mark.parametrize(
    ("then", "held"),
    [("advance 1s", 0), (f"found shop waits=t1:{logged_ms_ago(20)}", 0), ("kill a1", 1)],
    ids=["nothing", "its changes wait for the end of a turn", "its agent is gone"],
)
def test_a_table_that_is_copied_is_held_only_if_its_copy_is(then: str, held: int) -> None:
    world = World()
    world.run("owner start o1")
    world.run("agent join a1")
    for step in (*COPIED, then, "advance 20s"):
        world.run(step)
    assert gauges(world) == (held, 1)
    world.check()
