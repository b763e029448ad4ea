"""What is left of a refused batch, with a sink that is a set of offsets it does not like."""

import math
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.formats.change import Change, Operation
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    ConstraintViolatedError,
    OffsetRange,
    Quarantine,
    QuarantineFullError,
    ValueRefusedError,
)
from support import build


class FakeTrial:
    """Refuses ``bad`` (partition, offset) for good, and ``needs`` until what it needs has been applied."""

    def __init__(self, bad: set[tuple[int, int]], needs: dict[tuple[int, int], tuple[int, int]]) -> None:
        self.bad, self.needs = bad, needs
        self.applied: list[tuple[int, int]] = []
        self.attempts = 0

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        self.attempts += 1
        changes = [change for part in parts for change in part]
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


def batch(sizes: dict[int, int], quarantine: Quarantine | None = None) -> ChangeBatch:
    claim = build.claim(table="t", start=dict.fromkeys(sizes, 0))
    changes = [
        Change(p, offset, Operation.UPSERT, {"id": offset}, {"id": offset}, None, 0)
        for p, size in sizes.items()
        for offset in range(size)
    ]
    return ChangeBatch(claim, {p: OffsetRange(0, size) for p, size in sizes.items()}, changes, quarantine)


def quarantine_of(most: int = 1000, *, patient: bool = True) -> Quarantine:
    return Quarantine(lambda _: None, most, patient)


@given(st.integers(1, 600), st.sets(st.integers(0, 599), max_size=6))
def test_all_but_the_bad_ones_are_applied_in_order_with_logarithmic_effort(size: int, bad: set[int]) -> None:
    bad = {offset for offset in bad if offset < size}
    trial = FakeTrial({(0, offset) for offset in bad}, {})
    found = bisect_batch(trial, batch({0: size}, quarantine_of()))
    assert [each.offset for each in found.refused] == sorted(bad)
    assert trial.applied == [(0, offset) for offset in range(size) if offset not in bad]
    assert found.ranges == {0: OffsetRange(0, size)}
    assert trial.attempts <= 1 + 2 * len(bad) * math.ceil(math.log2(size + 1))


@given(st.integers(2, 600), st.data())
def test_without_quarantine_it_ends_before_the_first_bad_one(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, size - 1))
    trial = FakeTrial({(0, first), (0, size - 1)}, {})
    assert bisect_batch(trial, batch({0: size})).ranges == {0: OffsetRange(0, first)}
    assert trial.applied == [(0, offset) for offset in range(first)]


def test_a_partition_waits_for_another_ones_change() -> None:
    trial = FakeTrial(set(), {(0, 2): (1, 3)})
    found = bisect_batch(trial, batch({0: 5, 1: 5}, quarantine_of()))
    assert (found.ranges, found.refused) == ({0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}, ())


def test_what_only_a_rule_between_rows_refuses_is_waited_for_and_kept_when_the_time_is_over() -> None:
    needs = {(0, 2): (9, 9), (1, 4): (0, 2)}
    found = bisect_batch(FakeTrial(set(), needs), batch({0: 5, 1: 5}, quarantine_of()))
    assert (found.ranges, found.refused) == ({0: OffsetRange(0, 2), 1: OffsetRange(0, 4)}, ())

    trial = FakeTrial(set(), needs)
    found = bisect_batch(trial, batch({0: 5, 1: 5}, quarantine_of(patient=False)))
    assert [(each.partition, each.offset) for each in found.refused] == [(0, 2), (1, 4)]
    assert found.ranges == {0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}
    assert len(trial.applied) == 8


def test_nothing_done_at_all_is_the_first_refusal() -> None:
    with pytest.raises(ValueRefusedError) as refused:
        bisect_batch(FakeTrial({(0, 0)}, {}), batch({0: 3}))
    assert refused.value.offset == 0


def test_only_named_changes_are_kept_and_the_next_bad_one_ends_the_prefix() -> None:
    trial = FakeTrial({(0, 3), (0, 7), (1, 2)}, {(0, 1): (9, 9)})
    only = frozenset({(0, 1), (0, 3)})
    named = Quarantine(lambda _: None, 2, patient=False, only=only)
    found = bisect_batch(trial, batch({0: 10, 1: 5}, named))
    assert [(each.partition, each.offset) for each in found.refused] == [(0, 1), (0, 3)]
    assert found.ranges == {0: OffsetRange(0, 7), 1: OffsetRange(0, 2)}
    assert trial.applied == [(0, 0), (1, 0), (1, 1), *((0, offset) for offset in (2, 4, 5, 6))]


