"""One tick: admissions, launches, cut-overs, stale migrations, and artifacts to drop.

The order of a tick is Vitess's (go/vt/vttablet/onlineddl): retry after a lost owner, admit, conclude what has
nothing to do, start, look after what runs, find what is stale, clean up. A tick admits one and starts one; a burst of
ticks follows every start.
"""

from typing import Final

from headgate.migration.core.draft import MigrationDraft
from headgate.migration.core.effects import CleanUpMigration, CutOverMigration, StartMigration, StopMigration
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.core.state import PENDING, TERMINAL
from headgate.migration.core.transitions import MigrationSignal
from headgate.migration.core.turns import (
    broken_before,
    changing_before,
    held_off_by,
    is_retried_by_itself,
    is_same_database,
    pending_before,
)
from headgate.records.migration import FEED, MigrationRecorded, MigrationState
from headgate.records.name_lists import number_of

STALE_SECONDS: Final = 600.0
"""A running migration without any progress for so long is ended. The seed's number; Vitess has gone to 180 minutes,
because its liveness stops while one long statement runs. Ours asks the server whether that statement runs
(docs/adr/0035)."""

CUTOVER_BACKOFF_SECONDS: Final = (0.0, 60.0, 300.0, 600.0, 1_800.0)
"""Pause after 1, 2, … failed cut-overs, the last for all further ones: the sessions that hold the table get a pause."""

RUNNING_MAX: Final = 256
"""Vitess's bound; each has sessions at a database."""


def tick(draft: MigrationDraft) -> None:
    """One round; changes nothing of what needs no change."""
    _retry_orphaned(draft)
    _admit(draft)
    _conclude(draft)
    _start_next(draft)
    for name, record in draft.migrations():
        if record.state is MigrationState.RUNNING:
            _look_after(draft, name, record)
        elif record.state in TERMINAL:
            _clean_up(draft, name, record)


def stop(draft: MigrationDraft, name: str, *, is_forced: bool) -> None:
    """Request the stop of a migration that is ending, or, if an effect of it is still out, when that returns."""
    record = draft.migration(name)
    if record is not None and record.ending is not None and name not in draft.term.busy:
        draft.ask(name, StopMigration(name, record, is_forced))


def cut_over_if_due(draft: MigrationDraft, name: str) -> None:
    """Request the cut-over of a migration that is ready for it, is allowed to, and has waited long enough."""
    record = draft.migration(name)
    if record is None or record.state is not MigrationState.RUNNING or record.ending is not None:
        return
    if not record.is_ready_to_complete or record.completion_postponed:
        return
    if name in draft.term.busy or name in draft.term.uncertain:
        return
    spec = draft.spec(record)
    force_after = spec.force_cutover_after_seconds
    waited = (draft.now.wall_ms - record.waiting_ms) / 1_000 if record.waiting_ms else 0.0
    if force_after is not None and waited >= force_after:
        record = draft.signal(name, MigrationSignal.FORCE_CUTOVER)
    if not record.cutover_forced and draft.now.wall_ms < record.cutover_after_ms:
        return
    if pending_before(draft.migrations(), record):
        return
    draft.ask(name, CutOverMigration(name, draft.signal(name, MigrationSignal.CUT_OVER)))


def _retry_orphaned(draft: MigrationDraft) -> None:
    """Retry once, and only once, what an owner's failure has ended."""
    for name, record in draft.migrations():
        if is_retried_by_itself(record):
            draft.signal(name, MigrationSignal.RETRY, draft.cause("started again by itself: its owner had failed"))
            draft.burst()
            return


def _admit(draft: MigrationDraft) -> None:
    for name, record in draft.migrations():
        if record.state is not MigrationState.QUEUED or record.launch_postponed:
            continue
        # What has no copying to do completes by being run, so a postponed completion postpones its start.
        if record.is_immediate and record.completion_postponed:
            continue
        draft.signal(name, MigrationSignal.ADMIT)
        return


def _conclude(draft: MigrationDraft) -> None:
    """Conclude migrations that are ready but have nothing to do, or must not be done out of order.

    Nothing is complete that an earlier migration of the table, or one that has changed it, makes untrue.
    """
    for name, record in draft.migrations():
        if record.state is not MigrationState.READY:
            continue
        is_settled = not changing_before(draft.migrations(), record)
        twin = _done_already(draft, record, draft.spec(record)) if is_settled else None
        if record.has_nothing_to_do and is_settled:
            _conclude_without_change(draft, name, record)
        elif twin is not None:
            draft.signal(name, MigrationSignal.CONCLUDE, draft.cause(f"duplicate DDL as {twin}"))
        elif (lost := broken_before(draft.migrations(), record)) is not None:
            draft.signal(
                name,
                MigrationSignal.OUTRUN,
                draft.cause(f"in-order completion: {lost} of its context did not complete"),
            )
        else:
            continue
        draft.burst()


