"""The transition table: every pair is decided, every record that comes out has the shape of its state."""

from itertools import count

import pytest
from msgspec.structs import replace

from headgate.coordinator.core.replication import (
    ACTIONS,
    TRANSITIONS,
    Cause,
    SpanAction,
    SpanPhase,
    SpanSignal,
    apply,
    phase,
)
from headgate.records.control import Assignment, Epoch, OutcomeStatus, ReplicationState, SpanDispatched
from headgate.runtime.table import UnknownTransitionError
from support import build

PRIMARY = Assignment("a1", "s1", Epoch(5, 1))
SECONDARY = Assignment("a2", "s2", Epoch(5, 2))
PAIRS = [(p, s) for p in SpanPhase for s in SpanSignal]


def record(of: SpanPhase) -> SpanDispatched:
    shapes = {
        SpanPhase.ABSENT: (ReplicationState.ABSENT, None, None),
        SpanPhase.PREPARE: (ReplicationState.PREPARE, PRIMARY, SECONDARY),
        SpanPhase.HANDOVER: (ReplicationState.COMMIT, PRIMARY, SECONDARY),
        SpanPhase.COMMIT: (ReplicationState.COMMIT, PRIMARY, None),
        SpanPhase.REPLICATING: (ReplicationState.REPLICATING, PRIMARY, None),
        SpanPhase.REMOVING: (ReplicationState.REMOVING, PRIMARY, None),
        SpanPhase.ORPHANED: (ReplicationState.REMOVING, None, None),
    }
    state, primary, secondary = shapes[of]
    request = "m1" if of in (SpanPhase.PREPARE, SpanPhase.HANDOVER, SpanPhase.COMMIT) else None
    return build.span_dispatched(
        owner_rev=5,
        state=state,
        primary=primary,
        secondary=secondary,
        moving_request=request,
        failures=1,
        last_error="sink_unavailable: away",
    )


def cause() -> Cause:
    numbers = count(1)
    return Cause(
        issue=lambda: Epoch(7, next(numbers)),
        owner_rev=7,
        reason="because",
        target=("a3", "s3"),
        request="m2",
        error_code="sink_unavailable",
        error="still away",
    )


def test_every_pair_is_in_the_table_and_every_action_is_used() -> None:
    assert sorted(TRANSITIONS) == sorted(PAIRS)
    assert set(TRANSITIONS.values()) == set(SpanAction)
    assert set(ACTIONS) == set(SpanAction) - {SpanAction.NEVER}


@pytest.mark.parametrize(("of", "signal"), PAIRS, ids=str)
def test_every_pair_gives_a_well_formed_record_or_the_typed_error(of: SpanPhase, signal: SpanSignal) -> None:
    before = record(of)
    if TRANSITIONS[of, signal] is SpanAction.NEVER:
        with pytest.raises(UnknownTransitionError, match=f"signal {signal} in phase {of}"):
            apply(before, signal, cause())
        return
    after = apply(before, signal, cause()).record
    assert record(phase(after)).state is after.state
    assert (after.primary is None) == (phase(after) in (SpanPhase.ABSENT, SpanPhase.ORPHANED))
    assert (after.secondary is not None) == (phase(after) in (SpanPhase.PREPARE, SpanPhase.HANDOVER))
    assert after == before or after.owner_rev == 7
    if after.sealed:
        assert phase(after) is SpanPhase.ABSENT


@pytest.mark.parametrize(("of", "signal"), PAIRS, ids=str)
def test_whoever_may_claim_for_the_first_time_does_so_under_a_new_epoch(of: SpanPhase, signal: SpanSignal) -> None:
    if TRANSITIONS[of, signal] is SpanAction.NEVER:
        return
    before = record(of)
    after = apply(before, signal, cause()).record
    if after.primary is not None and after.primary != before.primary:
        assert after.primary.epoch > max(PRIMARY.epoch, SECONDARY.epoch)
    if after.secondary is not None and after.secondary != before.secondary:
        assert after.secondary.epoch.owner_rev == 7


@pytest.mark.parametrize(("of", "signal"), PAIRS, ids=str)
def test_a_move_that_ends_has_an_outcome_and_one_that_goes_on_has_none(of: SpanPhase, signal: SpanSignal) -> None:
    if TRANSITIONS[of, signal] is SpanAction.NEVER:
        return
    before = record(of)
    step = apply(before, signal, cause())
    ended = before.moving_request is not None and step.record.moving_request is None
    assert (step.request, step.status is not None) == (("m1", True) if ended else (None, False))


@pytest.mark.parametrize(
    "signal", [s for s in SpanSignal if TRANSITIONS[SpanPhase.REPLICATING, s] is not SpanAction.NEVER]
)
def test_only_a_seal_makes_a_span_sealed(signal: SpanSignal) -> None:
    step = apply(record(SpanPhase.REPLICATING), signal, cause())
    assert step.record.sealed == (signal is SpanSignal.PRIMARY_STOPPED)


def test_settled_move_says_where_it_arrived_and_what_happened_on_the_way() -> None:
    smooth = apply(
        replace(record(SpanPhase.COMMIT), failures=0, last_error=None), SpanSignal.PRIMARY_REPLICATING, cause()
    )
    assert (smooth.status, smooth.reason) == (OutcomeStatus.DONE, "replicating on a1")
    rough = apply(record(SpanPhase.COMMIT), SpanSignal.PRIMARY_REPLICATING, cause())
    assert (rough.status, rough.reason) == (OutcomeStatus.DONE, "replicating on a1; on the way: sink_unavailable: away")


@pytest.mark.parametrize("code", ["sink_conflict", "sink_unavailable"])
def test_no_failure_while_closing_counts_as_sealed(code: str) -> None:
    failed = apply(record(SpanPhase.REMOVING), SpanSignal.PRIMARY_FAILED, replace(cause(), error_code=code))
    assert (phase(failed.record), failed.record.sealed, failed.record.failures) == (SpanPhase.ORPHANED, False, 2)


def test_a_role_without_a_target_is_an_error() -> None:
    with pytest.raises(UnknownTransitionError, match="without a target"):
        apply(record(SpanPhase.ABSENT), SpanSignal.ADD, replace(cause(), target=None))