def test_beyond_what_may_be_kept_it_gives_up_at_once() -> None:
    trial = FakeTrial({(0, offset) for offset in range(1024)}, {})
    with pytest.raises(QuarantineFullError, match="quarantine_per_hour_max"):
        bisect_batch(trial, batch({0: 1024}, quarantine_of(most=4)))
    assert trial.attempts < 40


# --- events of several changes ---------------------------------------------------------------------------------------


class FussyTrial:
    """Rows with a number each; a part whose last words have a forbidden number is refused, and leaves no trace."""

    def __init__(self, forbidden: set[int], *, at_once: bool = True) -> None:
        self.forbidden = forbidden
        self.at_once = at_once
        self.applied: list[Change] = []

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        if not self.at_once and any(len(part) > 1 for part in parts):
            return RuntimeError("several at once")
        changes = [change for part in parts for change in part]
        for change in changes:
            if change.key["id"] in self.forbidden:
                return RuntimeError(str(change.key))
        self.applied += changes
        return None

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        return ValueRefusedError(str(error), change.partition, change.offset)


@st.composite
def batches_of_events(draw: st.DrawFn) -> ChangeBatch:
    """Up to three partitions, events of one to four changes, gaps between offsets; each change has its own id."""
    numbers: Iterator[int] = iter(range(1_000))
    changes, ranges = [], {}
    for partition in range(draw(st.integers(1, 3))):
        offset = first = draw(st.integers(0, 3))
        for size in draw(st.lists(st.integers(1, 4), max_size=8)):
            for _ in range(size):
                row: dict[str, object] = {"id": next(numbers)}
                changes.append(Change(partition, offset, Operation.UPSERT, row, row, None, 0))
            offset += draw(st.integers(1, 3))
        ranges[partition] = OffsetRange(first, offset)
    claim = build.claim(table="t", start=dict.fromkeys(ranges, 0))
    return ChangeBatch(claim, ranges, changes)


@given(batches_of_events(), st.sets(st.integers(0, 40), max_size=6), st.booleans())
def test_what_is_applied_is_whole_events_a_prefix_per_partition_and_the_position_is_its_end(
    given_batch: ChangeBatch, forbidden: set[int], at_once: bool
) -> None:
    trial = FussyTrial(forbidden, at_once=at_once)
    try:
        ranges = bisect_batch(trial, given_batch).ranges
    except ValueRefusedError:
        assert trial.applied == [], "what nothing could be done with leaves nothing"
        return
    ends = {partition: span.next for partition, span in ranges.items()}
    wanted = [change for change in given_batch.changes if change.offset < ends[change.partition]]
    assert sorted(trial.applied, key=lambda change: change.partition) == wanted
    for partition, span in given_batch.ranges.items():
        behind = [
            change
            for change in given_batch.changes
            if (change.partition, change.offset) == (partition, ends[partition])
        ]
        assert ends[partition] == span.next or any(change.key["id"] in forbidden for change in behind)
    assert not given_batch.changes or ranges != {p: OffsetRange(s.expected, s.expected) for p, s in ranges.items()}


@given(batches_of_events(), st.sets(st.integers(0, 40), max_size=6))
def test_an_event_is_set_aside_as_a_whole_and_once(given_batch: ChangeBatch, forbidden: set[int]) -> None:
    trial = FussyTrial(forbidden)
    found = bisect_batch(trial, msgspec.structs.replace(given_batch, quarantine=quarantine_of()))
    bad = {(c.partition, c.offset) for c in given_batch.changes if c.key["id"] in forbidden}
    assert sorted((each.partition, each.offset) for each in found.refused) == sorted(bad)
    wanted = [change for change in given_batch.changes if (change.partition, change.offset) not in bad]
    assert sorted(trial.applied, key=lambda change: change.partition) == wanted
    assert found.ranges == given_batch.ranges


def test_half_an_event_that_could_be_applied_is_not() -> None:
    rows: list[dict[str, object]] = [{"id": 1}, {"id": 2}]
    changes = [Change(0, 0, Operation.UPSERT, row, row, None, 0) for row in rows]
    trial = FussyTrial({2})
    with pytest.raises(ValueRefusedError):
        bisect_batch(trial, msgspec.structs.replace(batch({0: 1}), changes=changes))
    assert trial.applied == []


def test_changes_of_an_event_that_are_refused_together_are_tried_one_after_the_other() -> None:
    rows: list[dict[str, object]] = [{"id": 1}, {"id": 2}]
    changes = [Change(0, 0, Operation.UPSERT, row, row, None, 0) for row in rows]
    trial = FussyTrial(set(), at_once=False)
    found = bisect_batch(trial, msgspec.structs.replace(batch({0: 1}), changes=changes))
    assert (trial.applied, found.ranges) == (changes, {0: OffsetRange(0, 1)})
