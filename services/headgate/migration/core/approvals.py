"""Approvals: a migration may have to wait until a user other than its submitter approves it.

Users name themselves in their own commands (``requested_by``); nothing here can check that. What can be checked is the
topic on which an approval is stored: Kafka decides who may write there (docs/migrations.md).
"""

from typing import Final

from headgate.migration.core.draft import MigrationDraft
from headgate.migration.core.transitions import MigrationSignal
from headgate.records.control import OutcomeStatus
from headgate.records.migration import MigrationRequested, MigrationRequestKind, MigrationState
from headgate.records.refusals import NOT_FOUND, coded

LEVEL: Final = 2
"""The first schema level at which a migration can wait for an approval."""


def answer_approval(draft: MigrationDraft, request: str) -> None:
    """Approve a migration, or refuse to, unless the request has an outcome."""
    placed = draft.state.approvals.get(request)
    if placed is None or draft.outcome(request) is not None:
        return None
    requested = placed.request
    if (reason := _why_not(draft, requested)) is not None:
        return draft.settle(request, OutcomeStatus.REFUSED, reason)
    draft.signal(requested.migration, MigrationSignal.APPROVE, draft.cause(approved_by=requested.requested_by))
    draft.settle(request, OutcomeStatus.DONE, f"{requested.migration} is approved and queued")
    return draft.burst()


def _why_not(draft: MigrationDraft, requested: MigrationRequested) -> str | None:
    if requested.kind is not MigrationRequestKind.APPROVE:
        return f"topic migration-approval is for approvals; {requested.kind} belongs on topic migration-request"
    record = draft.migration(requested.migration)
    if record is None:
        return coded(NOT_FOUND, f"migration {requested.migration} does not exist")
    if record.state is not MigrationState.AWAITING_APPROVAL:
        by = f", approved by {record.approved_by}" if record.approved_by else ""
        return f"{requested.migration} is {record.state}{by}: it waits for no approval"
    user = user_of(requested.requested_by)
    if not user:
        return "the approval does not name its user"
    if user == user_of(record.submitted_by):
        return f"{requested.migration} was submitted by {record.submitted_by}: another user must approve it"
    return None


def why_not_awaited(draft: MigrationDraft, submitted_by: str) -> str | None:
    """Why a submission that needs an approval cannot wait for one."""
    if not user_of(submitted_by):
        return "the connection requires an approval by another user, and the submission does not name its user"
    if draft.state.level < LEVEL:
        return (
            "the connection requires an approval, which waits for the upgrade of all processes: the log is written at "
            f"schema level {draft.state.level}, this needs {LEVEL}"
        )
    return None


def user_of(requested_by: str) -> str:
    """The user in ``ann@host (pid 7)``: one user at two hosts is one user."""
    return requested_by.partition(" (")[0].partition("@")[0]
