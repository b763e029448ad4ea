"""The product's commands, as click knows them."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from headgate.cli.main import LAB_COMMANDS, app


def commands() -> Iterator[tuple[str, Any]]:
    """Command line → command. The lab's commands start and drop their own servers, so they are left out."""
    yield from _below(get_command(app), ())


def _below(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    context = group.context_class(group)
    for name in group.list_commands(context):
        if not path and name in LAB_COMMANDS:
            continue
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _below(command, (*path, name))
        else:
            yield " ".join((*path, name)), command
