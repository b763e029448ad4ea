"""Types ``headgate source check``, and the statements that it prints."""

import json
from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner

from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app


class Checker:
    """Of one source. ``execute`` types a statement as an administrator."""

    def __init__(self, source: str, execute: Callable[[str], object], *options: str) -> None:
        self._arguments = [source, *options]
        self._execute = execute

    def check(self, *more: str) -> list[dict[str, Any]]:
        """What it reports. Its exit code is 52 if and only if something is wrong."""
        done = CliRunner().invoke(app, ["source", "check", *self._arguments, *more, "-o", "json"])
        assert done.exit_code in (ExitCode.DONE, ExitCode.CHECK_FAILED), done.output
        report = json.loads(done.stdout)
        checks: list[dict[str, Any]] = report["checks"]
        wrong = [check for check in checks if check["state"] == "wrong"]
        assert (done.exit_code == ExitCode.CHECK_FAILED) == bool(wrong)
        assert report["wrong"] == len(wrong)
        return checks

    def wrong(self, *more: str) -> dict[tuple[str, str], dict[str, Any]]:
        """(check, subject) → finding, of all that is wrong."""
        return {(check["check"], check["subject"]): check for check in self.check(*more) if check["state"] == "wrong"}

    def type_fixes(self) -> list[str]:
        """Type every statement that it prints for what is wrong, in its order."""
        typed = [line for found in self.wrong().values() if found["fix_in"] == "sql" for line in found["fix"]]
        for statement in typed:
            self._execute(statement)
        return typed
