"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here.

A command's module is imported when the command is called: all of them together take a second of processor time.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Final

import typer
from typer.main import get_command

from headgate import SCHEMA_VERSION, __version__
from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.errors import Commands
from headgate.cli.option_groups import CommandGroup
from headgate.cli.options import Format
from headgate.cli.output import Output, show_object
from headgate.config.wording import one_of

OWN_COMMANDS: Final[Mapping[str, str]] = {
    "serve": "headgate.cli.serve:app",
    "feed": "headgate.cli.feed:app",
    "table": "headgate.cli.tables:app",
    "agent": "headgate.cli.agents:app",
    "coordinator": "headgate.cli.coordinators:app",
    "topic": "headgate.cli.topic:app",
    "generation": "headgate.cli.generations:app",
    "deadletter": "headgate.cli.deadletter:app",
    "migration": "headgate.cli.migration:app",
    "verify": "headgate.cli.verify:verify",
    "why": "headgate.cli.why:why",
}
"""Where each is, in the order in which they are listed."""

LAB_COMMANDS: Final = ("demo", "up", "chaos", "bench", "sim")
"""Commands of the distribution ``headgate-lab``. They are listed without it as well, and then say how to get it."""

GROUP: Final = "headgate.commands"
"""Entry points: what an installed distribution adds to the command line. Imported when called, for some bring Spark."""


class _AllCommands(Commands):
    def list_commands(self, ctx: Any) -> list[str]:
        of_others = dict.fromkeys([*LAB_COMMANDS, *entry_points(group=GROUP).names])
        return [*of_others, *OWN_COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in OWN_COMMANDS:
            return _own_command(cmd_name)
        found = tuple(entry_points(group=GROUP, name=cmd_name))
        if found:
            return _command(cmd_name, found[0].load())
        return _command(cmd_name, _missing) if cmd_name in LAB_COMMANDS else None

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
    return _command(name, resolve_name(OWN_COMMANDS[name]))


def _command(name: str, found: Any) -> Any:
    """A function, or a group of commands, under the name it is called by."""
    if not isinstance(found, typer.Typer):
        alone = CommandGroup(add_completion=False)
        alone.command(name, context_settings=ANY_ARGUMENTS if found is _missing else None)(found)
        found = alone
    command = get_command(found)
    command.name = name
    return command


ANY_ARGUMENTS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def _missing(ctx: typer.Context) -> None:
    """Part of the lab, which is not installed here."""
    raise CommandError(
        ExitCode.USAGE,
        f"headgate {ctx.info_name} is part of the lab, which is not installed: pip install 'headgate[lab]'",
    )


app = CommandGroup(cls=_AllCommands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def headgate() -> None:
    """Keep tables in step: change events from Kafka into databases, exactly once, from one writer per table."""


@app.command()
def version(output: Format = Output.TABLE) -> None:
    """Say which version this is, and which schema version it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
