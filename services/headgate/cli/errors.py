"""The place where commands end.

An error whose type stands in the table of exit codes is printed as its message, which says what, where and what to do.
Any other is a bug and keeps its traceback. What the command line's library says of a wrong value is put into our words.
"""

import os
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.exceptions import TyperException

from headgate.app.exit_codes import ExitCode, exit_code_of
from headgate.cli.output import Output, complain, errors_as
from headgate.config.wording import explained, one_of

INTERRUPTED: Final = 130
"""What a shell says of a command that Ctrl-C has ended: 128 and the signal's number."""


class Commands(TyperGroup):
    """The top group of commands: whatever a command raises comes through here."""

    def main(self, *args: Any, **further: Any) -> Any:
        """See the library's; an error of usage is one like any other where programs read."""
        given = args[0] if args else further.pop("args", None)
        given = list(sys.argv[1:] if given is None else given)
        asked = _asked(given)
        if asked is Output.TABLE:
            return super().main(given, *args[1:], **further)
        try:
            code = super().main(given, *args[1:], **{**further, "standalone_mode": False})
        except TyperException as error:
            errors_as(asked)
            complain(error.format_message(), int(ExitCode.USAGE), ExitCode.USAGE.name.lower())
            code = int(ExitCode.USAGE)
        except typer.Abort:
            code = int(ExitCode.BUG)
        except KeyboardInterrupt:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else int(ExitCode.DONE))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error is printed and becomes its exit code."""
        errors_as(Output.TABLE)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _in_our_words(error)
            raise
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                raise
            complain(str(error), int(code), code.name.lower())
            if code is ExitCode.STOPPED_HARD:
                # A part hangs on a thread that the interpreter would wait for at its end.
                os._exit(int(code))
            raise typer.Exit(int(code)) from error


def _in_our_words(error: typer.BadParameter) -> str:
    """What is wrong with the value, and which there are."""
    if not isinstance(error.__cause__, ValidationError) or error.param is None or error.ctx is None:
        return error.message
    detail = error.__cause__.errors()[0]
    choices = [str(item.value) for item in error.param.shell_complete(error.ctx, "")]
    if detail["type"] == "value_error" and choices:
        return one_of(detail["input"], choices)
    return explained(detail)


def _asked(arguments: Sequence[str]) -> Output:
    """The output format that the raw arguments ask for, before they are parsed. The last one wins."""
    asked = Output.TABLE
    for word, value in zip_longest(arguments, arguments[1:], fillvalue=""):
        if word == "--":
            break
        option, equals, joined = word.partition("=")
        if word in ("-o", "--output"):
            said = value
        elif option == "--output" and equals:
            said = joined
        elif word.startswith("-o") and len(word) > len("-o"):
            said = word.removeprefix("-o")
        else:
            continue
        asked = Output(said) if said in list(Output) else Output.TABLE
    return asked
