"""What the help of each command says."""

import re
from typing import Any

import pytest
from typer.main import get_command

from headgate.cli.groups import HelpfulGroup
from headgate.cli.main import LAB_COMMANDS, app
from support.commands import commands

WORDS_MIN = 3
"""Fewer name a unit or repeat the option."""

ALL = dict(commands())

EXAMPLES = {name for name in ALL if name.startswith("serve ")} | {
    "deadletter list",
    "deadletter replay",
    "deadletter show",
    "feed list",
    "feed resume",
    "feed show",
    "feed skip",
    "generation create",
    "generation grow",
    "generation list",
    "generation lookup",
    "generation resize",
    "generation show",
    "migration cancel",
    "migration complete",
    "migration list",
    "migration revert",
    "migration show",
    "migration submit",
    "topic create",
}
"""The commands that are used most."""


@pytest.mark.parametrize("name", ALL)
def test_each_option_is_explained(name: str) -> None:
    for option in ALL[name].params:
        if option.param_type_name == "option" and option.name != "help":
            words = re.sub(r"\[.*?\]", "", option.help or "").split()
            assert len(words) >= WORDS_MIN, f"headgate {name} {option.opts[0]}: {option.help!r}"


@pytest.mark.parametrize("name", ALL)
def test_arguments_are_named_in_capitals(name: str) -> None:
    for argument in ALL[name].params:
        if argument.param_type_name == "argument":
            assert (argument.metavar or "").isupper(), f"headgate {name} {argument.name}"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_commands_that_are_used_most_have_an_example(name: str) -> None:
    assert f"Example: headgate {name}" in re.sub(r"\s+", " ", ALL[name].help)


def test_an_order_of_commands_names_every_command_of_its_group() -> None:
    for path, group in _groups(get_command(app), ()):
        if isinstance(group, HelpfulGroup) and group.order:
            assert group.list_commands(group.context_class(group)) == list(group.order), path


def _groups(group: Any, path: tuple[str, ...]) -> Any:
    yield path, group
    context = group.context_class(group)
    for name in group.list_commands(context):
        if path or name not in LAB_COMMANDS:
            command = group.get_command(context, name)
            if hasattr(command, "list_commands"):
                yield from _groups(command, (*path, name))
