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
from headgate.records.migration import MigrationRecorded, MigrationState
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
