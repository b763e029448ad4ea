"""Events and numbers that are read off two records of a migration."""

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from headgate.migration.core.events import MigrationEvent, events_between, result_of
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.core.state import MigrationsState, MigrationTerm
from headgate.migration.core.transitions import Cause, MigrationSignal, apply
from headgate.migration.shell.metrics import MigrationMetrics
from headgate.records.base import Fact
from headgate.records.migration import (
    MigrationKey,
    MigrationRecorded,
    MigrationState,
    MigrationStrategy,
    StageTime,
)
from headgate.records.migration_standing import percent_of_stage, seconds_in_stages, waits_for
from support.migration_records import recorded

SPEC = written(MigrationSpec(statement="ALTER TABLE t ADD c int", database="shop", strategy=MigrationStrategy.ONLINE))


def queued(**more: Any) -> MigrationRecorded:
    return recorded(SPEC, state=MigrationState.QUEUED, attempt=0, **more)


def played(*signals: tuple[MigrationSignal, dict[str, Any]]) -> list[list[MigrationEvent]]:
    """The events of each signal, a second after the one before."""
    record, found = queued(), []
    for second, (signal, facts) in enumerate(signals, start=1):
        after = apply(record, signal, Cause(owner_rev=1, now_ms=second * 1_000, **facts))
        found.append(events_between(record, after))
        record = after
    return found


def names(events: list[list[MigrationEvent]]) -> list[list[str]]:
    return [[event.name.removeprefix("migration_") for event in each] for each in events]


def test_a_migration_tells_each_stage_until_it_is_complete() -> None:
    found = played(
        (MigrationSignal.ADMIT, {}),
        (MigrationSignal.START, {}),
        (MigrationSignal.PROGRESSED, {"stage": "copying", "throttle_reason": "an operator"}),
        (MigrationSignal.PROGRESSED, {"stage": "copying", "rows_copied": 5, "throttle_reason": "an operator: ratio 1"}),
        (MigrationSignal.PROGRESSED, {"stage": "ready to cut over", "is_ready_to_complete": True}),
        (MigrationSignal.CUT_OVER, {}),
        (MigrationSignal.CUTOVER_FAILED, {"message": "locked"}),
        (MigrationSignal.CUT_OVER, {}),
        (MigrationSignal.COMPLETED, {}),
    )
    assert names(found) == [
        [],
        ["started"],
        ["stage", "throttled"],
        [],
        ["stage", "released"],
        ["stage"],
        ["stage", "cutover_failed"],
        ["stage"],
        ["cut_over", "complete"],
    ]
    assert found[2][0].facts == {"stage": "copying", "rows_copied": 0, "after": "starting", "seconds": 1.0}
    seconds = {"starting": 1.0, "copying": 2.0, "ready to cut over": 2.0, "cutting over": 2.0}
    assert found[-1][-1].facts["seconds"] == seconds


@pytest.mark.parametrize(
    ("message", "reason"), [("", {}), ("the server has rounded", {"reason": "the server has rounded"})]
)
def test_a_migration_that_is_complete_has_a_reason_only_if_there_is_one(message: str, reason: dict[str, str]) -> None:
    found = played(
        (MigrationSignal.ADMIT, {}),
        (MigrationSignal.START, {}),
        (MigrationSignal.CUT_OVER, {}),
        (MigrationSignal.COMPLETED, {"message": message}),
    )
    facts = found[-1][-1].facts
    assert {name: value for name, value in facts.items() if name == "reason"} == reason


def test_an_end_says_why_and_a_failure_is_told_apart() -> None:
    found = played(
        (MigrationSignal.ADMIT, {}),
        (MigrationSignal.START, {}),
        (MigrationSignal.STALE, {"message": "stale: no progress"}),
        (MigrationSignal.STOPPED, {}),
        (MigrationSignal.RETRY, {}),
        (MigrationSignal.CANCEL, {"message": "cancelled by ann"}),
    )
    assert names(found)[2:] == [["stage", "ending"], ["failed"], ["retried"], ["cancelled"]]
    assert [each[-1].is_failure for each in found[2:]] == [False, True, False, False]
    assert found[3][0].facts == {"reason": "stale: no progress", "result": "stale"}


def test_an_approval_is_told_with_its_user() -> None:
    waiting = queued(approval_required=True)
    waiting = msgspec.structs.replace(waiting, state=MigrationState.AWAITING_APPROVAL)
    after = apply(waiting, MigrationSignal.APPROVE, Cause(owner_rev=1, now_ms=0, approved_by="bob@host"))
    assert events_between(waiting, after) == [MigrationEvent("migration_approved", {"by": "bob@host"})]


