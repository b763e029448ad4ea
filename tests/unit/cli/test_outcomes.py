"""An outcome has one meaning for every group of commands: its exit code, and a message that says what to do."""

import ast
import os
import pwd
from pathlib import Path

import pytest

from headgate import cli
from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.outcomes import requester, require_done
from headgate.records.control import OutcomeStatus, RequestSettled

DONE = RequestSettled(1, OutcomeStatus.DONE, "created", 1)


def _settled(status: OutcomeStatus, reason: str) -> RequestSettled:
    return RequestSettled(1, status, reason, 1)


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (None, ExitCode.REQUEST_TIMED_OUT, "nobody answered"),
        (_settled(OutcomeStatus.ACCEPTED, "it is being stopped"), ExitCode.REQUEST_TIMED_OUT, "it is being stopped"),
        (_settled(OutcomeStatus.REFUSED, "too late"), ExitCode.REQUEST_REFUSED, "too late"),
        (_settled(OutcomeStatus.REFUSED, "not_found: m1 does not exist"), ExitCode.NOT_FOUND, "m1 does not exist"),
        (_settled(OutcomeStatus.REFUSED, "sink_unavailable: away"), ExitCode.SINK_UNAVAILABLE, "away"),
        (_settled(OutcomeStatus.FAILED, "the disk is full"), ExitCode.REQUEST_FAILED, "the disk is full"),
    ],
)
def test_only_done_is_success(outcome: RequestSettled | None, code: ExitCode, said: str) -> None:
    with pytest.raises(CommandError, match=said) as raised:
        require_done("cancel of m1", outcome, 3.0, unanswered=lambda: "nobody answered")
    assert raised.value.code is code


def test_done_is_returned() -> None:
    assert require_done("cancel of m1", DONE, 3.0, unanswered=lambda: "") is DONE


def test_every_status_is_decided_in_one_place() -> None:
    """A second mapping of outcomes lost exit codes before: commands leave it to require_done."""
    elsewhere = {
        f"{module.name}:{node.lineno}"
        for module in Path(cli.__file__).parent.glob("*.py")
        if module.name != "outcomes.py"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "OutcomeStatus"
        and node.attr in ("REFUSED", "FAILED")
    }
    assert not elsewhere


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    unknown = max(each.pw_uid for each in pwd.getpwall() if each.pw_uid < 60_000) + 1
    monkeypatch.setattr(os, "getuid", lambda: unknown)
    assert requester().startswith(f"{unknown}@")
