"""What the indexes know of tables that are divided otherwise, in whatever order their records are read."""

import itertools

import pytest
from msgspec.structs import replace

from headgate.coordinator.core.index import LAG_HOLDS_MS, FeedIndex, Indexes
from headgate.coordinator.core.state import evolve, new_state
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    Epoch,
    FeedRecorded,
    FeedState,
    ReplicationState,
    SpanPlan,
    TaskState,
    WantedState,
)
from headgate.records.keys import AgentKey, FeedKey, ProgressKey, SpanKey, TaskKey
from support import build


def plan(span: str) -> SpanPlan:
    return SpanPlan(span, "topic", span, {0: 0})


def plans(*spans: str) -> dict[str, SpanPlan]:
    return {span: plan(span) for span in spans}


def feed_of(*spans: str) -> FeedRecorded:
    running = (WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    return FeedRecorded("0-1", 0, 0, "{}", tuple(map(plan, spans)), *running)


SEALED = build.span_dispatched(incarnation=0, owner_rev=0, state=ReplicationState.ABSENT, sealed=True)


def test_a_part_has_seen_what_its_own_table_had_seen_and_nothing_of_another() -> None:
    index = FeedIndex(plans=plans("t~0", "t~1", "u"))
    index.ts.put("t", 50)
    index.ts.put("u", 20)
    index.carry_over(plans("t", "u"))
    assert {span: index.ts.rank(span) for span in index.ts.in_order()} == {"t~0": 50, "t~1": 50, "u": 20}
    both = FeedIndex(plans=plans("t~0", "t~1", "u~0", "u~1"))
    both.ts.put("t", 50)
    both.ts.put("u", 20)
    both.carry_over(plans("t", "u"))
    assert {span: both.ts.rank(span) for span in sorted(both.ts.in_order())} == {
        "t~0": 50,
        "t~1": 50,
        "u~0": 20,
        "u~1": 20,
    }


def test_a_table_made_whole_has_seen_the_least_of_its_parts_and_nothing_if_one_has_told_nothing() -> None:
    index = FeedIndex(plans=plans("t"))
    index.ts.put("t~0", 50)
    index.ts.put("t~1", 30)
    index.resolved.put("t~0", 50)
    index.carry_over(plans("t~0", "t~1"))
    assert (index.least_ts(), index.least_resolved_ts()) == (30, None)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(("old", "new"), [(("t", "t~0-1"), ("t~0", "t~1")), (("t~0", "t~1"), ("t",))])
def test_sealed_spans_of_an_older_division_are_found_whatever_is_read_first(
    order: tuple[int, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    records: list[tuple[Key, Record]] = [(SpanKey("f", span), SEALED) for span in old]
    records.append((FeedKey("f"), feed_of(*new)))
    state = new_state(0)
    for offset, place in enumerate(order):
        evolve(state, *records[place], offset)
    assert sorted(state.index.outdated.in_order()) == [SpanKey("f", span) for span in old]


def test_the_other_feed_that_an_older_version_has_let_write_a_table_stays_known() -> None:
    spec = '{"sink": {"type": "postgresql", "dsn": "d"}}'
    state = new_state(0)
    for name in ("a", "b"):
        evolve(state, FeedKey(name), replace(feed_of("t"), spec=spec), 0)
    place = ("postgresql", "d")
    assert state.index.written[place] == {"t": ("a", "b")}
    evolve(state, FeedKey("b"), replace(feed_of("t", "u"), spec=spec), 1)
    assert state.index.written[place] == {"t": ("a", "b"), "u": ("b",)}
    evolve(state, FeedKey("a"), None, 2)
    assert state.index.written[place] == {"t": ("b",), "u": ("b",)}


def test_of_late_spans_the_one_that_has_seen_least_comes_first() -> None:
    indexes = Indexes()
    feed = indexes.feed("f")
    feed.plans = plans("a", "b", "c")

    def count(span: str, seen_ts: int | None, lag_ms: int = LAG_HOLDS_MS) -> None:
        progress = build.span_progressed(positions={0: 1}, seen_ts=seen_ts, rows=1, bytes=1, lag_ms=lag_ms)
        indexes.count(SpanKey("f", span), {0: 1}, progress)

    count("a", 20)
    count("b", 10)
    assert list(feed.lagging.in_order()) == ["b", "a"]
    count("c", None)
    assert list(feed.lagging.in_order()) == ["c", "b", "a"], "of one that has told nothing nobody knows"
    count("b", 10, LAG_HOLDS_MS - 1)
    assert list(feed.lagging.in_order()) == ["c", "a"]


def test_a_part_is_known_as_long_as_any_record_is_about_it() -> None:
    indexes = Indexes()
    whole, one, other = (SpanKey("f", span) for span in ("t", "t~0", "t~1"))
    for part in (one, other):
        indexes.part_changed(part, is_known=True)
    indexes.part_changed(one, is_known=False)
    assert indexes.overlapping(whole) == [other]
    indexes.part_changed(other, is_known=False)
    assert indexes.overlapping(whole) == []
    assert indexes.parts == {}, "tables come and go for ever"


def test_a_part_is_known_by_its_record_or_by_a_word_about_it() -> None:
    span, task = SpanKey("f", "t~0"), TaskKey("f", "t~0", "a", "s")
    progress = ProgressKey("f", "t~0", "a", "s")
    word = build.task_reported(state=TaskState.STOPPED)
    done = build.span_progressed(positions={0: 1})

    def known(*records: tuple[Key, Record | None]) -> bool:
        state = new_state(0)
        for offset, (key, value) in enumerate(records):
            evolve(state, key, value, offset)
        return bool(state.index.parts)

    assert known((task, word))
    assert not known((task, word), (task, None))
    assert known((span, SEALED), (task, word), (task, None))
    assert not known((span, SEALED), (task, word), (task, None), (span, None))
    assert known((task, word), (progress, done), (progress, None))
    assert known((task, word), (span, SEALED), (span, None))
    assert known((span, SEALED), (progress, done))
    assert not known((progress, done)), "what a session has counted says nothing of who may write"


def test_of_a_session_that_is_forgotten_nothing_is_left() -> None:
    span, agent = SpanKey("f", "t"), AgentKey("a", "s")
    state = new_state(0)
    evolve(state, agent, build.agent_announced(version="v", capacity_spans=4), 0)
    evolve(
        state,
        span,
        replace(SEALED, state=ReplicationState.COMMIT, primary=Assignment("a", "s", Epoch(0, 1)), sealed=False),
        1,
    )
    assert list(state.index.roles["a", "s"].in_order()) == [span]
    evolve(state, span, SEALED, 2)
    evolve(state, agent, None, 3)
    assert (state.index.roles, state.index.starting) == ({}, {}), "sessions come and go for ever"


def seen(**ts: int) -> FeedIndex:
    """Three tables, of which some have seen a time."""
    index = FeedIndex(plans=plans("busy", "quiet", "empty"))
    for span, each in ts.items():
        index.ts.put(span, each)
        index.newest_ts = max(each, index.newest_ts or 0)
    return index


@pytest.mark.parametrize(
    ("complete", "least"),
    [
        ((), None),
        (("empty",), 10),
        (("quiet",), None),
        (("quiet", "empty"), 90),
        (("quiet", "empty", "busy"), 90),
        (("quiet", "empty", "gone"), 90),
    ],
)
def test_a_table_that_has_applied_everything_does_not_hold_the_checkpoint(
    complete: tuple[str, ...], least: int | None
) -> None:
    assert seen(busy=90, quiet=10).least_ts(frozenset(complete), 1_000) == least


def test_a_table_that_has_applied_everything_counts_up_to_when_that_was_seen() -> None:
    assert seen(busy=90, quiet=10, empty=5).least_ts(frozenset({"quiet", "empty"}), 50) == 50
    assert seen(busy=90, quiet=70, empty=60).least_ts(frozenset({"quiet", "empty"}), 50) == 60
    assert seen().least_ts(frozenset({"quiet", "empty", "busy"}), 50) is None, "nothing was ever seen"
