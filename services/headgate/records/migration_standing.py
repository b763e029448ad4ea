"""The state of a migration in words and numbers, the same in commands, metrics and logs, from its record."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from headgate.records.migration import MigrationRecorded, MigrationState
from headgate.records.throttle_reasons import by_operator

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
    """How much of the present stage is done; None if nothing can be counted, or nothing is running."""
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


class MigrationWait(StrEnum):
    """What a migration waits for, from its own record. Waits that other records show are not included."""

    ENDING = "ending"
    THROTTLE = "throttle"
    APPROVAL = "approval"
    LAUNCH = "launch"
    TURN = "turn"
    COMPLETION = "completion"
    RETRY = "retry"
    CUTOVER = "cut-over"
    CLEAN_UP = "clean-up"


def wait_of(record: MigrationRecorded, now_ms: int) -> MigrationWait | None:
    """What the migration waits for now; None if it does not. Lists, metrics and ``headgate why`` use only this."""
    if record.state is MigrationState.RUNNING:
        return _wait_while_running(record, now_ms)
    if record.state not in PENDING:
        return MigrationWait.CLEAN_UP if record.throttle_reason else None
    return MigrationWait.THROTTLE if record.throttle_reason else _wait_to_start(record)


def _wait_to_start(record: MigrationRecorded) -> MigrationWait:
    if record.state is MigrationState.AWAITING_APPROVAL:
        return MigrationWait.APPROVAL
    if record.state is MigrationState.QUEUED and record.launch_postponed:
        return MigrationWait.LAUNCH
    if record.state is MigrationState.QUEUED and record.is_immediate and record.completion_postponed:
        return MigrationWait.COMPLETION
    return MigrationWait.TURN


def _wait_while_running(record: MigrationRecorded, now_ms: int) -> MigrationWait | None:
    if record.ending is not None:
        return MigrationWait.ENDING
    if record.throttle_reason or record.throttle_ratio > 0:
        return MigrationWait.THROTTLE
    if record.stage == CUTTING_OVER or not record.is_ready_to_complete:
        return None
    if record.completion_postponed:
        return MigrationWait.COMPLETION
    is_retried = record.cutover_after_ms > now_ms and not record.cutover_forced
    return MigrationWait.RETRY if is_retried else MigrationWait.CUTOVER


_TEXTS: Final[Mapping[MigrationWait, str]] = {
    MigrationWait.ENDING: "the end of all that writes for it, then it is {record.ending}",
    MigrationWait.THROTTLE: "{throttle}",
    MigrationWait.CLEAN_UP: "{throttle}",
    MigrationWait.APPROVAL: (
        "the approval of another user than {record.submitted_by}: `headgate migration approve {name}`"
    ),
    MigrationWait.LAUNCH: "its launch: `headgate migration launch {name}`",
    MigrationWait.TURN: "its turn",
    MigrationWait.COMPLETION: "its completion: `headgate migration complete {name}`",
    MigrationWait.RETRY: "the next try to cut over, in {retry_seconds:.0f} s",
    MigrationWait.CUTOVER: "its cut-over",
}


def waits_for(name: str, record: MigrationRecorded, now_ms: int) -> str:
    """What the migration waits for now, with the command that ends the wait if there is one; empty if it does not."""
    wait = wait_of(record, now_ms)
    if wait is None:
        return ""
    throttle = f"{throttled_by(record)}{_since(record.throttled_ms, now_ms)}"
    return _TEXTS[wait].format(
        name=name, record=record, throttle=throttle, retry_seconds=seconds_to_retry(record, now_ms)
    )


def seconds_to_retry(record: MigrationRecorded, now_ms: int) -> float:
    """Until the cut-over is retried."""
    return (record.cutover_after_ms - now_ms) / 1_000


def throttled_by(record: MigrationRecorded) -> str:
    """Why it is throttled. An operator's ratio holds it before its strategy has reported it."""
    return record.throttle_reason or by_operator(record.throttle_ratio)


def _since(began_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - began_ms) // 1_000
    return f" (for {seconds} s)" if began_ms else ""


def cutover_waiting_ms(record: MigrationRecorded) -> int:
    """Since when only the cut-over is missing, also if an operator has postponed it; 0 if something else is."""
    is_waiting = record.state is MigrationState.RUNNING and record.ending is None and record.is_ready_to_complete
    return (record.waiting_ms or record.stage_ms) if is_waiting else 0
