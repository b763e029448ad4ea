"""A draft: what is decided is true at once, once per key, and stands on the log in the order that readers need."""

import pytest

from headgate.records.base import Fact, Key
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.fitting import TEXT_LENGTH_MAX
from headgate.records.keys import OutcomeKey, SpanKey
from headgate.runtime.draft import Draft, timer_name
from headgate.runtime.machine import CancelTimer, Now, SetTimer

A, B, C = OutcomeKey("a"), OutcomeKey("b"), OutcomeKey("c")
OLD, NEW = (RequestSettled(1, OutcomeStatus.DONE, reason, 1) for reason in ("old", "new"))


class Term:
    owner_rev = 7


@pytest.fixture
def draft() -> Draft[None, Term]:
    return Draft(None, Term(), Now(0.0, 5))


def keys(draft: Draft[None, Term]) -> list[tuple[Key, bool]]:
    return [(fact.key, fact.value is not None) for fact in draft.decision().facts]


def test_what_is_decided_is_laid_over_the_state(draft: Draft[None, Term]) -> None:
    assert draft.decided(A, OLD) is OLD
    assert not draft.is_touched(A)
    draft.put(A, NEW)
    assert draft.decided(A, OLD) is NEW
    draft.put(A, None)
    assert draft.decided(A, OLD) is None
    draft.delete(B)
    assert draft.decided(B, OLD) is None
    assert draft.is_touched(A)
    assert draft.is_touched(B)


def test_a_record_keeps_its_place_unless_it_is_put_last_and_deletions_are_behind_all(draft: Draft[None, Term]) -> None:
    draft.delete(C)
    for key in (A, B):
        draft.put(key, OLD)
    draft.put(A, NEW)
    assert keys(draft) == [(A, True), (B, True), (C, False)]
    draft.put_last(A, NEW)
    assert keys(draft) == [(B, True), (A, True), (C, False)]
    draft.delete(B)
    draft.put(C, NEW)
    assert keys(draft) == [(A, True), (C, True), (B, False)]


def test_a_record_is_fitted_before_anybody_adopts_it(draft: Draft[None, Term]) -> None:
    draft.put_outcome(A, OutcomeStatus.FAILED, "x" * (2 * TEXT_LENGTH_MAX))
    found = draft.decided(A, None)
    assert found is not None
    assert len(found.reason) == TEXT_LENGTH_MAX
    assert (found.owner_rev, found.settled_ms) == (7, 5)
    assert draft.decision().facts == (Fact(A, found),)


def test_effects_and_timers_keep_their_order(draft: Draft[None, Term]) -> None:
    draft.add_effect("first")
    draft.set_timer("retry", "t", 2.0)
    draft.cancel_timer("retry", "t")
    assert draft.decision().effects == ("first", SetTimer("retry/t", 2.0), CancelTimer("retry/t"))


@pytest.mark.parametrize(
    ("subject", "name"),
    [("", "tick"), (0, "tick/0"), ("t", "tick/t"), ((3, "s"), "tick/3/s"), (SpanKey("f", "t"), "tick/f/t")],
)
def test_timers_are_named_by_their_subject(subject: object, name: str) -> None:
    assert timer_name("tick", subject) == name
