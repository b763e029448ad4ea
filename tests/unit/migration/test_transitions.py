"""The table of transitions: every pair has an entry, and what cannot be is an error that names the pair."""

from typing import Any

import pytest

from headgate.migration.core.transitions import (
    MORE_STAGES,
    STAGES_MAX,
    TRANSITIONS,
    Cause,
    MigrationAction,
    MigrationPhase,
    MigrationSignal,
    apply,
    phase,
)
from headgate.records.migration import Artifact, MigrationRecorded, MigrationState, StageTime
from headgate.records.migration_standing import CUTTING_OVER
from headgate.runtime.table import UnknownTransitionError

CAUSE = Cause(owner_rev=7, now_ms=1, message="why", throttle_reason="busy")


def record(at: MigrationPhase, **more: Any) -> MigrationRecorded:
    fields: dict[str, Any] = {
        "owner_rev": 1, "sequence": 1, "spec": "{}", "action": "alter", "table": "t", "is_immediate": False,
        "stage": "", "attempt": 1, "retries": 0, "ending": None, "owner_failed": False, "has_nothing_to_do": False,
        "launch_postponed": True, "completion_postponed": True, "is_ready_to_complete": False, "was_ready": False,
        "cutover_attempts": 0, "cutover_forced": False, "rows_copied": 0, "table_rows": 0, "eta_seconds": -1,
        "throttle_ratio": 0.0, "throttle_reason": "", "artifacts": (), "note": "", "message": "", "added_ms": 0,
        "ready_ms": 0, "started_ms": 0, "live_ms": 0, "ended_ms": 0,
    }  # fmt: skip
    if at is MigrationPhase.ENDING:
        fields["ending"] = MigrationState.FAILED
    state = MigrationState.RUNNING if at is MigrationPhase.ENDING else MigrationState(at.value)
    return MigrationRecorded(state=state, **(fields | more))


def test_every_pair_has_an_entry() -> None:
    assert set(TRANSITIONS) == {(at, signal) for at in MigrationPhase for signal in MigrationSignal}


@pytest.mark.parametrize(("at", "signal"), sorted(TRANSITIONS))
def test_a_pair_does_what_the_table_says(at: MigrationPhase, signal: MigrationSignal) -> None:
    before = record(at)
    assert phase(before) is at
    action = TRANSITIONS[at, signal]
    if action is MigrationAction.NEVER:
        with pytest.raises(UnknownTransitionError, match=f"signal {signal} in phase {at}"):
            apply(before, signal, CAUSE)
        return
    after = apply(before, signal, CAUSE)
    if action is MigrationAction.KEEP:
        assert after is before
    else:
        assert after != before
        assert after.owner_rev == 7


@pytest.mark.parametrize("signal", sorted(MigrationSignal))
def test_a_running_migration_ends_only_by_an_answer_of_the_database(signal: MigrationSignal) -> None:
    answers = {MigrationSignal.COMPLETED, MigrationSignal.REFUSED, MigrationSignal.STOPPED}
    for at in (MigrationPhase.RUNNING, MigrationPhase.ENDING):
        if TRANSITIONS[at, signal] is not MigrationAction.NEVER and signal not in answers:
            assert apply(record(at), signal, CAUSE).state is MigrationState.RUNNING


def test_what_is_terminal_is_left_by_a_retry_alone() -> None:
    for at in (MigrationPhase.COMPLETE, MigrationPhase.FAILED, MigrationPhase.CANCELLED):
        for signal in MigrationSignal:
            if TRANSITIONS[at, signal] is not MigrationAction.NEVER and signal is not MigrationSignal.RETRY:
                assert apply(record(at), signal, CAUSE).state.value == at.value


def test_a_stop_that_nobody_intended_is_an_error() -> None:
    broken = record(MigrationPhase.RUNNING, ending=None)
    with pytest.raises(UnknownTransitionError):
        apply(broken, MigrationSignal.STOPPED, CAUSE)


def moved(before: MigrationRecorded, stage: str, *, now_ms: int, is_live: bool = True) -> MigrationRecorded:
    """The record after a check has found it in that stage."""
    return apply(before, MigrationSignal.PROGRESSED, Cause(owner_rev=7, now_ms=now_ms, stage=stage, is_live=is_live))


