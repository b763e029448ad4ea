"""How a migration stands: the same words and numbers in commands, metrics and logs, read off its record."""

from typing import Final

from headgate.records.migration import MigrationRecorded, MigrationState

STARTING_FEED: Final = "starting the feed"
AWAITING_CHANGE: Final = "waiting for a change to come through"
AWAITING_TRANSACTIONS: Final = "waiting for transactions under way"
AWAITING_LOCK: Final = "waiting for the table's lock"
ADDING_KEYS: Final = "adding unique keys"
READY_TO_CUT_OVER: Final = "ready to cut over"
CUTTING_OVER: Final = "cutting over"

PENDING: Final = frozenset(
    {MigrationState.AWAITING_APPROVAL, MigrationState.QUEUED, MigrationState.READY, MigrationState.RUNNING}
)
"""States of migrations that are expected to run and complete."""


def percent_of_stage(record: MigrationRecorded) -> int | None:
    """How much of the present stage is done; None where nothing can be counted, or nothing is running."""
    if record.state is MigrationState.COMPLETE:
        return 100
    is_running = record.state is MigrationState.RUNNING and record.ending is None
    return record.stage_percent if is_running and record.stage_percent >= 0 else None


def seconds_in_stages(record: MigrationRecorded, now_ms: int) -> dict[str, float]:
    """Stage → seconds spent in it, the present one included, in the order in which they were reached first."""
    spent = {each.stage: each.ms for each in record.stages}
    if record.stage and record.stage_ms:
        spent[record.stage] = spent.get(record.stage, 0) + max(0, now_ms - record.stage_ms)
    return {stage: ms / 1_000 for stage, ms in spent.items()}


def waits_for(name: str, record: MigrationRecorded, now_ms: int) -> str:
    """What the migration waits for now, with the command that ends the wait if there is one; empty if it does not."""
    if record.throttle_reason and record.state is not MigrationState.COMPLETE:
        return f"{record.throttle_reason}{_since(record.throttled_ms, now_ms)}"
    if record.state is MigrationState.RUNNING:
        return _running_waits_for(name, record, now_ms)
    return _waits_to_start_for(name, record) if record.state in PENDING else record.throttle_reason


def _waits_to_start_for(name: str, record: MigrationRecorded) -> str:
    if record.state is MigrationState.AWAITING_APPROVAL:
        return f"the approval of another user than {record.submitted_by}: `headgate migration approve {name}`"
    if record.state is MigrationState.QUEUED and record.launch_postponed:
        return f"its launch: `headgate migration launch {name}`"
    if record.state is MigrationState.QUEUED and record.is_immediate and record.completion_postponed:
        return _completion(name)
    return "its turn"


def _running_waits_for(name: str, record: MigrationRecorded, now_ms: int) -> str:
    if record.ending is not None:
        return f"the end of all that writes for it, then it is {record.ending}"
    if record.stage == CUTTING_OVER or not record.is_ready_to_complete:
        return ""
    if record.completion_postponed:
        return _completion(name)
    if record.cutover_after_ms > now_ms and not record.cutover_forced:
        seconds = (record.cutover_after_ms - now_ms) / 1_000
        return f"the next try to cut over, in {seconds:.0f} s"
    return "its cut-over"


def _completion(name: str) -> str:
    return f"its completion: `headgate migration complete {name}`"


def _since(began_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - began_ms) // 1_000
    return f" (for {seconds} s)" if began_ms else ""


def cutover_waiting_ms(record: MigrationRecorded) -> int:
    """Since when only the cut-over is missing, also if an operator has postponed it; 0 if something else is."""
    is_waiting = record.state is MigrationState.RUNNING and record.ending is None and record.is_ready_to_complete
    return (record.waiting_ms or record.stage_ms) if is_waiting else 0
