"""The migration owner as a machine: which rule answers which input.

    transitions   every transition of one migration, as a table     scheduling   a tick: who may run, cut over, must end
    requests      what operators ask, and what becomes of it        effects      what is done at databases
    approvals     what another user must allow first                events       what a change of a record is called
    progress      how far it is, by checks and by tools' reports
    state         what the log contains; one owner's memory         draft        a decision while it is made

Ticks come every minute, and in a burst after whatever may have made room (draft.py). Running migrations are watched
every second: progress is recorded when there is something new, at most every few seconds. Each migration has one effect
out at a time; an effect that could not be done is requested again, as the next owner would.
"""

from typing import Any, Final

from headgate.migration.core import progress, requests
from headgate.migration.core.approvals import answer_approval
from headgate.migration.core.draft import MigrationDraft
from headgate.migration.core.effects import (
    AdoptMigration,
    Broke,
    CleanedUp,
    CleanUpMigration,
    Completed,
    CutOverFailed,
    ExamineMigration,
    NotThere,
    Progressed,
    Refused,
    StartMigration,
    StopMigration,
    Stopped,
    ToolReported,
    ToolSeen,
    WatchMigration,
)
from headgate.migration.core.progress import WATCH_SECONDS
from headgate.migration.core.scheduling import CUTOVER_BACKOFF_SECONDS, reverted, stop, tick
from headgate.migration.core.state import PENDING, MigrationsState, MigrationTerm, digest, evolve, new_state
from headgate.migration.core.transitions import MigrationPhase, MigrationSignal, phase
from headgate.records.migration import (
    Artifact,
    MigrationApprovalKey,
    MigrationRecorded,
    MigrationRequestKey,
    MigrationState,
    MigrationStrategy,
)
from headgate.records.throttle_reasons import CLEAN_UP
from headgate.runtime.machine import (
    Arrived,
    Decision,
    EffectFailed,
    EffectFinished,
    HolderSilent,
    Machine,
    NoTermError,
    Now,
    TermBegan,
    TimerFired,
)

__all__ = ["MIGRATIONS", "MigrationsState", "decide", "digest", "evolve", "new_state"]

TICK_SECONDS: Final = 60.0
"""The seed's; bursts do the rest."""

AGAIN_SECONDS: Final = 2.0
"""Pause before an effect that could not be done is requested again: the database may be starting."""

ADOPTABLE: Final = frozenset({MigrationStrategy.ONLINE, MigrationStrategy.TRIGGERS, MigrationStrategy.DIRECT})
"""Strategies whose work is at the database alone. The other tools are children of the owner's process: what they do is
lost with it, because no other process receives their reports."""


def decide(state: MigrationsState, given: Any, now: Now) -> Decision:
    """What follows from one input. Changes nothing of ``state`` but its term's memory."""
    if isinstance(given, TermBegan):
        state.term = MigrationTerm(given.owner_rev)
    if state.term is None:
        raise NoTermError(given)
    draft = MigrationDraft(state, state.term, now)
    match given:
        case TermBegan():
            _open(draft)
        case Arrived(delivery=delivery) if isinstance(delivery.key, MigrationRequestKey | MigrationApprovalKey):
            _on_request(draft, delivery.key, is_withdrawn=delivery.value is None)
        case Arrived() | HolderSilent():
            pass
        case TimerFired(name=name):
            _on_timer(draft, name)
        case EffectFinished(effect=effect, result=result):
            _on_result(draft, effect, result)
            requests.settle_waiting(draft)
        case ToolReported():
            progress.tool_reported(draft, given)
        case _:
            raise TypeError(f"the scheduler of migrations knows no input {type(given).__name__}")
    return draft.decision()


def _on_request(draft: MigrationDraft, key: MigrationRequestKey | MigrationApprovalKey, *, is_withdrawn: bool) -> None:
    if is_withdrawn:
        requests.forget_outcome(draft, key.request)
    elif isinstance(key, MigrationApprovalKey):
        answer_approval(draft, key.request)
    else:
        requests.answer(draft, key.request)


