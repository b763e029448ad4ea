"""Who gets what: least load, bounded seats, the undetermined rule, leaving a stopping agent."""

from headgate.coordinator.schedulers import basic, move
from headgate.coordinator.schedulers.seats import STARTING_PER_AGENT_MAX, Seat, Seats
from headgate.records.keys import SpanKey

A, B, C = ("a", "s"), ("b", "s"), ("c", "s")


def keys(number: int) -> list[SpanKey]:
    return [SpanKey("f", f"t{n:03}") for n in range(number)]


def test_the_least_loaded_gets_the_next_and_ties_go_by_name() -> None:
    seats = Seats([Seat(A, 2, 0, 9), Seat(B, 0, 0, 9), Seat(C, 1, 0, 9)])
    got = [session for _, session in basic.place(keys(5), seats, lambda _: [])]
    assert got == [B, B, C, A, B]


def test_neither_capacity_nor_the_starting_limit_is_exceeded() -> None:
    seats = Seats([Seat(A, 7, 0, 9), Seat(B, 0, STARTING_PER_AGENT_MAX - 1, 1000), Seat(C, 0, 0, 0)])
    got = [session for _, session in basic.place(keys(9), seats, lambda _: [])]
    assert sorted(got) == [A, A, B]
    assert not seats


def test_a_span_with_a_writer_goes_to_nobody_else() -> None:
    seats = Seats([Seat(A, 0, 0, 9), Seat(B, 5, 0, 9)])
    writers = {keys(3)[0]: [B], keys(3)[1]: [A, B]}
    got = dict(basic.place(keys(3), seats, lambda key: writers.get(key, [])))
    assert got == {keys(3)[0]: B, keys(3)[2]: A}


def test_spans_of_a_stopping_agent_leave_while_there_are_seats() -> None:
    first, second, third = keys(3)
    seats = Seats([Seat(B, 0, 0, 1)])
    got = list(move.leave([A], lambda _: [first, second, third], lambda key: key != first, seats))
    assert got == [(second, B)]
    assert list(move.leave([A], lambda _: [first], lambda _: True, Seats([Seat(A, 1, 0, 9)]))) == []
