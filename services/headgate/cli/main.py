"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here.

A command's module is imported when the command is called: all of them together take seconds of processor time.

An error whose type is in the table of exit codes is printed as its message, with what failed, where, and what to do.
Any other is a bug and keeps its traceback. The library's errors about wrong values are reworded.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from headgate import __version__
from headgate.app.command_error import CommandError, ExitCode
from headgate.cli.bash_words import whole_words
from headgate.cli.groups import CommandGroup, Late, LateGroup, command_of, listed
from headgate.cli.output import Output, complain, errors_as
from headgate.cli.standard_error import lossy_errors
from headgate.cli.standard_output import checked_output
from headgate.provisioning.installing import LAB

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

INTERRUPTED: Final = 130
"""The exit status of a command that Ctrl-C has ended, as in shells: 128 and the signal's number."""


class Commands(LateGroup):
    """The top group of commands: whatever a command raises comes through here."""

    def main(self, *args: Any, **further: Any) -> Any:
        """See the library's; an error of usage is one like any other where programs read."""
        lossy_errors()
        with checked_output():
            return self._main(*args, **further)

    def _main(self, *args: Any, **further: Any) -> Any:
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
            error.message = resolve_name("headgate.cli.usage:in_our_words")(error)
            raise
        except Exception as error:
            if _is_interrupted(error):
                raise KeyboardInterrupt from error
            code: ExitCode | None = resolve_name("headgate.app.exit_codes:exit_code_of")(error)
            if code is None:
                raise
            complain(str(error), int(code), code.name.lower())
            if code is ExitCode.STOPPED_HARD:
                # A part hangs on a thread that the interpreter would wait for at its end.
                os._exit(int(code))
            raise typer.Exit(int(code)) from error


def _is_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C came while a library's C code ran. Python reports that as a SystemError, caused by the signal."""
    return isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)


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
_LAB: Final = "Try it out (headgate-lab)"

OWN_COMMANDS: Final[Mapping[str, Late]] = {
    "doctor": Late(
        "headgate.cli.doctor:doctor", "Check everything that an installation needs, and show how to fix it.", _SETUP
    ),
    "jars": Late("headgate.cli.jars:app", "Download the jars that agents need.", _SETUP),
    "source": Late("headgate.cli.source:app", "Check source databases.", _SETUP),
    "topic": Late("headgate.cli.topic:app", "Create and inspect the control topics.", _SETUP),
    "serve": Late("headgate.cli.serve:app", "Run a service.", _SETUP),
    "feed": Late("headgate.cli.feed:app", "Create, inspect and control feeds.", _FEEDS),
    "why": Late("headgate.cli.why:why", "Explain what holds a feed or a migration, and what to do about it.", _FEEDS),
    "verify": Late("headgate.cli.verify:verify", "Compare a feed's source and target rows while both change.", _FEEDS),
    "table": Late(
        "headgate.cli.tables:app", "Inspect, pause, move, split, resync and optimize the tables of feeds.", _FEEDS
    ),
    "deadletter": Late("headgate.cli.deadletter:app", "Inspect, replay and purge changes that were set aside.", _FEEDS),
    "agent": Late("headgate.cli.agents:app", "List agents and drain them.", _FEEDS),
    "coordinator": Late("headgate.cli.coordinators:app", "List coordinators and hand over their shards.", _FEEDS),
    "migration": Late("headgate.cli.migration:app", "Change schemas under load.", _CHANGES),
    "generation": Late("headgate.cli.generations:app", "Create and re-partition change logs.", _CHANGES),
    "cluster": Late("headgate.cli.cluster:app", "Delete everything that Headgate made.", _SETUP),
    "version": Late(
        "headgate.cli.version:version",
        "Show the version, and the version of the control records that it writes.",
        _SETUP,
    ),
}
"""Every command, in the order in which a user meets them, which is that of the help."""

PANELS: Final[Mapping[str, str]] = {name: late.panel or _SETUP for name, late in OWN_COMMANDS.items()}
"""Sections of the help with their commands. Commands of other distributions are in the last one."""

LAB_COMMANDS: Final = ("demo", "up", "chaos", "bench", "sim")
"""Commands of the distribution ``headgate-lab``. Without it they are listed too, and print how to install it."""

_LAB_HELP: Final[Mapping[str, str]] = {
    "demo": "Watch replication on real parts, with agents and the owner killed on the way.",
    "up": "Start everything on this machine, for your own databases or the demo's.",
    "chaos": "Kill, freeze and cut off everything, and check that nothing is lost.",
    "bench": "Measure throughput, latency and cost.",
    "sim": "Simulate the control plane in a world of faults.",
}

GROUP: Final = "headgate.commands"
"""Entry points: what an installed distribution adds to the command line. Imported when called: some need Spark."""


def _of_others() -> "EntryPoints":
    """Commands of other distributions. The library is imported when a command is not one of our own, or for help."""
    found: EntryPoints = resolve_name("importlib.metadata:entry_points")(group=GROUP)
    return found


class _AllCommands(Commands):
    late = OWN_COMMANDS

    def main(self, *args: Any, **further: Any) -> Any:
        with whole_words():
            return super().main(*args, **further)

    def list_commands(self, ctx: Any) -> list[str]:
        of_others = dict.fromkeys([*LAB_COMMANDS, *_of_others().names])
        return [*super().list_commands(ctx), *of_others]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if self._is_listing and cmd_name in _LAB_HELP:
            return listed(cmd_name, Late("", _LAB_HELP[cmd_name], _LAB))
        found = tuple(_of_others().select(name=cmd_name))
        if found:
            return command_of(cmd_name, found[0].load(), _LAB)
        return command_of(cmd_name, _missing, _LAB, takes_anything=True) if cmd_name in LAB_COMMANDS else None


def _missing(ctx: typer.Context) -> None:
    """Part of the lab, which is not installed here."""
    raise CommandError(
        ExitCode.USAGE,
        f"headgate {ctx.info_name} is part of the lab, which is not installed: {LAB}",
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
    """Keep tables in step: changes from Kafka into databases, topics and lakes, exactly once, one writer per table."""
