"""Operators' requests to the owner: each request gets one outcome.

``refused`` changed nothing and has the reason; ``done``; ``failed``; ``accepted`` while it is under way. A submission
is examined at its database before it is accepted, one at a time per database, so that the order of submission is kept.
A request with an outcome is never processed again; when its writer deletes it, the outcome is deleted too.
"""

from typing import Final

from msgspec.structs import replace

from headgate.migration.core.approvals import answer_approval, user_of, why_not_awaited
from headgate.migration.core.draft import MigrationDraft
from headgate.migration.core.effects import CleanUpMigration, Examined, ExamineMigration, ExamineRefused, Identified
from headgate.migration.core.scheduling import (
    changed_since,
    cut_over_if_due,
    has_changed,
    reverted,
    stop,
)
from headgate.migration.core.spec import TOOLS, MigrationSpec, MigrationSpecError, parse_request, written
from headgate.migration.core.state import PENDING, TERMINAL, PlacedRequest
from headgate.migration.core.transitions import MigrationSignal, first_state
from headgate.migration.core.turns import is_same_database
from headgate.records.control import OutcomeStatus
from headgate.records.migration import (
    MigrationOutcomeKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKind,
    MigrationState,
    MigrationStrategy,
)
from headgate.records.names import InvalidNameError, check_name
from headgate.records.refusals import NOT_FOUND, coded
from headgate.runtime.machine import EffectFailed

__all__ = [
    "answer",
    "await_unthrottling",
    "catch_up",
    "examined",
    "forget_outcome",
    "settle_waiting",
    "unthrottle",
]

EXAMINATIONS_MAX: Final = 5
"""A database that fails to answer so often in a row is unavailable: the submission fails, and its author is
notified."""

EXAMINE_AGAIN_SECONDS: Final = 2.0

ALL: Final = "all"
"""In place of an id: every migration that the request can be about."""

_SIGNALS: Final = {
    MigrationRequestKind.CANCEL: MigrationSignal.CANCEL,
    MigrationRequestKind.LAUNCH: MigrationSignal.LAUNCH,
    MigrationRequestKind.COMPLETE: MigrationSignal.COMPLETE,
    MigrationRequestKind.THROTTLE: MigrationSignal.THROTTLE,
    MigrationRequestKind.FORCE_CUTOVER: MigrationSignal.FORCE_CUTOVER,
}


def answer(draft: MigrationDraft, request: str) -> None:
    """Process a request without an outcome."""
    placed = draft.state.requests.get(request)
    if placed is None or draft.outcome(request) is not None:
        return
    requested = placed.request
    match requested.kind:
        case MigrationRequestKind.SUBMIT | MigrationRequestKind.REVERT:
            _submit(draft, request, requested)
        case MigrationRequestKind.RETRY:
            _retry(draft, request, requested)
        case MigrationRequestKind.CLEANUP:
            _clean_up(draft, request, requested)
        case MigrationRequestKind.APPROVE:
            draft.settle(request, OutcomeStatus.REFUSED, "approvals belong on topic migration-approval")
        case _:
            _signal_all(draft, request, requested)


def forget_outcome(draft: MigrationDraft, request: str) -> None:
    """The operator has deleted the request: its outcome goes too."""
    if request in draft.state.outcomes:
        draft.put(MigrationOutcomeKey(request), None)


def catch_up(draft: MigrationDraft) -> None:
    """Answer what the last owner has left unanswered, in the order of the requests."""
    state = draft.state
    for request in sorted(set(state.outcomes) - set(state.requests) - set(state.approvals)):
        forget_outcome(draft, request)
    for request in sorted(state.requests, key=lambda name: (state.requests[name].offset, name)):
        outcome = state.outcomes.get(request)
        requested = state.requests[request].request
        if outcome is None:
            answer(draft, request)
        elif outcome.status is OutcomeStatus.ACCEPTED and requested.kind is MigrationRequestKind.CLEANUP:
            draft.term.cleaning.update(_meant(draft, requested))
    for request in sorted(state.approvals, key=lambda name: (state.approvals[name].offset, name)):
        answer_approval(draft, request)
    settle_waiting(draft)


# --- submitting -----------------------------------------------------------------------------------------------