def _open(draft: MigrationDraft) -> None:
    """Start a term: take over or end everything that was running, then continue as usual."""
    draft.set_timer("tick", "", TICK_SECONDS)
    for name, record in draft.migrations():
        requests.await_unthrottling(draft, name)
        match phase(record):
            case MigrationPhase.RUNNING:
                draft.term.live_at[name] = draft.now.monotonic
                _take_over(draft, name, record)
            case MigrationPhase.ENDING:
                stop(draft, name, is_forced=True)
            case _:
                pass
    requests.catch_up(draft)
    draft.burst()


def _take_over(draft: MigrationDraft, name: str, record: MigrationRecorded) -> None:
    spec = draft.spec(record)
    if spec.strategy in ADOPTABLE:
        draft.ask(name, AdoptMigration(name, record, reverted(draft, spec)))
        return
    draft.signal(
        name, MigrationSignal.ORPHANED, draft.cause("its owner failed, and the tool that ran it with the owner")
    )
    stop(draft, name, is_forced=True)


def _on_timer(draft: MigrationDraft, name: str) -> None:
    kind, _, subject = name.partition("/")
    match kind:
        case "tick":
            draft.set_timer("tick", "", TICK_SECONDS)
            tick(draft)
        case "burst":
            tick(draft)
        case "watch":
            progress.watch(draft, subject)
        case "again":
            _again(draft, subject)
        case "examine":
            requests.examine_again(draft, subject)
        case "unthrottle":
            requests.unthrottle(draft, subject)
        case _:
            raise TypeError(f"no rule for timer {name}")


def _again(draft: MigrationDraft, name: str) -> None:
    """Request again what could not be done, for the record as it is now."""
    record = draft.migration(name)
    if record is None or name in draft.term.busy:
        return
    match phase(record):
        case MigrationPhase.RUNNING:
            spec = draft.spec(record)
            draft.ask(name, AdoptMigration(name, record, reverted(draft, spec)))
        case MigrationPhase.ENDING:
            stop(draft, name, is_forced=True)
        case _:
            pass


def _on_result(draft: MigrationDraft, effect: Any, result: Any) -> None:
    if isinstance(effect, ExamineMigration):
        requests.examined(draft, effect, result)
        return
    name = effect.migration
    if draft.term.busy.get(name) != effect:
        raise TypeError(f"{type(effect).__name__} of {name} has come back, but was not out")
    del draft.term.busy[name]
    if not isinstance(result, EffectFailed):
        draft.term.uncertain.discard(name)
    record = draft.migration(name)
    if record is None:
        return
    if isinstance(effect, CleanUpMigration):
        _cleaned_up(draft, name, effect, result)
    else:
        _apply_result(draft, name, effect, result)
    after = draft.migration(name)
    if after is not None and phase(after) is MigrationPhase.ENDING and name not in draft.term.busy:
        # A stop that could not be done is requested again after a pause; one that was not requested yet, at once.
        if isinstance(effect, StopMigration):
            draft.set_timer("again", name, AGAIN_SECONDS)
        else:
            stop(draft, name, is_forced=after.ending is MigrationState.FAILED)


