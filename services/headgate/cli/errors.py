"""The place where commands end.

An error whose type stands in the table of exit codes is printed as its message, which says what, where and what to do.
Any other is a bug and keeps its traceback.
"""

import os
from typing import Any

import typer
from typer.core import TyperGroup

from headgate.cli.exit_codes import ExitCode, exit_code_of
from headgate.cli.output import Output, complain, errors_as

__all__ = ["Commands"]


class Commands(TyperGroup):
    """The top group of commands: whatever a command raises comes through here."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error is printed and becomes its exit code."""
        errors_as(Output.TABLE)
        try:
            return super().invoke(ctx)
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                raise
            complain(str(error), int(code), code.name.lower())
            if code is ExitCode.STOPPED_HARD:
                # A part hangs on a thread that the interpreter would wait for at its end.
                os._exit(int(code))
            raise typer.Exit(int(code)) from error
