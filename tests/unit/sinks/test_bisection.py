"""What is left of a refused batch, with a sink that is a set of offsets it does not like."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.changes.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    Aside,
    ChangeBatch,
    ChangeRefusedError,
    Claim,
    ConstraintViolatedError,
    FeedIdentity,
    OffsetRange,
    QuarantineFullError,
    ValueRefusedError,
)


class FakeTrial:
    """Refuses ``bad`` (partition, offset) for good, and ``needs`` until what it needs has been applied."""

    def __init__(self, bad: set[tuple[int, int]], needs: dict[tuple[int, int], tuple[int, int]]) -> None:
        self.bad, self.needs = bad, needs
        self.applied: list[tuple[int, int]] = []
        self.attempts = 0

    def attempt(self, changes: list[Change]) -> Exception | None:
        self.attempts += 1
        places = [(change.partition, change.offset) for change in changes]
        there = {*self.applied, *places}
        for place in places:
            if place in self.bad or self.needs.get(place, place) not in there:
                return RuntimeError(str(place))
        self.applied += places
        return None

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        kind = ValueRefusedError if (change.partition, change.offset) in self.bad else ConstraintViolatedError
        return kind(str(error), change.partition, change.offset)


def batch(sizes: dict[int, int], aside: Aside | None = None) -> ChangeBatch:
    claim = Claim(FeedIdentity("c", "0-1", "shop"), "t", "topic", Epoch(1, 1), 0, dict.fromkeys(sizes, 0))
    changes = [
        Change(p, offset, Operation.UPSERT, {"id": offset}, {"id": offset}, None, 0)
        for p, size in sizes.items()
        for offset in range(size)
    ]
    return ChangeBatch(claim, {p: OffsetRange(0, size) for p, size in sizes.items()}, changes, aside)


def aside(most: int = 1000, *, patient: bool = True) -> Aside:
    return Aside(lambda _: None, most, patient)


@given(st.integers(1, 600), st.sets(st.integers(0, 599), max_size=6))
def test_all_but_the_bad_ones_are_applied_in_order_with_logarithmic_effort(size: int, bad: set[int]) -> None:
    bad = {offset for offset in bad if offset < size}
    trial = FakeTrial({(0, offset) for offset in bad}, {})
    found = bisect_batch(trial, batch({0: size}, aside()))
    assert [each.offset for each in found.refused] == sorted(bad)
    assert trial.applied == [(0, offset) for offset in range(size) if offset not in bad]
    assert found.ranges == {0: OffsetRange(0, size)}
    assert trial.attempts <= 1 + 2 * len(bad) * math.ceil(math.log2(size + 1))


@given(st.integers(2, 600), st.data())
def test_without_aside_it_ends_before_the_first_bad_one(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, size - 1))
    trial = FakeTrial({(0, first), (0, size - 1)}, {})
    assert bisect_batch(trial, batch({0: size})).ranges == {0: OffsetRange(0, first)}
    assert trial.applied == [(0, offset) for offset in range(first)]


def test_a_partition_waits_for_another_ones_change() -> None:
    trial = FakeTrial(set(), {(0, 2): (1, 3)})
    found = bisect_batch(trial, batch({0: 5, 1: 5}, aside()))
    assert (found.ranges, found.refused) == ({0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}, ())


def test_what_only_a_rule_between_rows_refuses_is_waited_for_and_kept_when_patience_ends() -> None:
    needs = {(0, 2): (9, 9), (1, 4): (0, 2)}
    found = bisect_batch(FakeTrial(set(), needs), batch({0: 5, 1: 5}, aside()))
    assert (found.ranges, found.refused) == ({0: OffsetRange(0, 2), 1: OffsetRange(0, 4)}, ())

    trial = FakeTrial(set(), needs)
    found = bisect_batch(trial, batch({0: 5, 1: 5}, aside(patient=False)))
    assert [(each.partition, each.offset) for each in found.refused] == [(0, 2), (1, 4)]
    assert found.ranges == {0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}
    assert len(trial.applied) == 8


def test_nothing_done_at_all_is_the_first_refusal() -> None:
    with pytest.raises(ValueRefusedError) as refused:
        bisect_batch(FakeTrial({(0, 0)}, {}), batch({0: 3}))
    assert refused.value.offset == 0


def test_beyond_what_may_be_kept_it_gives_up_at_once() -> None:
    trial = FakeTrial({(0, offset) for offset in range(1024)}, {})
    with pytest.raises(QuarantineFullError, match="quarantine_per_hour_max"):
        bisect_batch(trial, batch({0: 1024}, aside(most=4)))
    assert trial.attempts < 40
