"""The ``headgate`` command: every group of commands hangs here, and every expected error ends here."""

import typer

from headgate import SCHEMA_VERSION, __version__
from headgate.cli import agents, feed, serve, tables, topic
from headgate.cli.errors import Commands
from headgate.cli.options import Format
from headgate.cli.output import Output, show_object
from headgate.cli.verify import verify
from headgate.cli.why import why
from headgate.demo.command import demo, up

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    help="Keeps tables in step: change events from Kafka into databases, exactly once, from one writer per table.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)
app.command("up")(up)
app.add_typer(serve.app, name="serve")
app.add_typer(feed.app, name="feed")
app.add_typer(tables.app, name="table")
app.add_typer(agents.app, name="agent")
app.add_typer(topic.app, name="topic")
app.command("verify")(verify)
app.command("why")(why)


@app.command()
def version(output: Format = Output.TABLE) -> None:
    """Say which version this is, and which schema version it writes."""
    show_object({"version": __version__, "schema_version": SCHEMA_VERSION}, output)
