"""Which feeds may write which rows of a sink: whole tables, and slices of them."""

import pytest

from headgate.coordinator.core.sink_ownership import written_by_others
from headgate.coordinator.core.state import CoordinatorState, evolve, new_state
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState
from headgate.records.keys import FeedKey

SPEC = '{"sink": {"type": "postgresql", "dsn": "dbname=x"}}'
WITH_INTO = SPEC[:-1] + ', "tables": {"*.t": {"into": {}}}}'


def plan(table: str) -> SpanPlan:
    return SpanPlan(table, f"db.{table}", table, {0: 0})


def recorded(*tables: str, spec: str = WITH_INTO) -> FeedRecorded:
    running = (WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    return FeedRecorded("0-1", 0, 0, spec, tuple(map(plan, tables)), *running)


def written(**feeds: tuple[str, ...]) -> CoordinatorState:
    state = new_state(0)
    for offset, (name, tables) in enumerate(feeds.items()):
        evolve(state, FeedKey(name), recorded(*tables), offset)
    return state


def other(state: CoordinatorState, table: str, name: str = "mine") -> str | None:
    found = written_by_others(state.index.written, name, SPEC, None, [plan(table)])
    return None if found is None else found.feed


@pytest.mark.parametrize(
    ("theirs", "mine", "is_free"),
    [
        ("a.t", "a.t", False),
        ("a.t", "a.u", True),
        ("a.t", "a.t@x=1", False),
        ("a.t@x=1", "a.t", False),
        ("a.t@x=1", "a.t@x=1", False),
        ("a.t@x=a", "a.t@x=A", False),
        ("a.t@x=1", "a.t@x=2", True),
        ("a.t@x=1", "a.t2@x=1", True),
        ("a.t@x=1", "a.t@y=2", False),
        ("a.t@x=1", 'a."t@x=1"', False),
        ('a."t@x=1"', "a.t@x=1", False),
        ('a."t@x=1"', 'a."t@x=1"@y=2', False),
        ('a."t@x=1"', "a.t@x=2", True),
    ],
)
def test_a_row_is_written_by_one_feed(theirs: str, mine: str, *, is_free: bool) -> None:
    state = written(theirs=(theirs,))
    assert other(state, mine) == (None if is_free else "theirs")
    assert other(state, mine, "theirs") is None


def test_slices_that_leave_with_their_feed_are_free() -> None:
    state = written(one=("a.t@x=1", "a.t@x=2"), two=("a.t@x=3",))
    evolve(state, FeedKey("one"), recorded("a.t@x=2"), 2)
    assert [other(state, f"a.t@x={number}") for number in (1, 2, 3)] == [None, "one", "two"]
    assert other(state, "a.t") in ("one", "two")
    evolve(state, FeedKey("one"), None, 3)
    assert other(state, "a.t") == "two"
    evolve(state, FeedKey("two"), None, 4)
    assert other(state, "a.t") is None


def test_feeds_with_different_discriminators_are_both_named_with_their_columns() -> None:
    state = written(theirs=("a.t@shard=1", "a.t@shard=2"), third=("a.t2@tenant=1",))
    found = written_by_others(state.index.written, "mine", SPEC, None, [plan("a.u"), plan("a.t@tenant=1")])
    assert found is not None
    assert "feeds 'mine' and 'theirs' write rows of table a.t, by different discriminators: tenant and shard" in (
        found.reason("mine")
    )


def test_a_table_of_an_older_feed_is_written_whole_although_its_name_is_that_of_a_slice() -> None:
    state = written()
    evolve(state, FeedKey("old"), recorded("a.t@x=1", spec=SPEC), 0)
    assert [other(state, table) for table in ('a."t@x=1"', "a.t@x=1", "a.t")] == ["old", "old", None]
