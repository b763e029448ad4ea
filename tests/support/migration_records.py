"""A migration's record for tests, as it is when it runs."""

from typing import Any

from headgate.records.migration import MigrationRecorded, MigrationState

__all__ = ["recorded"]


def recorded(spec: str, **more: Any) -> MigrationRecorded:
    """The record of a running migration with that spec; ``more`` are fields that are otherwise."""
    known: dict[str, Any] = {
        "owner_rev": 1,
        "sequence": 1,
        "spec": spec,
        "action": "alter",
        "table": "items",
        "is_immediate": False,
        "state": MigrationState.RUNNING,
        "stage": "",
        "attempt": 1,
        "retries": 0,
        "ending": None,
        "owner_failed": False,
        "has_nothing_to_do": False,
        "launch_postponed": False,
        "completion_postponed": False,
        "is_ready_to_complete": False,
        "was_ready": False,
        "cutover_attempts": 0,
        "cutover_forced": False,
        "rows_copied": 0,
        "table_rows": 0,
        "eta_seconds": -1,
        "throttle_ratio": 0.0,
        "throttle_reason": "",
        "artifacts": (),
        "note": "",
        "message": "",
        "added_ms": 0,
        "ready_ms": 0,
        "started_ms": 0,
        "live_ms": 0,
        "ended_ms": 0,
    }
    return MigrationRecorded(**(known | more))
