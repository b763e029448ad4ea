"""A running migration's progress: from checks of it, and from the reports of tools.

Progress is recorded when there is something new: a new stage at once, rows at most every few seconds. A tool's report
is a sign of life, and of progress. A tool may also report that it is done or has failed: then the database is checked
at once, because only what is seen there is a fact. A tool that has reported a failure and still runs is ended.
"""

from typing import Any, Final

from headgate.migration.core.draft import MigrationDraft
from headgate.migration.core.effects import (
    AdoptMigration,
    Progressed,
    StartMigration,
    ToolReported,
    ToolSeen,
    ToolStatus,
    WatchMigration,
)
from headgate.migration.core.scheduling import cut_over_if_due
from headgate.migration.core.transitions import MigrationPhase, MigrationSignal, phase
from headgate.records.migration import MigrationRecorded

STANDS_STILL: Final = 1.0
"""The throttle ratio at which nothing is copied."""

__all__ = ["WATCH_SECONDS", "percent_of", "progressed", "tool_reported", "tool_seen", "watch"]

WATCH_SECONDS: Final = 1.0
"""How often a running migration is asked how far it is; the operator's throttle is obeyed within this time."""

PROGRESS_SECONDS_MIN: Final = 5.0
"""Rows copied are recorded at most so often; a new stage at once."""


def watch(draft: MigrationDraft, name: str) -> None:
    """Check a running migration, unless an effect of it is out."""
    record = draft.migration(name)
    if record is not None and phase(record) is MigrationPhase.RUNNING and name not in draft.term.busy:
        draft.ask(name, WatchMigration(name, record))


def progressed(draft: MigrationDraft, name: str, effect: Any, result: Progressed) -> None:
    """Apply what a check, a start or an adoption has found."""
    record = draft.migration(name)
    if record is None:
        return
    _note(draft, name, record, result, is_first=isinstance(effect, StartMigration | AdoptMigration))
    draft.set_timer("watch", name, WATCH_SECONDS)
    cut_over_if_due(draft, name)


def tool_seen(draft: MigrationDraft, name: str, effect: Any, result: ToolSeen) -> None:
    """Apply a check of a tool's process: what the tool reports by itself stays as it is."""
    record = draft.migration(name)
    if record is None:
        return
    if phase(record) is MigrationPhase.RUNNING and (said := draft.term.said_failed.pop(name, None)) is not None:
        draft.signal(name, MigrationSignal.BROKE, draft.cause(said, artifacts=result.artifacts, note=result.note))
        return
    rows = _or(result.rows_copied, record.rows_copied)
    found = Progressed(
        record.stage,
        rows,
        record.table_rows,
        _or(result.eta_seconds, record.eta_seconds),
        stage_percent=percent_of(rows, record.table_rows),
        is_ready_to_complete=record.is_ready_to_complete,
        is_live=result.is_live,
        throttle_reason=result.throttle_reason,
        is_held=bool(result.throttle_reason),
        artifacts=result.artifacts,
        note=result.note,
    )
    progressed(draft, name, effect, found)


def tool_reported(draft: MigrationDraft, report: ToolReported) -> None:
    """Apply a tool's report; a late one, whose migration does not run any more, is ignored."""
    record = draft.migration(report.migration)
    if record is None or phase(record) is not MigrationPhase.RUNNING:
        return
    rows = report.rows_copied
    if rows is None and report.progress_percent is not None and record.table_rows:
        rows = int(record.table_rows * report.progress_percent / 100)
    found = Progressed(
        report.stage or record.stage,
        _or(rows, record.rows_copied),
        max(record.table_rows, rows or 0),
        _or(report.eta_seconds, record.eta_seconds),
        stage_percent=percent_of(_or(rows, record.rows_copied), max(record.table_rows, rows or 0)),
        is_ready_to_complete=record.is_ready_to_complete or report.is_ready_to_complete,
        throttle_reason=record.throttle_reason,
        is_held=bool(record.throttle_reason),
        artifacts=record.artifacts,
        note=record.note,
    )
    _note(draft, report.migration, record, found, is_first=False)
    if report.status is ToolStatus.FAILED:
        draft.term.said_failed[report.migration] = (
            f"the tool reports that it has failed: {report.message or 'no reason'}"
        )
    if report.status is ToolStatus.RUNNING:
        cut_over_if_due(draft, report.migration)
    else:
        watch(draft, report.migration)


def _is_progress(draft: MigrationDraft, name: str, record: MigrationRecorded, result: Progressed) -> bool:
    """Whether it makes progress: something has moved since the last check, or nothing is expected to move.

    A thread or a program that merely exists is not progress: a feed without an agent, or a transaction that is held
    open, would be waited for without an end.
    """
    seen = (result.stage, result.rows_copied, result.position, result.note, result.is_ready_to_complete)
    has_moved = draft.term.seen.get(name) != seen
    if result.is_live:
        draft.term.seen[name] = seen
    waits = result.is_ready_to_complete or record.throttle_ratio >= STANDS_STILL or result.is_held
    return result.is_live and (has_moved or waits or result.is_working)


def percent_of(done: int, total: int) -> int:
    """How much of ``total`` is done, whole percent; -1 if the total is not known. Estimates may be exceeded."""
    return min(100, 100 * max(0, done) // total) if total > 0 else -1


def _or(number: int | None, known: int) -> int:
    return known if number is None else number


def _note(draft: MigrationDraft, name: str, record: MigrationRecorded, result: Progressed, *, is_first: bool) -> None:
    """Remember that it lives, and record what is new."""
    term, now = draft.term, draft.now.monotonic
    is_live = _is_progress(draft, name, record, result)
    if is_live:
        term.live_at[name] = now
    is_news = is_first or (record.stage, record.is_ready_to_complete, record.throttle_reason, record.artifacts) != (
        result.stage,
        result.is_ready_to_complete,
        result.throttle_reason,
        result.artifacts,
    )
    far = (record.rows_copied, record.stage_percent, record.note)
    is_further = far != (result.rows_copied, result.stage_percent, result.note)
    if is_news or (is_further and now - term.written_at.get(name, now - PROGRESS_SECONDS_MIN) >= PROGRESS_SECONDS_MIN):
        term.written_at[name] = now
        cause = draft.cause(
            stage=result.stage,
            rows_copied=result.rows_copied,
            table_rows=result.table_rows,
            eta_seconds=result.eta_seconds,
            stage_percent=result.stage_percent,
            is_ready_to_complete=result.is_ready_to_complete,
            is_live=is_live,
            throttle_reason=result.throttle_reason,
            artifacts=result.artifacts,
            note=result.note,
        )
        draft.signal(name, MigrationSignal.PROGRESSED, cause)
    if result.is_ready_to_complete and not record.was_ready:
        draft.burst()  # another may copy now