def _submit(draft: MigrationDraft, request: str, requested: MigrationRequested) -> None:
    try:
        check_name("migration id", requested.migration)
        spec = parse_request(requested.spec)
    except (MigrationSpecError, InvalidNameError) as error:
        return draft.settle(request, OutcomeStatus.REFUSED, str(error))
    if requested.migration in (ALL, "request", "outcome"):
        return draft.settle(request, OutcomeStatus.REFUSED, f"{requested.migration!r} is a reserved word, not an id")
    known = draft.migration(requested.migration)
    if known is not None:
        return _resubmit(draft, request, requested, spec, known)
    if spec.reverts is not None and (reason := _why_not_revertible(draft, spec.reverts)) is not None:
        return draft.settle(request, OutcomeStatus.REFUSED, reason)
    return _ask_database(draft, ExamineMigration(request, requested.migration, spec, reverted(draft, spec)))


def _ask_database(draft: MigrationDraft, effect: ExamineMigration) -> None:
    """One question at a time to the databases of one name: the order of submission is kept."""
    if effect.spec.database not in draft.term.examining:
        draft.term.examining[effect.spec.database] = effect.request
        draft.add_effect(replace(effect, asked_ms=draft.now.wall_ms))


def _resubmit(
    draft: MigrationDraft, request: str, requested: MigrationRequested, spec: MigrationSpec, known: MigrationRecorded
) -> None:
    """The same id never becomes a second migration: a pipeline may submit again whatever its first attempt led to.

    That it names the same database is found out by asking the database: names and addresses may have changed.
    """
    before = draft.spec(known)
    if _what_it_does(before) != _what_it_does(spec):
        reason = (
            f"{requested.migration} is another migration already ({before.statement!r}, context {before.context!r})"
        )
        draft.settle(request, OutcomeStatus.REFUSED, reason)
    else:
        _ask_database(
            draft, ExamineMigration(request, requested.migration, spec, is_known=True, known_server=known.server)
        )


def _what_it_does(spec: MigrationSpec) -> tuple[str, str, bool, str | None]:
    return spec.context, spec.statement, spec.declarative, spec.reverts


def _other_options(one: MigrationSpec, other: MigrationSpec) -> list[str]:
    """The options that differ. The database is compared by its identity, and ``found`` is the owner's."""
    names = [name for name in one.__struct_fields__ if name not in ("database", "found")]
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def _identified(draft: MigrationDraft, effect: ExamineMigration, server: str) -> None:
    """Process the identity of the database that a submission with a known id names."""
    known = draft.migration(effect.migration)
    if known is None:
        return answer(draft, effect.request)
    if known.server != server:
        was = known.server or f"{draft.spec(known).database or 'an address'} (accepted by an earlier version)"
        reason = (
            f"{effect.migration} is a migration of another database ({was}; {effect.spec.database} is {server}): "
            "give another --id"
        )
        return draft.settle(effect.request, OutcomeStatus.REFUSED, reason)
    by = _submitter(draft, effect.request, known)
    if known.state not in (MigrationState.FAILED, MigrationState.CANCELLED):
        return draft.settle(effect.request, OutcomeStatus.DONE, f"is {known.state} already{by}")
    others = _other_options(draft.spec(known), effect.spec)
    if others:
        reason = (
            f"{effect.migration} is {known.state}, and was submitted with other options ({', '.join(others)}). To try "
            f"it again as it was, run `headgate migration retry {effect.migration}`; for other options give another "
            "--id"
        )
        return draft.settle(effect.request, OutcomeStatus.REFUSED, reason)
    draft.signal(effect.migration, MigrationSignal.RETRY)
    draft.settle(effect.request, OutcomeStatus.DONE, f"was {known.state}, is retried{by}")
    return draft.burst()


def _submitter(draft: MigrationDraft, request: str, known: MigrationRecorded) -> str:
    """Who has submitted a known migration, if that was another user than the one who submits it now."""
    placed = draft.state.requests.get(request)
    now = "" if placed is None else user_of(placed.request.requested_by)
    return f", submitted by {known.submitted_by}" if user_of(known.submitted_by) not in ("", now) else ""


def _rival(draft: MigrationDraft, spec: MigrationSpec, server: str) -> str | None:
    """The pending migration of the database that a singleton cannot run beside, as a reason."""
    for name, record in draft.migrations():
        theirs = draft.spec(record)
        is_same = record.server == server if record.server else theirs.database == spec.database
        if record.state not in PENDING or not is_same:
            continue
        if spec.singleton:
            return f"singleton: {name} is {record.state}; wait for it, or cancel it"
        if spec.singleton_context and theirs.context != spec.context and theirs.reverts is None:
            return f"singleton_context: {name} of context {theirs.context!r} is {record.state}"
    return None


def _unknown(name: str) -> str:
    return coded(NOT_FOUND, f"migration {name} does not exist")


