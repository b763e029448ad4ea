"""What the help of each command says."""

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from headgate.cli.groups import HelpfulGroup
from headgate.cli.main import LAB_COMMANDS, app
from support.commands import commands

WORDS_MIN = 3
"""Fewer name a unit or repeat the option."""

ALL = dict(commands())

WITHOUT_EXAMPLE = {"version"}
"""It takes nothing."""


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


@pytest.mark.parametrize("name", sorted(ALL.keys() - WITHOUT_EXAMPLE))
def test_each_command_has_an_example_that_can_be_typed(name: str) -> None:
    (example,) = re.findall(r"Example: headgate (.*?)(?:\n\n|$)", ALL[name].help.strip(), re.DOTALL)
    words = shlex.split(example.strip().rstrip("."))
    given = name.split()
    assert words[: len(given)] == given
    top = get_command(app)
    above = top.context_class(top, info_name="headgate", **top.context_settings)  # the library keeps its help options
    with ALL[name].make_context(name, words[len(given) :], parent=above):
        pass  # its arguments and options exist, and have values of their types


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
