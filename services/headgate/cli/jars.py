"""``headgate jars``: the jars that agents give to Spark."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headgate.cli.options import CommandGroup, Format
from headgate.cli.output import Output, note, show_rows
from headgate.cli.rendering import console
from headgate.config.settings import load_settings
from headgate.provisioning.artifacts import ensure, problem_of
from headgate.provisioning.errors import ArtifactError

app = CommandGroup(help="Download the jars that agents need.", no_args_is_help=True)

_SET: Final = "spark-kafka"


@app.callback()
def jars() -> None:
    """Fetch jars ahead of time."""


@app.command()
def fetch(
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="copy them here, for machines without internet access"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Download Spark's Kafka connector, and check each jar against its pinned hash.

    Without this the first `headgate serve agent` does it. Jars are kept in HEADGATE_CACHE. On machines without internet
    access set HEADGATE_SPARK__JARS to a copy of the folder that --folder names.

    Example: headgate jars fetch --folder /opt/headgate/jars
    """
    found = _fetched()
    if folder is not None:
        found = _copied(found, folder)
    show_rows(("file",), [{"file": str(jar)} for jar in found], output)


def fetch_before_start(flags: Mapping[str, Any]) -> None:
    """Fetch the jars that an agent with these flags needs, if a terminal shows the progress bar.

    Raises SettingsError, EmbeddedError.
    """
    if sys.stderr.isatty() and not load_settings(flags).spark.jars and problem_of(_SET) is not None:
        _fetched()


def _fetched() -> tuple[Path, ...]:
    """The jars, with a bar on a terminal while they are fetched. Raises ArtifactError."""
    out = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("Fetching jars", total=None)
        return ensure(_SET, lambda _name, done, total: bar.update(task, completed=done, total=total))


def _copied(jars: tuple[Path, ...], folder: Path) -> tuple[Path, ...]:
    """The same files in ``folder``. Raises ArtifactError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            (folder / jar.name).write_bytes(jar.read_bytes())
    except OSError as error:
        raise ArtifactError(f"cannot copy the jars to {folder}: {error.strerror}. Choose another --folder") from error
    note(f"start agents with HEADGATE_SPARK__JARS={folder.absolute()}")
    return tuple(folder / jar.name for jar in jars)
