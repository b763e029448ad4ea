"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here."""

from importlib.metadata import entry_points
from typing import Any, Final

import typer
from typer.main import get_command

from headgate import SCHEMA_VERSION, __version__
from headgate.cli import agents, coordinators, deadletter, feed, generations, migration, serve, tables, topic
from headgate.cli.errors import Commands
from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.options import CommandGroup, Format
from headgate.cli.output import Output, show_object
from headgate.cli.verify import verify
from headgate.cli.why import why

__all__ = ["app"]

LAB_COMMANDS: Final = ("demo", "up", "chaos", "bench", "sim")
"""Commands of the distribution ``headgate-lab``. They are listed without it as well, and then say how to get it."""

GROUP: Final = "headgate.commands"
"""Entry points: what an installed distribution adds to the command line. Imported when called, for some bring Spark."""


class _AllCommands(Commands):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*dict.fromkeys([*LAB_COMMANDS, *entry_points(group=GROUP).names]), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = tuple(entry_points(group=GROUP, name=cmd_name))
        if found:
            return _command(cmd_name, found[0].load())
        return _command(cmd_name, _missing) if cmd_name in LAB_COMMANDS else None


def _command(name: str, found: Any) -> Any:
    """A function, or a group of commands, under the name it is called by."""
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
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


app = CommandGroup(
    cls=_AllCommands,
    help="Keeps tables in step: change events from Kafka into databases, exactly once, from one writer per table.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(serve.app, name="serve")
app.add_typer(feed.app, name="feed")
app.add_typer(tables.app, name="table")
app.add_typer(agents.app, name="agent")
app.add_typer(coordinators.app, name="coordinator")
app.add_typer(topic.app, name="topic")
app.add_typer(generations.app, name="generation")
app.add_typer(deadletter.app, name="deadletter")
app.add_typer(migration.app, name="migration")
app.command("verify")(verify)
app.command("why")(why)


@app.command()
def version(output: Format = Output.TABLE) -> None:
    """Say which version this is, and which schema version it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