def _apply_result(draft: MigrationDraft, name: str, effect: Any, result: Any) -> None:
    match result:
        case Progressed():
            progress.progressed(draft, name, effect, result)
        case ToolSeen():
            progress.tool_seen(draft, name, effect, result)
        case Completed():
            cause = draft.cause(result.message, artifacts=result.artifacts, note=result.note)
            draft.signal(name, MigrationSignal.COMPLETED, cause)
            _hand_over(draft, draft.spec_of(name).reverts)
            draft.burst()
        case Stopped():
            draft.signal(name, MigrationSignal.STOPPED, draft.cause(result.message, artifacts=result.artifacts))
            _keep_way_back(draft, draft.spec_of(name).reverts, result.way_back)
            draft.burst()
        case Refused():
            draft.signal(name, MigrationSignal.REFUSED, draft.cause(result.reason))
            draft.burst()
        case Broke():
            draft.signal(
                name, MigrationSignal.BROKE, draft.cause(result.reason, artifacts=result.artifacts, note=result.note)
            )
        case NotThere():
            _begin_anew(draft, name)
        case CutOverFailed():
            _cut_over_failed(draft, name, result.reason)
        case EffectFailed():
            _not_done(draft, name, effect)
        case _:
            raise TypeError(f"{type(effect).__name__} cannot end with {type(result).__name__}")


def _hand_over(draft: MigrationDraft, reverted_name: str | None) -> None:
    """What a reverted migration has left is in the table's place now, or the revert's to drop."""
    if reverted_name is not None and draft.migration(reverted_name) is not None:
        draft.term.cleaning.discard(reverted_name)
        draft.signal(reverted_name, MigrationSignal.CLEANED_UP, draft.cause(artifacts=()))


def _keep_way_back(draft: MigrationDraft, reverted_name: str | None, begun: tuple[Artifact, ...]) -> None:
    """Keep what an ended revert has started, for the next one; it is cleaned up with what it keeps up to date."""
    if reverted_name is None or (record := draft.migration(reverted_name)) is None:
        return
    if more := tuple(artifact for artifact in begun if artifact not in record.artifacts):
        cause = draft.cause(artifacts=(*record.artifacts, *more))
        draft.signal(reverted_name, MigrationSignal.CLEANED_UP, cause)


def _begin_anew(draft: MigrationDraft, name: str) -> None:
    record = draft.signal(name, MigrationSignal.NOT_THERE, draft.cause())
    if phase(record) is MigrationPhase.RUNNING:
        draft.ask(name, StartMigration(name, record, reverted(draft, draft.spec(record))))


def _cut_over_failed(draft: MigrationDraft, name: str, reason: str) -> None:
    record = draft.migration(name)
    failed = 0 if record is None else record.cutover_attempts
    pause = CUTOVER_BACKOFF_SECONDS[min(failed, len(CUTOVER_BACKOFF_SECONDS) - 1)]
    after_ms = draft.now.wall_ms + round(pause * 1_000)
    draft.signal(name, MigrationSignal.CUTOVER_FAILED, draft.cause(reason, cutover_after_ms=after_ms))
    draft.set_timer("watch", name, WATCH_SECONDS)


def _not_done(draft: MigrationDraft, name: str, effect: Any) -> None:
    """The result is not known. A stop is requested by _on_result; everything else is found out by adopting."""
    if isinstance(effect, WatchMigration):
        draft.set_timer("watch", name, WATCH_SECONDS)
    elif not isinstance(effect, StopMigration):
        draft.term.uncertain.add(name)
        draft.set_timer("again", name, AGAIN_SECONDS)


def _cleaned_up(draft: MigrationDraft, name: str, effect: CleanUpMigration, result: Any) -> None:
    if isinstance(result, CleanedUp):
        if not effect.keeps_tables:
            draft.term.cleaning.discard(name)
        draft.signal(name, MigrationSignal.CLEANED_UP, draft.cause(artifacts=result.artifacts))
    elif isinstance(result, EffectFailed):
        draft.signal(name, MigrationSignal.CLEAN_UP_FAILED, draft.cause(throttle_reason=f"{CLEAN_UP} {result.reason}"))
    else:
        raise TypeError(f"a clean-up cannot end with {type(result).__name__}")
    record = draft.migration(name)
    if record is not None and record.state in PENDING:
        draft.burst()  # it was retried since, and has waited for this


MIGRATIONS: Final[Machine[MigrationsState]] = Machine(new_state=new_state, evolve=evolve, decide=decide, digest=digest)
"""The machine as values, for the loop, the tests and the simulation."""