def test_only_a_new_migration_is_told_as_submitted() -> None:
    assert [event.name for event in events_between(None, queued())] == ["migration_submitted"]
    assert events_between(None, recorded(SPEC)) == []


def test_times_of_another_attempt_are_not_added() -> None:
    left = recorded(SPEC, state=MigrationState.FAILED, stages=(StageTime("copying", 5_000),))
    assert apply(left, MigrationSignal.RETRY, Cause(owner_rev=1, now_ms=0)).stages == ()


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"state": MigrationState.QUEUED, "launch_postponed": True}, "its launch: `headgate migration launch m1`"),
        ({"state": MigrationState.QUEUED}, "its turn"),
        (
            {"state": MigrationState.AWAITING_APPROVAL, "submitted_by": "ann@host"},
            "the approval of another user than ann@host: `headgate migration approve m1`",
        ),
        ({"stage": "copying"}, ""),
        ({"stage": "copying", "throttle_reason": "a replica", "throttled_ms": 1_000}, "a replica (for 9 s)"),
        ({"stage": "copying", "throttle_ratio": 0.5}, "an operator: ratio 0.5"),
        ({"ending": MigrationState.CANCELLED, "throttle_reason": "a replica"}, "the end of all that writes for it"),
        ({"is_ready_to_complete": True, "completion_postponed": True}, "its completion: `headgate migration comp"),
        ({"is_ready_to_complete": True, "cutover_after_ms": 15_000}, "the next try to cut over, in 5 s"),
        ({"is_ready_to_complete": True}, "its cut-over"),
        ({"ending": MigrationState.CANCELLED}, "the end of all that writes for it, then it is cancelled"),
        ({"state": MigrationState.COMPLETE}, ""),
    ],
)
def test_what_it_waits_for_is_said(facts: dict[str, Any], wanted: str) -> None:
    found = waits_for("m1", recorded(SPEC, **facts), 10_000)
    assert found.startswith(wanted)
    assert bool(found) == bool(wanted)


def test_percent_and_times_are_of_the_stage() -> None:
    record = recorded(SPEC, stage="comparing", stage_percent=40, stage_ms=2_000, stages=(StageTime("copying", 7_000),))
    assert percent_of_stage(record) == 40
    assert percent_of_stage(recorded(SPEC, stage="starting")) is None
    assert seconds_in_stages(record, 5_000) == {"copying": 7.0, "comparing": 3.0}


def test_metrics_show_pending_migrations_and_count_ends() -> None:
    registry = CollectorRegistry()
    metrics = MigrationMetrics(registry)
    state = MigrationsState()
    state.term = MigrationTerm(1)
    state.migrations["m1"] = recorded(SPEC, stage="copying", rows_copied=5, table_rows=10, stage_percent=50)
    metrics.stands(0, state)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"headgate_{name}", labels)

    assert value("migration_rows_copied", migration="m1") == 5
    assert value("migration_stage_percent", migration="m1", stage="copying") == 50
    assert value("migrations", state="running") == 1
    assert value("migration_ended_total", result="failed") == 0
    failed = recorded(SPEC, state=MigrationState.FAILED, message="why")
    metrics.committed(0, [Fact(MigrationKey("m1"), failed), Fact(MigrationKey("m1"), failed)])
    assert value("migration_ended_total", result="failed") == 1
    metrics.stands(0, None)
    assert value("migration_rows_copied", migration="m1") is None


@pytest.mark.parametrize(
    "more",
    [{"state": MigrationState.READY, "ready_ms": 5}, {"state": MigrationState.CANCELLED, "ended_ms": 5}],
)
def test_what_is_seen_first_after_its_submission_tells_nothing(more: dict[str, Any]) -> None:
    assert events_between(None, msgspec.structs.replace(queued(), **more)) == []


def test_an_end_is_told_once_and_a_stage_of_unknown_beginning_without_its_time() -> None:
    ending = recorded(SPEC, ending=MigrationState.FAILED, stage="copying", message="stale: no progress")
    later = msgspec.structs.replace(ending, stage="ending")
    (stage,) = events_between(ending, later)
    assert stage.facts == {"stage": "ending", "rows_copied": 0}


def test_one_that_is_complete_without_a_cut_over_tells_of_none() -> None:
    found = played((MigrationSignal.ADMIT, {}), (MigrationSignal.CONCLUDE, {"message": "no change"}))
    assert names(found) == [[], ["complete"]]


def test_a_cancelled_one_is_not_stale_whatever_its_message_was() -> None:
    assert result_of(recorded(SPEC, state=MigrationState.CANCELLED, message="stale: no progress")) == "cancelled"
    assert result_of(recorded(SPEC, state=MigrationState.FAILED, message="stale: no progress")) == "stale"
