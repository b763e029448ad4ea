"""A submission that needs an approval waits for one only if one can be given to it."""

import re
from typing import Any

import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.migration.core.approvals import LEVEL
from headgate.migration.core.effects import Examined, ExamineMigration
from headgate.migration.core.machine import MIGRATIONS
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.core.state import LEVEL_FIRST, MigrationsState
from headgate.records.control import OutcomeStatus
from headgate.records.migration import (
    MigrationKey,
    MigrationOutcomeKey,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationState,
    MigrationStrategy,
)
from headgate.runtime.machine import Arrived, EffectFinished, Now, TermBegan

NOW = Now(0.0, 1)
REQUEST = MigrationRequestKey("r1")
SPEC = MigrationSpec(statement="ALTER TABLE t ADD c int", database="db", strategy=MigrationStrategy.ONLINE)


def examined(*, by: str, level: int, needs_approval: bool) -> dict[Any, Any]:
    """What is decided when the database has answered about a submission, by key."""
    state: MigrationsState = MIGRATIONS.new_state(0)
    state.level = level
    MIGRATIONS.decide(state, TermBegan(7), NOW)
    requested = MigrationRequested(MigrationRequestKind.SUBMIT, "m1", written(SPEC), None, None, by, 1)
    MIGRATIONS.evolve(state, REQUEST, requested, 5)
    arrived = Arrived(Delivery(Partition(REQUEST.topic, 0), 5, REQUEST, requested))
    (examine,) = [
        effect for effect in MIGRATIONS.decide(state, arrived, NOW).effects if isinstance(effect, ExamineMigration)
    ]
    answer = Examined("alter", "public.t", "s1", is_immediate=False, needs_approval=needs_approval)
    return {fact.key: fact.value for fact in MIGRATIONS.decide(state, EffectFinished(examine, answer), NOW).facts}


def test_it_waits_for_another_user() -> None:
    found = examined(by="ann@host (pid 7)", level=LEVEL, needs_approval=True)
    assert found[MigrationKey("m1")].state is MigrationState.AWAITING_APPROVAL
    assert found[MigrationOutcomeKey("r1")].status is OutcomeStatus.DONE


@pytest.mark.parametrize(
    ("by", "level", "why"),
    [
        ("", LEVEL, "the submission does not name its user"),
        ("@host (pid 7)", LEVEL, "the submission does not name its user"),
        ("ann", LEVEL_FIRST, f"waits for the upgrade of all processes: .* level {LEVEL_FIRST}, this needs {LEVEL}"),
    ],
)
def test_where_none_can_be_given_it_is_refused(by: str, level: int, why: str) -> None:
    found = examined(by=by, level=level, needs_approval=True)
    assert set(found) == {MigrationOutcomeKey("r1")}, "nothing is queued"
    outcome = found[MigrationOutcomeKey("r1")]
    assert outcome.status is OutcomeStatus.REFUSED
    assert re.search(why, outcome.reason), outcome.reason


@pytest.mark.parametrize("level", [LEVEL_FIRST, LEVEL])
def test_one_that_needs_none_is_queued_whoever_submits_it(level: int) -> None:
    found = examined(by="", level=level, needs_approval=False)
    assert found[MigrationKey("m1")].state is MigrationState.QUEUED
    assert found[MigrationOutcomeKey("r1")].reason == "m1: alter of public.t is queued"