def _why_not_revertible(draft: MigrationDraft, name: str) -> str | None:
    record = draft.migration(name)
    if record is None:
        return _unknown(name)
    if not has_changed(record):
        is_complete = record.state is MigrationState.COMPLETE
        return (
            f"{name} has changed nothing ({record.message}): there is nothing to revert"
            if is_complete
            else f"{name} is {record.state}: only what is complete can be reverted"
        )
    for other, theirs in draft.migrations():
        is_of_table = theirs.table == record.table and is_same_database(theirs, record)
        if is_of_table and theirs.state in PENDING:
            return f"{other} of the same table is {theirs.state}"
    if (later := changed_since(draft, name, record)) is not None:
        return f"{later} has changed the same table since: only the last change of a table can be reverted"
    if name in draft.term.cleaning or isinstance(draft.term.busy.get(name), CleanUpMigration):
        return f"{name} is being cleaned up"
    return None


def examined(draft: MigrationDraft, effect: ExamineMigration, result: object) -> None:
    """Process the database's answer to a submission."""
    draft.term.examining.pop(effect.spec.database, None)
    placed = draft.state.requests.get(effect.request)
    if placed is not None and draft.outcome(effect.request) is None:
        match result:
            case Examined():
                _accept(draft, effect, result, placed)
            case Identified(server=server):
                _identified(draft, effect, server)
            case ExamineRefused(reason=reason):
                draft.settle(effect.request, OutcomeStatus.REFUSED, reason)
            case EffectFailed(reason=reason):
                _examine_later(draft, effect, reason)
            case _:
                raise TypeError(f"an examination cannot end with {type(result).__name__}")
    _answer_unexamined(draft, effect.spec.database)


def _accept(draft: MigrationDraft, effect: ExamineMigration, result: Examined, placed: PlacedRequest) -> None:
    spec = effect.spec
    accepted = MigrationSpec(
        **{name: getattr(spec, name) for name in spec.__struct_fields__} | {"found": result.statement}
    )
    # Another submission of the same id may have been accepted in between, or the table changed.
    if draft.migration(effect.migration) is not None or _is_outdated(draft, effect, result):
        return answer(draft, effect.request)
    if (reason := _rival(draft, accepted, result.server) or _elsewhere(draft, spec, result.server)) is not None:
        return draft.settle(effect.request, OutcomeStatus.REFUSED, reason)
    submitted_by = placed.request.requested_by
    if result.needs_approval and (reason := why_not_awaited(draft, submitted_by)) is not None:
        return draft.settle(effect.request, OutcomeStatus.REFUSED, reason)
    record = MigrationRecorded(
        owner_rev=draft.term.owner_rev,
        sequence=placed.offset,
        spec=written(accepted),
        action=result.action,
        table=result.table,
        is_immediate=result.is_immediate,
        state=first_state(result.needs_approval),
        stage="",
        attempt=0,
        retries=0,
        ending=None,
        owner_failed=False,
        has_nothing_to_do=result.has_nothing_to_do,
        launch_postponed=spec.postpone_launch,
        completion_postponed=spec.postpone_completion,
        is_ready_to_complete=False,
        was_ready=False,
        cutover_attempts=0,
        cutover_forced=False,
        rows_copied=0,
        table_rows=0,
        eta_seconds=-1,
        throttle_ratio=0.0,
        throttle_reason="",
        artifacts=(),
        note="",
        message=result.message,
        added_ms=draft.now.wall_ms,
        ready_ms=0,
        started_ms=0,
        live_ms=0,
        ended_ms=0,
        server=result.server,
        approval_required=result.needs_approval,
        submitted_by=submitted_by,
    )
    draft.record(effect.migration, record)
    what = f"{effect.migration}: {result.action} of {result.table}"
    waits = f"waits until another user runs `headgate migration approve {effect.migration}`"
    draft.settle(effect.request, OutcomeStatus.DONE, f"{what} {waits if result.needs_approval else 'is queued'}")
    draft.burst()
    return None


def _is_outdated(draft: MigrationDraft, effect: ExamineMigration, result: Examined) -> bool:
    """Whether a migration has changed the table since the database was asked: the answer may be about its old form.

    A moment after now does not count: the clock was set back, and the answer would be outdated each time.
    """
    return any(
        has_changed(record)
        and effect.asked_ms < record.ended_ms <= draft.now.wall_ms
        and (record.table, record.server) == (result.table, result.server)
        for _, record in draft.migrations()
    )


