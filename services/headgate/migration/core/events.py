"""Events of a migration between two of its records: lines of the service's log, and counters."""

from typing import Any, Final

import msgspec

from headgate.migration.core.spec import parse_spec
from headgate.records.migration import MigrationRecorded, MigrationState
from headgate.records.migration_standing import CUTTING_OVER, seconds_in_stages

STALE: Final = "stale"
"""Start of the message of a migration that was ended because it made no progress (scheduling.py)."""


class MigrationEvent(msgspec.Struct, frozen=True):
    """One thing that has happened. ``facts`` are JSON values; ``is_failure``: an operator should act."""

    name: str
    facts: dict[str, Any]
    is_failure: bool = False


def events_between(before: MigrationRecorded | None, after: MigrationRecorded) -> list[MigrationEvent]:
    """The events that lead from one record to the next; none for a record that is first seen after its submission."""
    if before is None:
        return [_submitted(after)] if after.attempt == 0 and after.ready_ms == 0 and not after.ended_ms else []
    found = _of_stage(before, after) + _of_throttle(before, after)
    if after.cutover_attempts > before.cutover_attempts:
        found.append(MigrationEvent("migration_cutover_failed", {"reason": after.message}))
    if after.ending is not None and before.ending is not after.ending:
        found.append(MigrationEvent("migration_ending", {"towards": after.ending.value, "reason": after.message}))
    if before.state is not after.state:
        found += _of_state(before, after)
    return found


def result_of(record: MigrationRecorded) -> str:
    """How a migration has ended: complete, cancelled, failed, or stale, a failure that is counted separately."""
    is_stale = record.state is MigrationState.FAILED and record.message.startswith(f"{STALE}:")
    return STALE if is_stale else record.state.value


def _submitted(record: MigrationRecorded) -> MigrationEvent:
    spec = parse_spec(record.spec)
    return MigrationEvent(
        "migration_submitted",
        {
            "table": record.table,
            "database": spec.database,
            "strategy": spec.strategy.value,
            "state": record.state.value,
            "by": record.submitted_by,
        },
    )


def _of_stage(before: MigrationRecorded, after: MigrationRecorded) -> list[MigrationEvent]:
    if not before.stage or after.stage in ("", before.stage):
        return []  # a start and an end are events of their own
    facts: dict[str, Any] = {"stage": after.stage, "rows_copied": after.rows_copied}
    if before.stage_ms:
        facts |= {"after": before.stage, "seconds": (after.stage_ms - before.stage_ms) / 1_000}
    return [MigrationEvent("migration_stage", facts)]


def _of_throttle(before: MigrationRecorded, after: MigrationRecorded) -> list[MigrationEvent]:
    if after.throttled_ms and not before.throttled_ms:
        return [MigrationEvent("migration_throttled", {"reason": after.throttle_reason})]
    if before.throttled_ms and not after.throttled_ms:
        return [MigrationEvent("migration_released", {"reason": before.throttle_reason})]
    return []


def _of_state(before: MigrationRecorded, after: MigrationRecorded) -> list[MigrationEvent]:
    match after.state:
        case MigrationState.QUEUED if before.state is MigrationState.AWAITING_APPROVAL:
            return [MigrationEvent("migration_approved", {"by": after.approved_by})]
        case MigrationState.QUEUED | MigrationState.AWAITING_APPROVAL:
            return [MigrationEvent("migration_retried", {"was": before.state.value})]
        case MigrationState.READY:
            return []
        case MigrationState.RUNNING:
            return [MigrationEvent("migration_started", {"attempt": after.attempt, "table": after.table})]
        case MigrationState.COMPLETE:
            return _completed(before, after)
        case _:
            return [
                MigrationEvent(
                    f"migration_{after.state.value}",
                    {"reason": after.message, "result": result_of(after)},
                    is_failure=after.state is MigrationState.FAILED,
                )
            ]


def _completed(before: MigrationRecorded, after: MigrationRecorded) -> list[MigrationEvent]:
    found = []
    if before.stage == CUTTING_OVER:
        found.append(MigrationEvent("migration_cut_over", {"table": after.table}))
    facts = {"rows_copied": after.rows_copied, "seconds": seconds_in_stages(after, after.ended_ms)}
    return [*found, MigrationEvent("migration_complete", facts | ({"reason": after.message} if after.message else {}))]