def test_times_of_stages_are_added_up_and_those_beyond_the_limit_together() -> None:
    now = record(MigrationPhase.RUNNING, stage="s0", stage_ms=1)
    names = [f"s{number}" for number in range(1, STAGES_MAX + 3)]
    for number, name in enumerate([*names, "s0", "end"], start=1):
        now = moved(now, name, now_ms=1 + 10 * number)
    assert {each.stage: each.ms for each in now.stages} == {
        "s0": 20,
        **{f"s{number}": 10 for number in range(1, STAGES_MAX)},
        MORE_STAGES: 30,
    }


def test_a_check_that_finds_no_progress_is_no_sign_of_life() -> None:
    before = record(MigrationPhase.RUNNING, stage="copying", live_ms=5)
    assert moved(before, "copying", now_ms=9, is_live=False).live_ms == 5
    assert moved(before, "copying", now_ms=9).live_ms == 9


def given(before: MigrationRecorded, signal: MigrationSignal, **cause: Any) -> MigrationRecorded:
    """The record that the signal leaves; its owner is one that has not written it before."""
    return apply(before, signal, Cause(**{"owner_rev": 7, "now_ms": 50} | cause))


@pytest.mark.parametrize(
    ("signal", "done"),
    [
        (MigrationSignal.LAUNCH, {"launch_postponed": False}),
        (MigrationSignal.COMPLETE, {"completion_postponed": False}),
        (MigrationSignal.FORCE_CUTOVER, {"cutover_forced": True}),
    ],
)
def test_what_an_operator_has_already_asked_for_is_not_recorded_again(
    signal: MigrationSignal, done: dict[str, bool]
) -> None:
    before = record(MigrationPhase.QUEUED, **done)
    assert given(before, signal) is before


@pytest.mark.parametrize(
    ("at", "signal", "standing", "cause"),
    [
        (MigrationPhase.RUNNING, MigrationSignal.CUT_OVER, {"stage": CUTTING_OVER}, {}),
        (MigrationPhase.ENDING, MigrationSignal.CANCEL, {"ending": MigrationState.CANCELLED}, {}),
        (MigrationPhase.FAILED, MigrationSignal.CLEAN_UP_FAILED, {"throttle_reason": "a"}, {"throttle_reason": "a"}),
    ],
)
def test_what_stands_already_is_not_recorded_again(
    at: MigrationPhase, signal: MigrationSignal, standing: dict[str, Any], cause: dict[str, Any]
) -> None:
    before = record(at, **standing)
    assert given(before, signal, **cause) is before
    other = record(at)
    assert given(other, signal, **cause) != other


@pytest.mark.parametrize(
    ("known", "first"),
    [
        ({"approval_required": True}, MigrationState.AWAITING_APPROVAL),
        ({"approval_required": True, "approved_by": "ann"}, MigrationState.QUEUED),
        ({}, MigrationState.QUEUED),
    ],
)
def test_a_retry_waits_for_an_approval_that_was_never_given(known: dict[str, Any], first: MigrationState) -> None:
    assert given(record(MigrationPhase.FAILED, **known), MigrationSignal.RETRY).state is first


@pytest.mark.parametrize(
    ("known", "ready", "since"),
    [
        ({"completion_postponed": False}, True, 50),
        ({"completion_postponed": False}, False, 0),
        ({"completion_postponed": False, "is_ready_to_complete": True}, False, 50),
        ({"completion_postponed": True}, True, 0),
        ({"completion_postponed": False, "waiting_ms": 20}, True, 20),
        ({"completion_postponed": True, "waiting_ms": 20}, False, 20),
    ],
)
def test_a_cut_over_waits_since_nothing_else_was_missing(known: dict[str, Any], ready: bool, since: int) -> None:
    before = record(MigrationPhase.RUNNING, **known)
    assert given(before, MigrationSignal.PROGRESSED, is_ready_to_complete=ready).waiting_ms == since


@pytest.mark.parametrize(("is_ready", "since"), [(True, 50), (False, 0)])
def test_a_cut_over_that_is_allowed_waits_from_then_on(is_ready: bool, since: int) -> None:
    before = record(MigrationPhase.RUNNING, is_ready_to_complete=is_ready)
    assert given(before, MigrationSignal.COMPLETE).waiting_ms == since


