"""What the owner answers to requests about timestamp sets, one decision at a time."""

import pytest

from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.state import GenerationState, evolve, new_state
from headgate.generation.core.term import GenerationTerm
from headgate.generation.timestamps.core.timestamp_publishing import heal
from headgate.generation.timestamps.core.timestamp_sets import (
    RING_DELAY_MS_MAX,
    RING_DELAY_MS_MIN,
    answer,
    fail_check,
)
from headgate.records.control import OutcomeStatus
from headgate.records.generation import GenerationOutcomeKey
from headgate.records.timestamps import (
    RingKey,
    RingNode,
    RingRecorded,
    TimestampGeneration,
    TimestampSetKey,
    TimestampSetRecorded,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from headgate.runtime.machine import Now

NODES = (RingNode("a", 1, 12, (0, 1 << 60)),)
MORE = (*NODES, RingNode("b", 1, 12, (1 << 61,)))
KEY = TimestampsRequestKey("clocks", "r")
OUTCOME = GenerationOutcomeKey("clocks", "r")
GENERATION = TimestampGeneration(1_000, 1, None, (), "")


def draft_of(state: GenerationState) -> GenerationDraft:
    return GenerationDraft(state, GenerationTerm(owner_rev=1, began=0.0), Now(5.0, 1_000_000))


def known(*, with_ring: bool = True) -> GenerationState:
    """One set, of one generation."""
    state = new_state(0)
    evolve(state, TimestampSetKey("clocks"), TimestampSetRecorded(1, 2_000, 0, (GENERATION,)), 0)
    if with_ring:
        evolve(state, RingKey("clocks", 1_000), RingRecorded(1, NODES), 1)
    return state


def request(kind: TimestampsRequestKind, nodes: tuple[RingNode, ...] = (), *, delay_ms: int = 0) -> TimestampsRequested:
    return TimestampsRequested(kind, nodes, 0, delay_ms, 0, "test", 0)


def settled(draft: GenerationDraft) -> tuple[OutcomeStatus, str]:
    found = draft.outcome(OUTCOME)
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize(
    ("delay_ms", "status"),
    [
        (0, OutcomeStatus.ACCEPTED),
        (RING_DELAY_MS_MIN - 1, OutcomeStatus.REFUSED),
        (RING_DELAY_MS_MIN, OutcomeStatus.ACCEPTED),
        (RING_DELAY_MS_MAX, OutcomeStatus.ACCEPTED),
        (RING_DELAY_MS_MAX + 1, OutcomeStatus.REFUSED),
    ],
)
def test_a_ring_delay_is_none_or_within_its_bounds(delay_ms: int, status: OutcomeStatus) -> None:
    draft = draft_of(new_state(0))
    answer(draft, KEY, request(TimestampsRequestKind.CREATE, NODES, delay_ms=delay_ms))
    assert settled(draft)[0] is status


def test_a_request_that_is_settled_is_not_answered_again_and_one_that_waits_is() -> None:
    for before, is_answered in ((OutcomeStatus.DONE, False), (OutcomeStatus.ACCEPTED, True)):
        draft = draft_of(new_state(0))
        draft.settle(OUTCOME, before, "before")
        answer(draft, KEY, request(TimestampsRequestKind.CREATE, NODES))
        assert (settled(draft) != (before, "before")) is is_answered


@pytest.mark.parametrize(("with_ring", "had"), [(True, 2), (False, 0)])
def test_a_switch_says_how_many_tokens_the_ring_before_had(with_ring: bool, had: int) -> None:
    draft = draft_of(known(with_ring=with_ring))
    answer(draft, KEY, request(TimestampsRequestKind.SWITCH, MORE))
    record = draft.timestamp_set("clocks")
    assert record is not None
    assert record.generations[-1].reason == f"switch by test: a ring of 3 tokens after one of {had}"


def test_a_lost_ring_is_not_made_up_and_one_that_is_there_is_written_again() -> None:
    lost, there = draft_of(known(with_ring=False)), draft_of(known())
    for draft in (lost, there):
        heal(draft, "clocks", GENERATION, RingKey("clocks", 1_000))
    assert not lost.is_touched(RingKey("clocks", 1_000))
    assert there.is_touched(RingKey("clocks", 1_000))


def test_rows_that_could_not_be_read_are_told_to_whoever_waits_even_if_the_set_is_gone() -> None:
    state = known()
    evolve(state, KEY, request(TimestampsRequestKind.REPAIR), 2)
    draft = draft_of(state)
    draft.settle(OUTCOME, OutcomeStatus.ACCEPTED, "looking at every row")
    fail_check(draft, "clocks", "no answer")
    assert settled(draft) == (OutcomeStatus.FAILED, "the rows could not be read: no answer")
    fail_check(draft_of(new_state(0)), "clocks", "no answer")
