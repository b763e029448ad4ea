"""What the indexes know of tables that are divided otherwise, in whatever order their records are read."""

import itertools

import pytest

from headgate.coordinator.index import FeedIndex
from headgate.coordinator.state import evolve, new_state
from headgate.records.control import FeedRecorded, FeedState, Record, SetState, SpanDispatched, SpanPlan, WantedState
from headgate.records.keys import FeedKey, Key, SpanKey


def plan(span: str) -> SpanPlan:
    return SpanPlan(span, "topic", span, {0: 0})


def plans(*spans: str) -> dict[str, SpanPlan]:
    return {span: plan(span) for span in spans}


def feed_of(*spans: str) -> FeedRecorded:
    running = (WantedState.RUNNING, FeedState.NORMAL, None, None, None, 0)
    return FeedRecorded("0-1", 0, 0, "{}", tuple(map(plan, spans)), *running)


SEALED = SpanDispatched("0-1", 0, 0, SetState.ABSENT, None, None, True, None, 0, None)


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
