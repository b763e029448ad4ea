"""Who gets what: least load, bounded capacity, the undetermined rule, leaving a stopping agent."""

from headgate.coordinator.schedulers import balance, basic, drain, rebalance
from headgate.coordinator.schedulers.capacity import (
    MOVING_PER_FEED_MAX,
    STARTING_PER_AGENT_MAX,
    Capacity,
    FeedQuota,
    SessionCapacity,
)
from headgate.records.keys import SpanKey

A, B, C = ("a", "s"), ("b", "s"), ("c", "s")


def keys(number: int) -> list[SpanKey]:
    return [SpanKey("f", f"t{n:03}") for n in range(number)]


def test_the_least_loaded_gets_the_next_and_ties_go_by_name() -> None:
    capacity = Capacity([SessionCapacity(A, 2, 0, 9), SessionCapacity(B, 0, 0, 9), SessionCapacity(C, 1, 0, 9)])
    got = [session for _, session in basic.place(keys(5), capacity, lambda _: [], lambda _: ())]
    assert got == [B, B, C, A, B]


def test_neither_capacity_nor_the_starting_limit_is_exceeded() -> None:
    capacity = Capacity(
        [
            SessionCapacity(A, 7, 0, 9),
            SessionCapacity(B, 0, STARTING_PER_AGENT_MAX - 1, 1000),
            SessionCapacity(C, 0, 0, 0),
        ]
    )
    got = [session for _, session in basic.place(keys(9), capacity, lambda _: [], lambda _: ())]
    assert sorted(got) == [A, A, B]
    assert not capacity


def test_a_span_with_a_writer_goes_to_nobody_else() -> None:
    capacity = Capacity([SessionCapacity(A, 0, 0, 9), SessionCapacity(B, 5, 0, 9)])
    writers = {keys(3)[0]: [B], keys(3)[1]: [A, B]}
    got = dict(basic.place(keys(3), capacity, lambda key: writers.get(key, []), lambda _: ()))
    assert got == {keys(3)[0]: B, keys(3)[2]: A}


def quota(moving: int = 0) -> FeedQuota:
    return FeedQuota(lambda _: moving)


def test_spans_of_a_stopping_agent_leave_while_there_are_seats() -> None:
    first, second, third = keys(3)
    capacity = Capacity([SessionCapacity(B, 0, 0, 1)])
    got = list(drain.leave([A], lambda _: [first, second, third], lambda key: key != first, capacity, quota()))
    assert got == [(second, B)]
    assert (
        list(drain.leave([A], lambda _: [first], lambda _: True, Capacity([SessionCapacity(A, 1, 0, 9)]), quota()))
        == []
    )


def test_a_feed_has_so_many_moves_at_a_time() -> None:
    capacity = Capacity([SessionCapacity(B, 0, 0, 1000)])
    left = 3
    got = list(drain.leave([A], lambda _: keys(9), lambda _: True, capacity, quota(MOVING_PER_FEED_MAX - left)))
    assert got == [(key, B) for key in keys(left)]


def test_rebalance_makes_the_fewest_moves() -> None:
    held = [*((key, A) for key in keys(6)[:5]), (keys(6)[5], B)]
    assert rebalance.spread(held, [A, B, C]) == [(keys(6)[2], B), (keys(6)[3], C), (keys(6)[4], C)]
    even = [(keys(3)[0], A), (keys(3)[1], B), (keys(3)[2], B)]
    assert rebalance.spread(even, [A, B]) == []
    assert rebalance.spread(even, []) == []


MIB = 1_048_576.0


def test_within_the_band_or_with_little_to_do_nobody_is_too_busy() -> None:
    assert balance.hottest({A: 120 * MIB, B: 100 * MIB, C: 90 * MIB}) is None
    assert balance.hottest({A: 200 * MIB, B: 50 * MIB, C: 50 * MIB}) == A
    assert balance.hottest({A: 1000.0, B: 0.0}) is None
    assert balance.hottest({A: 200 * MIB}) is None


def test_a_move_has_to_bring_two_agents_closer() -> None:
    one, two, three = keys(3)
    loads = {A: 100 * MIB, B: 0.0}
    assert balance.relieve(A, loads, {one: 100 * MIB}) == []
    assert balance.relieve(A, loads, {one: 60 * MIB, two: 39 * MIB, three: MIB}) == [(one, B)]
    assert balance.relieve(A, loads, dict.fromkeys(keys(100), MIB)) == []
    assert len(balance.relieve(A, loads, dict.fromkeys(keys(16), 6 * MIB))) == balance.MOVES_PER_ROUND_MAX