def _conclude_without_change(draft: MigrationDraft, name: str, record: MigrationRecorded) -> None:
    """It had nothing to do when it was submitted: complete, unless its table has been changed since."""
    if (other := _changed_after(draft, name, record, record.added_ms)) is None:
        draft.signal(name, MigrationSignal.CONCLUDE, draft.cause(record.message or "no change"))
    else:
        reason = (
            f"it had nothing to do when it was submitted ({record.message or 'no change'}), and {other} has changed "
            f"{record.table} since. Submit it again as a new migration"
        )
        draft.signal(name, MigrationSignal.OUTRUN, draft.cause(reason))


def _start_next(draft: MigrationDraft) -> None:
    everything = list(draft.migrations())
    if sum(record.state is MigrationState.RUNNING for _, record in everything) >= RUNNING_MAX:
        return
    for name, record in everything:
        # The artifacts of its former attempt may still be being dropped: they must not be those that this one makes.
        if record.state is not MigrationState.READY or record.has_nothing_to_do or name in draft.term.busy:
            continue
        spec = draft.spec(record)
        if spec.reverts in draft.term.busy:
            continue
        if (record.is_immediate and pending_before(everything, record)) or held_off_by(everything, record):
            continue
        if _is_about_state(draft, record, spec) and changing_before(everything, record):
            continue
        started = draft.signal(name, MigrationSignal.START)
        draft.term.forget(name)
        draft.term.live_at[name] = draft.now.monotonic
        draft.ask(name, StartMigration(name, started, reverted(draft, spec)))
        draft.burst()
        return


def _is_about_state(draft: MigrationDraft, record: MigrationRecorded, spec: MigrationSpec) -> bool:
    """Whether it promises a state of its table, so that an earlier change of the table must not come after it."""
    return spec.declarative or _done_already(draft, record, spec) is not None


def reverted(draft: MigrationDraft, spec: MigrationSpec) -> MigrationRecorded | None:
    """The record of the migration that this one undoes."""
    return None if spec.reverts is None else draft.migration(spec.reverts)


def _done_already(draft: MigrationDraft, proposed: MigrationRecorded, spec: MigrationSpec) -> str | None:
    """One of the same context that has made the same change of the table, which is as that one has left it."""
    if not spec.context or spec.reverts is not None:
        return None
    for other, record in draft.migrations():
        if record.state is not MigrationState.COMPLETE or record.table != proposed.table:
            continue
        theirs = draft.spec(record)
        is_same = (theirs.context, theirs.statement) == (spec.context, spec.statement)
        if is_same and is_same_database(record, proposed) and changed_since(draft, other, record) is None:
            return other
    return None


def _look_after(draft: MigrationDraft, name: str, record: MigrationRecorded) -> None:
    if record.ending is not None:
        stop(draft, name, is_forced=True)
        return
    silent = draft.now.monotonic - draft.term.live_at.setdefault(name, draft.now.monotonic)
    if silent >= STALE_SECONDS:
        where = f"stage {record.stage}, {number_of(record.rows_copied, 'row')}" if record.stage else "no stage yet"
        draft.signal(name, MigrationSignal.STALE, draft.cause(f"stale: no progress for {silent:.0f} s ({where})"))
        stop(draft, name, is_forced=True)
    else:
        cut_over_if_due(draft, name)


def _clean_up(draft: MigrationDraft, name: str, record: MigrationRecorded) -> None:
    if not record.artifacts or name in draft.term.busy:
        return
    is_due = draft.now.wall_ms - record.ended_ms >= draft.spec(record).retain_artifacts_seconds * 1_000
    if (is_due or name in draft.term.cleaning) and not _is_being_reverted(draft, name):
        draft.ask(name, CleanUpMigration(name, record))
    elif any(artifact.kind == FEED for artifact in record.artifacts) and changed_since(draft, name, record) is not None:
        # Changes of the next form do not fit the table before, and would not be undone.
        draft.ask(name, CleanUpMigration(name, record, keeps_tables=True))


def has_changed(record: MigrationRecorded) -> bool:
    """Whether it is complete and has done something: one with nothing to do completes without being started."""
    return record.state is MigrationState.COMPLETE and record.started_ms > 0


def changed_since(draft: MigrationDraft, name: str, record: MigrationRecorded) -> str | None:
    """A migration that has changed the same table since ``record`` completed."""
    return _changed_after(draft, name, record, record.ended_ms)


def _changed_after(draft: MigrationDraft, name: str, record: MigrationRecorded, moment_ms: int) -> str | None:
    """A migration that has changed the table of ``record`` after a moment; in that very moment, a later one."""
    for other, theirs in draft.migrations():
        if other == name or theirs.table != record.table or not has_changed(theirs):
            continue
        is_later = (theirs.ended_ms, theirs.sequence) > (moment_ms, record.sequence)
        if is_later and is_same_database(theirs, record):
            return other
    return None


def _is_being_reverted(draft: MigrationDraft, name: str) -> bool:
    return any(record.state in PENDING and draft.spec(record).reverts == name for _, record in draft.migrations())
