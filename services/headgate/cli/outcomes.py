"""What becomes of a request, as an exit code: the one place where every group of commands asks for it."""

import getpass
import os
import socket
from collections.abc import Callable

from headgate.cli.exit_codes import CommandError, ExitCode, exit_code_of_refusal
from headgate.records.control import OutcomeStatus, RequestSettled

__all__ = ["requester", "require_done"]


def requester() -> str:
    """Who runs this command, as ``user@host``. A user without a passwd entry is shown as its numeric id."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # `docker run --user 12345` gives ids that no passwd entry names
    return f"{user}@{socket.gethostname()}"


def require_done(
    what: str,
    outcome: RequestSettled | None,
    timeout_seconds: float,
    *,
    unanswered: Callable[[], str],
    next_step: str = "give a longer --timeout",
) -> RequestSettled:
    """Return the outcome if it is ``done``.

    ``what`` names the request in errors, for example ``cancel of m1``. ``unanswered`` says why nobody may have
    answered, and ``next_step`` what to do about a request that its owner accepted and has not finished.

    Raises CommandError: REQUEST_TIMED_OUT without a final outcome, REQUEST_FAILED, and for a refusal the exit code of
    its reason.
    """
    if outcome is None:
        raise CommandError(ExitCode.REQUEST_TIMED_OUT, unanswered())
    if outcome.status is OutcomeStatus.ACCEPTED:
        raise CommandError(
            ExitCode.REQUEST_TIMED_OUT,
            f"{what} was accepted, but is not done after {timeout_seconds:g} s: {outcome.reason}; {next_step}",
        )
    if outcome.status is OutcomeStatus.REFUSED:
        code = exit_code_of_refusal(outcome.reason)
        raise CommandError(code, f"{what} was refused, nothing was changed: {outcome.reason}")
    if outcome.status is OutcomeStatus.FAILED:
        raise CommandError(ExitCode.REQUEST_FAILED, f"{what} failed: {outcome.reason}")
    return outcome