def _elsewhere(draft: MigrationDraft, spec: MigrationSpec, server: str) -> str | None:
    """Why a revert is refused: it would be done at another database than the change that it undoes."""
    record = reverted(draft, spec)
    if record is None or record.server in ("", server):
        return None
    return f"{spec.reverts} has changed another database ({record.server}; {spec.database} is {server} now)"


def _examine_later(draft: MigrationDraft, effect: ExamineMigration, reason: str) -> None:
    """Ask again after a pause, in which no other submission to the database is examined; not without an end."""
    count = draft.term.examined_again.get(effect.request, 0) + 1
    draft.term.examined_again[effect.request] = count
    if count >= EXAMINATIONS_MAX:
        draft.settle(
            effect.request, OutcomeStatus.FAILED, f"the database could not be asked: {reason}; submit it again"
        )
        return
    draft.term.examining[effect.spec.database] = effect.request
    draft.set_timer("examine", effect.request, EXAMINE_AGAIN_SECONDS)


def examine_again(draft: MigrationDraft, request: str) -> None:
    """Examine a submission again, after the pause that follows an examination that could not be done.

    If it was taken back since, the next one is examined.
    """
    for database, waiting in sorted(draft.term.examining.items()):
        if waiting == request:
            del draft.term.examining[database]
            _answer_unexamined(draft, database)


def _answer_unexamined(draft: MigrationDraft, database: str) -> None:
    """The next submissions in order, until one has to be examined at the same database."""
    requests = draft.state.requests
    for request in sorted(requests, key=lambda name: (requests[name].offset, name)):
        if database in draft.term.examining:
            return
        if requests[request].request.kind in (MigrationRequestKind.SUBMIT, MigrationRequestKind.REVERT):
            answer(draft, request)


# --- everything else ------------------------------------------------------------------------------------------


def _meant(draft: MigrationDraft, requested: MigrationRequested) -> list[str]:
    if requested.migration == ALL:
        return [name for name, _ in draft.migrations()]
    return [requested.migration] if draft.migration(requested.migration) is not None else []


def _signal_all(draft: MigrationDraft, request: str, requested: MigrationRequested) -> None:
    names = _meant(draft, requested)
    if not names and requested.migration != ALL:
        return draft.settle(request, OutcomeStatus.REFUSED, _unknown(requested.migration))
    ratio = requested.throttle_ratio if requested.throttle_ratio is not None else 1.0
    if requested.kind is MigrationRequestKind.THROTTLE and not 0.0 <= ratio <= 1.0:
        return draft.settle(request, OutcomeStatus.REFUSED, f"a ratio is 0 to 1, not {ratio:g}")
    if (
        requested.migration != ALL
        and (reason := _why_not_this_one(draft, requested.migration, requested.kind, ratio)) is not None
    ):
        return draft.settle(request, OutcomeStatus.REFUSED, reason)
    touched = 0
    for name in names:
        before = draft.migration(name)
        if before is None or before.state in TERMINAL or _why_not_this_one(draft, name, requested.kind, ratio):
            continue
        until_ms = (
            0
            if requested.expires_seconds is None
            else draft.now.wall_ms + round(max(requested.expires_seconds, 0) * 1_000)
        )
        said = "cancelled by " + (requested.requested_by or "an operator")
        cause = draft.cause(said, throttle_ratio=ratio, throttle_until_ms=until_ms)
        draft.signal(name, _SIGNALS[requested.kind], cause)
        touched += 1
        _follow(draft, name, requested)
    if requested.kind is MigrationRequestKind.CANCEL:
        _settle_cancel(draft, request, requested)
    elif not touched and requested.migration != ALL:
        draft.settle(request, OutcomeStatus.REFUSED, _why_terminal(draft, requested.migration))
    else:
        draft.settle(request, OutcomeStatus.DONE, f"{requested.kind} of {touched} migration{'s' * (touched != 1)}")
    return draft.burst()


def _why_not_this_one(draft: MigrationDraft, name: str, kind: MigrationRequestKind, ratio: float) -> str | None:
    """Why a third-party program cannot do what is requested."""
    record = draft.migration(name)
    strategy = None if record is None else draft.spec(record).strategy
    if kind is MigrationRequestKind.FORCE_CUTOVER and strategy in TOOLS:
        return f"strategy {strategy} cuts over by itself, and ends no sessions"
    if kind is MigrationRequestKind.THROTTLE and strategy is MigrationStrategy.PT_OSC and ratio not in (0.0, 1.0):
        return "strategy pt-osc either runs or is stopped. Use a ratio of 0 or 1"
    return None


