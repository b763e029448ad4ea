"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here.

A command's module is imported when the command is called: all of them together take a second of processor time.

An error whose type is in the table of exit codes is printed as its message, which says what failed, where, and what to
do. Any other is a bug and keeps its traceback. What the library says about a wrong value is put into our words.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import zip_longest
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException
from typer.main import get_command

from headgate import SCHEMA_VERSION, __version__
from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.cli.options import CommandGroup, Format, HelpfulGroup
from headgate.cli.output import Output, complain, errors_as, show_object
from headgate.config.wording import explained, one_of

INTERRUPTED: Final = 130
"""What a shell says of a command that Ctrl-C has ended: 128 and the signal's number."""


class Commands(HelpfulGroup):
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


_SETUP: Final = "Set up"
_FEEDS: Final = "Run feeds"
_CHANGES: Final = "Change schemas and change logs"
_OTHERS_PANEL: Final = "Try it out (headgate-lab)"

OWN_COMMANDS: Final[Mapping[str, str]] = {
    "doctor": "headgate.cli.doctor:doctor",
    "jars": "headgate.cli.jars:app",
    "source": "headgate.cli.source:app",
    "topic": "headgate.cli.topic:app",
    "serve": "headgate.cli.serve:app",
    "feed": "headgate.cli.feed:app",
    "why": "headgate.cli.why:why",
    "verify": "headgate.cli.verify:verify",
    "table": "headgate.cli.tables:app",
    "deadletter": "headgate.cli.deadletter:app",
    "agent": "headgate.cli.agents:app",
    "coordinator": "headgate.cli.coordinators:app",
    "migration": "headgate.cli.migration:app",
    "generation": "headgate.cli.generations:app",
}
"""Where each is, in the order in which a user meets them, which is that of the help."""

PANELS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("doctor", "jars", "source", "topic", "serve"), _SETUP),
    **dict.fromkeys(("feed", "why", "verify", "table", "deadletter", "agent", "coordinator"), _FEEDS),
    **dict.fromkeys(("migration", "generation"), _CHANGES),
}
"""The part of the help in which each stands. Commands of other distributions are in the last."""

LAB_COMMANDS: Final = ("demo", "up", "chaos", "bench", "sim")
"""Commands of the distribution ``headgate-lab``. They are listed without it as well, and then say how to get it."""

GROUP: Final = "headgate.commands"
"""Entry points: what an installed distribution adds to the command line. Imported when called, for some bring Spark."""


class _AllCommands(Commands):
    def list_commands(self, ctx: Any) -> list[str]:
        of_others = dict.fromkeys([*LAB_COMMANDS, *entry_points(group=GROUP).names])
        return [*OWN_COMMANDS, *super().list_commands(ctx), *of_others]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in OWN_COMMANDS:
            return _own_command(cmd_name)
        found = tuple(entry_points(group=GROUP, name=cmd_name))
        if found:
            return _command(cmd_name, found[0].load())
        return _command(cmd_name, _missing, takes_anything=True) if cmd_name in LAB_COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See the library's, which does not know commands that are not imported yet.

        Shell completion (``resilient_parsing``) resolves what is typed so far: a typo completes to nothing.
        """
        if not ctx.resilient_parsing and args[0].isidentifier() and self.get_command(ctx, args[0]) is None:
            raise typer.BadParameter(f"command {one_of(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


@cache
def _own_command(name: str) -> Any:
    """Kept, for the library asks several times, and making one takes time."""
    try:
        found = resolve_name(OWN_COMMANDS[name])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "headgate":
            raise
        return _command(name, _incomplete(error.name), takes_anything=True)
    return _command(name, found)


def _command(name: str, found: Any, *, takes_anything: bool = False) -> Any:
    """A function, or a group of commands, under the name it is called by."""
    if not isinstance(found, typer.Typer):
        alone = CommandGroup()
        alone.command(name, context_settings=ANY_ARGUMENTS if takes_anything else None)(found)
        found = alone
    command: Any = get_command(found)
    command.name = name
    command.rich_help_panel = PANELS.get(name, _OTHERS_PANEL)
    return command


ANY_ARGUMENTS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def _incomplete(package: str) -> Callable[[], None]:
    """A command that cannot be imported: help lists it, and it says which package is missing."""

    def incomplete() -> None:
        """A Python package that this needs is not installed."""
        raise CommandError(
            ExitCode.SETTING,
            f"the Python package {package} is not installed. Install Headgate again with its dependencies (in a clone: "
            "make .venv/.ready)",
        )

    return incomplete


def _missing(ctx: typer.Context) -> None:
    """Part of the lab, which is not installed here."""
    raise CommandError(
        ExitCode.USAGE,
        f"headgate {ctx.info_name} is part of the lab, which is not installed: pip install 'headgate[lab]'",
    )


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headgate {__version__}")
        raise typer.Exit


app = CommandGroup(
    cls=_AllCommands,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def headgate(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep tables in step: change events from Kafka into databases, exactly once, from one writer per table."""


@app.command(rich_help_panel=_SETUP)
def version(output: Format = Output.TABLE) -> None:
    """Show the version, and the version of the control records that it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