@pytest.mark.parametrize(("was", "is_now", "found"), [(False, False, False), (True, False, True), (False, True, True)])
def test_what_was_ready_once_stays_so(was: bool, is_now: bool, found: bool) -> None:
    before = record(MigrationPhase.RUNNING, was_ready=was)
    assert given(before, MigrationSignal.PROGRESSED, is_ready_to_complete=is_now).was_ready is found


@pytest.mark.parametrize(
    ("known", "reason", "since"),
    [
        ({}, "busy", 50),
        ({"throttle_reason": "lag", "throttled_ms": 20}, "busy", 20),
        ({"throttle_reason": "lag", "throttled_ms": 20}, "", 0),
    ],
)
def test_what_is_held_up_is_so_since_it_was_first(known: dict[str, Any], reason: str, since: int) -> None:
    found = given(record(MigrationPhase.RUNNING, **known), MigrationSignal.PROGRESSED, throttle_reason=reason)
    assert (found.throttle_reason, found.throttled_ms) == (reason, since)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (MigrationPhase.QUEUED, "busy"),
        (MigrationPhase.READY, "busy"),
        (MigrationPhase.FAILED, ""),
        (MigrationPhase.COMPLETE, ""),
    ],
)
def test_a_clean_up_ends_the_reason_of_what_has_ended(at: MigrationPhase, reason: str) -> None:
    before = record(at, throttle_reason="busy", throttled_ms=20)
    assert given(before, MigrationSignal.CLEANED_UP).throttle_reason == reason


OLD, NEW = (Artifact("table", "old"),), (Artifact("table", "new"),)


@pytest.mark.parametrize(
    ("signal", "cause", "artifacts", "note"),
    [
        (MigrationSignal.BROKE, {}, OLD, "was"),
        (MigrationSignal.BROKE, {"artifacts": NEW, "note": "is"}, NEW, "is"),
        (MigrationSignal.STALE, {}, OLD, "was"),
        (MigrationSignal.COMPLETED, {}, (), "was"),
        (MigrationSignal.COMPLETED, {"artifacts": NEW, "note": "is"}, NEW, "is"),
    ],
)
def test_what_a_migration_leaves_and_notes(
    signal: MigrationSignal, cause: dict[str, Any], artifacts: tuple[Artifact, ...], note: str
) -> None:
    found = given(record(MigrationPhase.RUNNING, artifacts=OLD, note="was"), signal, **cause)
    assert (found.artifacts, found.note) == (artifacts, note)


@pytest.mark.parametrize(
    ("known", "stages"),
    [
        ({"stage": "copying", "stage_ms": 20}, (StageTime("copying", 30),)),
        ({"stage": "copying", "stage_ms": 60}, (StageTime("copying", 0),)),
        ({"stage": "copying", "stage_ms": 0}, ()),
        ({"stage": "", "stage_ms": 20}, ()),
    ],
)
def test_the_time_of_a_stage_is_known_if_its_beginning_is(known: dict[str, Any], stages: tuple[StageTime, ...]) -> None:
    found = given(record(MigrationPhase.RUNNING, **known), MigrationSignal.PROGRESSED, stage="next")
    assert (found.stages, found.stage_ms) == (stages, 50)


def test_a_migration_that_has_ended_is_in_no_stage() -> None:
    ended = given(record(MigrationPhase.RUNNING, stage="copying", stage_ms=20), MigrationSignal.COMPLETED)
    assert (ended.stage, ended.stage_ms) == ("", 0)


def test_a_stage_that_goes_on_has_begun_when_it_began() -> None:
    before = record(MigrationPhase.RUNNING, stage="copying", stage_ms=20)
    found = given(before, MigrationSignal.PROGRESSED, stage="copying", eta_seconds=9, stage_percent=8)
    assert (found.stage_ms, found.stages) == (20, ())


@pytest.mark.parametrize("state", sorted(set(MigrationState) - {MigrationState.RUNNING}))
def test_only_what_runs_can_be_ending(state: MigrationState) -> None:
    found = record(MigrationPhase(state.value), ending=MigrationState.FAILED)
    assert phase(found) == MigrationPhase(state.value)
