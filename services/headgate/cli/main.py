"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here."""

from importlib import import_module
from typing import Any, Final

import typer
from typer.main import get_command

from headgate import SCHEMA_VERSION, __version__
from headgate.cli import agents, coordinators, deadletter, feed, serve, tables, topic
from headgate.cli.errors import Commands
from headgate.cli.options import Format
from headgate.cli.output import Output, show_object
from headgate.cli.verify import verify
from headgate.cli.why import why

__all__ = ["app"]

LATE: Final = {
    "demo": ("headgate.demo.command", "demo"),
    "up": ("headgate.demo.command", "up"),
    "chaos": ("headgate.chaos.command", "chaos"),
    "bench": ("headgate.benchmarks.command", "app"),
    "sim": ("headgate.cli.sim", "sim"),
}
"""Commands that bring Spark and servers along: imported when they are called, for the others answer in a blink."""


class _AllCommands(Commands):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*LATE, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in LATE:
            return super().get_command(ctx, cmd_name)
        module, attribute = LATE[cmd_name]
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name)(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command


app = typer.Typer(
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
app.add_typer(deadletter.app, name="deadletter")
app.command("verify")(verify)
app.command("why")(why)


@app.command()
def version(output: Format = Output.TABLE) -> None:
    """Say which version this is, and which schema version it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
