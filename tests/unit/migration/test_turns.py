"""Which migrations wait for which: each condition is met and missed once, all else equal."""

from typing import Any

import pytest

from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.core.turns import (
    broken_before,
    changing_before,
    held_off_by,
    is_same_database,
    pending_before,
)
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from headgate.records.migration_standing import PENDING
from support.migration_records import recorded

READY, RUNNING = MigrationState.READY, MigrationState.RUNNING
FAILED, CANCELLED = MigrationState.FAILED, MigrationState.CANCELLED

OF_RECORD = frozenset(MigrationRecorded.__struct_fields__)


def migration(**fields: Any) -> MigrationRecorded:
    """A running migration; each field is one of its record, or one of its spec."""
    given = {"statement": "ALTER TABLE items ADD c int", "database": "db", "strategy": MigrationStrategy.ONLINE}
    of_spec = {name: value for name, value in fields.items() if name not in OF_RECORD}
    of_record = {name: value for name, value in fields.items() if name in OF_RECORD}
    return recorded(written(MigrationSpec(**given | of_spec)), **{"server": "s1"} | of_record)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({}, {"database": "else"}, True),
        ({}, {"server": "s2"}, False),
        ({}, {"server": ""}, True),
        ({"server": ""}, {}, True),
        ({"server": ""}, {"database": "else"}, False),
        ({"server": ""}, {"server": ""}, True),
        ({"server": "", "database": ""}, {"server": "", "database": ""}, False),
    ],
)
def test_a_database_is_known_by_its_identity_and_in_old_records_by_its_name(
    one: dict[str, Any], other: dict[str, Any], is_same: bool
) -> None:
    assert is_same_database(migration(**one), migration(**other)) is is_same


@pytest.mark.parametrize(
    ("running", "proposed", "is_held_off"),
    [
        ({}, {}, True),
        ({"state": READY}, {}, False),
        ({"server": "s2"}, {}, False),
        ({}, {"table": "others"}, True),
        ({"allow_concurrent": True}, {}, True),
        ({"allow_concurrent": True, "was_ready": True}, {}, True),
        ({"allow_concurrent": True}, {"table": "others"}, True),
        ({"allow_concurrent": True, "was_ready": True}, {"table": "others"}, False),
        ({"was_ready": True}, {"table": "others", "allow_concurrent": True}, False),
        ({"was_ready": True}, {"table": "others"}, True),
        ({"allow_concurrent": True, "is_immediate": True}, {"table": "others"}, False),
        ({"allow_concurrent": True}, {"table": "others", "is_immediate": True}, False),
    ],
)
def test_what_a_migration_may_not_run_beside(
    running: dict[str, Any], proposed: dict[str, Any], is_held_off: bool
) -> None:
    known = [("m1", migration(**running))]
    assert held_off_by(known, migration(**{"state": READY} | proposed)) == (["m1"] if is_held_off else [])


@pytest.mark.parametrize(
    ("other", "is_found"),
    [
        ({}, True),
        ({"state": READY}, True),
        ({"state": MigrationState.QUEUED}, False),
        ({"state": FAILED}, False),
        ({"state": FAILED, "owner_failed": True}, True),
        ({"state": FAILED, "owner_failed": True, "retries": 1}, False),
        ({"has_nothing_to_do": True}, False),
        ({"sequence": 5}, False),
        ({"sequence": 6}, False),
        ({"table": "others"}, False),
        ({"server": "s2"}, False),
    ],
)
def test_what_changes_a_table_before_a_migration(other: dict[str, Any], is_found: bool) -> None:
    found = changing_before([("m1", migration(**other))], migration(state=READY, sequence=5))
    assert found == (["m1"] if is_found else [])


@pytest.mark.parametrize("state", MigrationState)
def test_a_wanted_table_comes_after_every_earlier_change_that_is_pending(state: MigrationState) -> None:
    wanted = migration(state=READY, sequence=5, declarative=True)
    assert changing_before([("m1", migration(state=state))], wanted) == (["m1"] if state in PENDING else [])


IN_ORDER = {"sequence": 5, "context": "c", "in_order_completion": True}


@pytest.mark.parametrize(
    ("other", "later", "is_awaited"),
    [
        ({}, {}, True),
        ({}, {"in_order_completion": False}, False),
        ({"table": "others"}, {}, True),
        ({"state": MigrationState.QUEUED}, {}, True),
        ({"state": MigrationState.AWAITING_APPROVAL}, {}, True),
        ({"state": MigrationState.COMPLETE}, {}, False),
        ({"state": FAILED}, {}, False),
        ({"sequence": 5}, {}, False),
        ({"sequence": 6}, {}, False),
        ({"context": "d"}, {}, False),
        ({"server": "s2"}, {}, False),
    ],
)
def test_what_must_complete_before_a_migration(other: dict[str, Any], later: dict[str, Any], is_awaited: bool) -> None:
    found = pending_before([("m1", migration(**{"context": "c"} | other))], migration(**IN_ORDER | later))
    assert found == (["m1"] if is_awaited else [])


@pytest.mark.parametrize(
    ("other", "later", "is_found"),
    [
        ({}, {}, True),
        ({}, {"in_order_completion": False}, False),
        ({"state": CANCELLED}, {}, True),
        ({"state": MigrationState.COMPLETE}, {}, False),
        ({"state": RUNNING}, {}, False),
        ({"owner_failed": True}, {}, False),
        ({"owner_failed": True, "retries": 1}, {}, True),
        ({"retries": 1}, {}, True),
        ({"sequence": 6}, {}, False),
        ({"context": "d"}, {}, False),
        ({"server": "s2"}, {}, False),
    ],
)
def test_what_will_not_complete_before_a_migration(
    other: dict[str, Any], later: dict[str, Any], is_found: bool
) -> None:
    known = [("m1", migration(**{"state": FAILED, "context": "c"} | other))]
    assert broken_before(known, migration(**IN_ORDER | later)) == ("m1" if is_found else None)
