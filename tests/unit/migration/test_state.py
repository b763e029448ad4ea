"""What a record on the log changes of the state of migrations."""

import pytest

from headgate.migration.core.state import LEVEL_FIRST, evolve, new_state
from headgate.records.base import Record
from headgate.records.control import OwnerAnnounced
from headgate.records.migration import MigrationKey, MigrationOwnerKey
from support.migration_records import recorded

OF_FIVE = recorded("{}", owner_rev=5, message="five")


def announcing(level: int) -> OwnerAnnounced:
    return OwnerAnnounced(
        owner_id="o", owner_rev=1, version="1", schema_version=level, lease_seconds=5.0, announced_ms=0, level=level
    )


@pytest.mark.parametrize(("owner_rev", "is_taken"), [(4, False), (5, True), (6, True)])
def test_a_record_of_an_earlier_owner_changes_nothing(owner_rev: int, is_taken: bool) -> None:
    state = new_state(0)
    evolve(state, MigrationKey("m1"), OF_FIVE)
    other = recorded("{}", owner_rev=owner_rev, message="other")
    evolve(state, MigrationKey("m1"), other)
    assert state.migrations["m1"] is (other if is_taken else OF_FIVE)


def test_a_record_that_is_deleted_is_gone() -> None:
    state = new_state(0)
    evolve(state, MigrationKey("m1"), OF_FIVE)
    for name in ("m1", "m2"):
        evolve(state, MigrationKey(name), None)
    assert state.migrations == {}


@pytest.mark.parametrize(
    ("announced", "level"),
    [([], LEVEL_FIRST), ([None], LEVEL_FIRST), ([OF_FIVE], LEVEL_FIRST), ([3], 3), ([3, 2], 3), ([3, None], 3)],
)
def test_the_level_is_the_highest_that_an_owner_has_announced(announced: list[Record | int | None], level: int) -> None:
    state = new_state(0)
    for each in announced:
        evolve(state, MigrationOwnerKey(0), announcing(each) if isinstance(each, int) else each)
    assert state.level == level