def _follow(draft: MigrationDraft, name: str, requested: MigrationRequested) -> None:
    match requested.kind:
        case MigrationRequestKind.CANCEL:
            stop(draft, name, is_forced=False)
        case MigrationRequestKind.COMPLETE | MigrationRequestKind.FORCE_CUTOVER:
            cut_over_if_due(draft, name)
        case MigrationRequestKind.THROTTLE:
            await_unthrottling(draft, name)
        case _:
            pass


def await_unthrottling(draft: MigrationDraft, name: str) -> None:
    """Wake up when a migration's throttle ends. Its record has the time: an earlier owner may have set it."""
    record = draft.migration(name)
    if record is None or record.throttle_until_ms == 0 or record.state in TERMINAL:
        draft.cancel_timer("unthrottle", name)
    else:
        draft.set_timer("unthrottle", name, max(0, record.throttle_until_ms - draft.now.wall_ms) / 1_000)


def unthrottle(draft: MigrationDraft, name: str) -> None:
    """End a throttle whose time is over, or wait for the rest of its time: clocks of owners may differ."""
    record = draft.migration(name)
    if record is not None and 0 < record.throttle_until_ms <= draft.now.wall_ms:
        draft.signal(name, MigrationSignal.THROTTLE, draft.cause(throttle_ratio=0.0))
    else:
        await_unthrottling(draft, name)


def _why_terminal(draft: MigrationDraft, name: str) -> str:
    record = draft.migration(name)
    return f"{name} is {record.state} already" if record is not None else _unknown(name)


def _retry(draft: MigrationDraft, request: str, requested: MigrationRequested) -> None:
    record = draft.migration(requested.migration)
    if record is None or record.state not in (MigrationState.FAILED, MigrationState.CANCELLED):
        reason = f"{_why_terminal(draft, requested.migration)}: only a failed or cancelled migration can be retried"
        return draft.settle(request, OutcomeStatus.REFUSED, reason)
    is_awaited = draft.signal(requested.migration, MigrationSignal.RETRY).state is MigrationState.AWAITING_APPROVAL
    again = "waits for its approval" if is_awaited else "is queued"
    draft.settle(request, OutcomeStatus.DONE, f"{requested.migration} {again} again")
    return draft.burst()


def _clean_up(draft: MigrationDraft, request: str, requested: MigrationRequested) -> None:
    names = _meant(draft, requested)
    if not names and requested.migration != ALL:
        return draft.settle(request, OutcomeStatus.REFUSED, _unknown(requested.migration))
    pending = [name for name in names if (r := draft.migration(name)) is not None and r.state in PENDING]
    if pending and requested.migration != ALL:
        return draft.settle(request, OutcomeStatus.REFUSED, f"{pending[0]} is pending: cancel it first")
    draft.term.cleaning.update(set(names) - set(pending))
    draft.settle(request, OutcomeStatus.ACCEPTED, "the artifacts are being dropped")
    settle_waiting(draft)
    return draft.burst()


def _settle_cancel(draft: MigrationDraft, request: str, requested: MigrationRequested) -> None:
    names = _meant(draft, requested)
    records = [record for name in names if (record := draft.migration(name)) is not None]
    if any(record.ending is MigrationState.CANCELLED for record in records):
        draft.settle(request, OutcomeStatus.ACCEPTED, "it is being stopped")
    elif requested.migration == ALL or records[0].state is MigrationState.CANCELLED:
        draft.settle(request, OutcomeStatus.DONE, "cancelled")
    else:
        draft.settle(request, OutcomeStatus.REFUSED, f"it came too late: {requested.migration} is {records[0].state}")


def settle_waiting(draft: MigrationDraft) -> None:
    """Report the results of cancels and clean-ups that were accepted."""
    for request, placed in sorted(draft.state.requests.items()):
        outcome = draft.outcome(request)
        if outcome is None or outcome.status is not OutcomeStatus.ACCEPTED:
            continue
        requested = placed.request
        records = [record for name in _meant(draft, requested) if (record := draft.migration(name)) is not None]
        if requested.kind is MigrationRequestKind.CANCEL and not any(record.ending is not None for record in records):
            late = requested.migration != ALL and records and records[0].state is not MigrationState.CANCELLED
            if late:
                draft.settle(
                    request, OutcomeStatus.FAILED, f"it came too late: {requested.migration} is {records[0].state}"
                )
            else:
                draft.settle(request, OutcomeStatus.DONE, "cancelled")
        if requested.kind is MigrationRequestKind.CLEANUP and not any(
            record.artifacts for record in records if record.state in TERMINAL
        ):
            draft.settle(request, OutcomeStatus.DONE, "nothing of it is left")
