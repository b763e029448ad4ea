"""When a log is cut otherwise: by load, with rest between the limits, within the budget, and never back and forth."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.generation.changelog.core.planning import (
    MeasuredLoad,
    Policy,
    PolicyError,
    first_map,
    next_map,
    plan,
    resize,
)
from headgate.generation.core.ranges import FIRST_TOKEN, LAST_TOKEN, LogMap, LogStream, MapError, check_switch

POLICY = Policy(split_above_per_second=100, merge_below_per_second=40, streams_max=16, settle_seconds=60)
PARTITIONS = 40


def draw() -> random.Random:
    return random.Random(2)  # noqa: S311 (ids, not secrets)


def evenly(stream: LogStream, per_second: float, open_seconds: float = 1000.0) -> MeasuredLoad:
    width = stream.end - stream.start
    return MeasuredLoad(
        per_second, open_seconds, tuple((stream.start + width * number // 9, 1.0) for number in range(1, 9))
    )


def logs(count: int) -> LogMap:
    return first_map(PARTITIONS, count, draw().getrandbits)


def test_a_hot_stream_is_split_at_the_middle_of_its_load() -> None:
    log = logs(1)
    load = MeasuredLoad(150.0, 1000.0, ((-500, 1.0), (-400, 1.0), (0, 1.0), (900, 3.0)))
    (change,) = plan(POLICY, log, {log.streams[0].id: load}).changes
    assert change.cuts == (0,)


def test_a_key_that_alone_is_too_much_gets_a_range_of_its_own() -> None:
    log = logs(1)
    load = MeasuredLoad(300.0, 1000.0, ((-500, 1.0), (77, 8.0), (900, 1.0)))
    (change,) = plan(POLICY, log, {log.streams[0].id: load}).changes
    assert change.cuts == (76, 77)
    after = next_map(log, [change], [5, 6, 7], PARTITIONS, draw().getrandbits)
    alone = after.stream_of(77)
    assert (alone.start, alone.end) == (76, 77)
    told = plan(POLICY, after, {alone.id: MeasuredLoad(240.0, 1000.0, ((77, 8.0),))})
    assert told.changes == ()
    assert "no place to cut it" in told.left[0]


@pytest.mark.parametrize("token", [FIRST_TOKEN, LAST_TOKEN])
def test_a_hot_key_at_an_end_of_the_ring_is_cut_off_on_one_side(token: int) -> None:
    log = logs(1)
    sample = tuple(sorted([(token, 9.0), (5, 1.0)]))
    (change,) = plan(POLICY, log, {log.streams[0].id: MeasuredLoad(200.0, 1000.0, sample)}).changes
    assert change.cuts == ((FIRST_TOKEN,) if token == FIRST_TOKEN else (LAST_TOKEN - 1,))


def test_neighbours_with_little_load_are_merged_as_far_as_they_go() -> None:
    log = logs(5)
    loads = dict(
        zip([stream.id for stream in log.streams], [MeasuredLoad(x, 1000.0) for x in (15, 15, 15, 90, 5)], strict=True)
    )
    (change,) = plan(POLICY, log, loads).changes
    assert change.streams == tuple(stream.id for stream in log.streams[:2])
    assert plan(replace(POLICY, streams_min=5), log, loads).changes == ()
    assert plan(POLICY, log, loads, merge=False).changes == ()


def test_between_the_limits_and_while_it_settles_nothing_happens() -> None:
    log = logs(2)
    first, second = log.streams
    assert plan(POLICY, log, {first.id: evenly(first, 100), second.id: evenly(second, 40)}).changes == ()
    assert plan(POLICY, log, {first.id: evenly(first, 500, 59.0)}).changes == ()
    assert plan(POLICY, log, {first.id: MeasuredLoad(1, 59.0), second.id: MeasuredLoad(1, 1000.0)}).changes == ()
    assert plan(POLICY, log, {}).changes == ()


def test_the_budget_goes_to_the_hottest_and_the_rest_is_told() -> None:
    log = logs(3)
    loads = {stream.id: evenly(stream, 200 + 100 * number) for number, stream in enumerate(log.streams)}
    made = plan(replace(POLICY, streams_max=4), log, loads)
    assert [change.streams for change in made.changes] == [(log.streams[2].id,)]
    assert len(made.left) == 2
    made = plan(replace(POLICY, changes_max=2), log, loads)
    assert [change.streams for change in made.changes] == [(log.streams[1].id,), (log.streams[2].id,)]
    assert "next plan" in made.left[0]


def test_partitions_that_are_free_are_not_exceeded() -> None:
    log = logs(3)
    loads = {stream.id: evenly(stream, 200 + 100 * number) for number, stream in enumerate(log.streams)}
    made = plan(POLICY, log, loads, free=5)
    assert [change.streams[0] for change in made.changes] == [stream.id for stream in log.streams[1:]]
    assert "only 1 partitions are free" in made.left[0]
    cold = {stream.id: evenly(stream, 1) for stream in log.streams}
    assert plan(POLICY, log, cold, free=0).changes == ()
    assert len(plan(POLICY, log, cold, free=1).changes) == 1


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=12))
def test_a_plan_can_be_done_and_is_not_undone_by_the_next(rates: list[float]) -> None:
    log = logs(len(rates))
    loads = {stream.id: evenly(stream, rate) for stream, rate in zip(log.streams, rates, strict=True)}
    made = plan(POLICY, log, loads)
    assert plan(POLICY, log, dict(reversed(loads.items()))) == made
    if not made.changes:
        return
    after = next_map(log, made.changes, range(len(rates), PARTITIONS), PARTITIONS, random.Random(9).getrandbits)  # noqa: S311 (ids, not secrets)
    check_switch(log, after, in_use=())
    assert POLICY.streams_min <= len(after.streams) <= POLICY.streams_max
    # The new streams, once they have settled, with the load of what they took over.
    then: dict = {}
    for stream in after.streams:
        parents = [log.by_id[parent] for parent in stream.parents]
        if parents:
            whole = sum(loads[parent.id].per_second for parent in parents)
            share = (stream.end - stream.start) / sum(parent.end - parent.start for parent in parents)
            then[stream.id] = evenly(stream, whole * share)
    merged = {stream for change in made.changes if not change.cuts for stream in change.streams}
    again = plan(POLICY, after, then)
    for change in again.changes:
        parents_of = {parent for stream in change.streams for parent in after.by_id[stream].parents}
        assert not (change.cuts and parents_of & merged), "what was merged is split again"
        assert change.cuts or parents_of <= merged, "what was split is merged again"


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, merge_below_per_second=51),
        replace(POLICY, streams_min=17),
        replace(POLICY, streams_min=0),
        replace(POLICY, changes_max=0),
        replace(POLICY, cool_down_seconds=0.9),
        replace(POLICY, cool_down_seconds=math.nan),
        replace(POLICY, settle_seconds=-1),
        replace(POLICY, settle_seconds=math.nan),
        replace(POLICY, settle_seconds=math.inf),
        replace(POLICY, split_above_per_second=math.nan),
        replace(POLICY, split_above_per_second=math.inf),
        replace(POLICY, merge_below_per_second=math.nan),
        replace(POLICY, merge_below_per_second=-1),
    ],
)
def test_limits_that_contradict_each_other_are_refused(policy: Policy) -> None:
    with pytest.raises(PolicyError):
        plan(policy, logs(1), {})


@given(st.lists(st.integers(1, 12), min_size=2, max_size=5))
def test_a_log_can_be_cut_into_any_number_of_equal_streams(counts: list[int]) -> None:
    log = logs(counts[0])
    for number, count in enumerate(counts[1:], start=2):
        taken = {stream.partition for stream in log.streams}
        free = [partition for partition in range(PARTITIONS) if partition not in taken]
        starts = dict.fromkeys(free, 10 * number)
        changes = resize(log, count)
        after = next_map(log, changes, free, PARTITIONS, draw().getrandbits, generation=number * 3, starts=starts)
        switch = check_switch(log, after, in_use=())
        assert [stream.end for stream in after.streams] == [stream.end for stream in logs(count).streams]
        assert {stream.start_offset for stream in switch.opened} <= {10 * number}
        assert resize(after, count) == ()
        log = after
    with pytest.raises(MapError, match="at least one stream"):
        resize(log, 0)
