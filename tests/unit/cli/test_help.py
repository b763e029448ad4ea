"""What the help of each command says."""

import re
import shlex
from typing import Any

from rich.text import Text
from typer.main import get_command

from headgate.cli.groups import HelpfulGroup
from headgate.cli.main import LAB_COMMANDS, app
from headgate.config.settings import OPTIONS, known_variables
from support.commands import commands

WORDS_MIN = 3
"""Fewer name a unit or repeat the option."""

ALL = dict(commands())
assert ALL, "the tests below look at each"

WITHOUT_EXAMPLE = {"version"}
"""It takes nothing."""


def test_each_option_is_explained() -> None:
    assert [
        f"headgate {name} {option.opts[0]}: {option.help!r}"
        for name, command in ALL.items()
        for option in command.params
        if option.param_type_name == "option" and option.name != "help"
        if len(re.sub(r"\[.*?\]", "", option.help or "").split()) < WORDS_MIN
    ] == []


def test_arguments_are_named_in_capitals() -> None:
    assert [
        f"headgate {name} {argument.name}"
        for name, command in ALL.items()
        for argument in command.params
        if argument.param_type_name == "argument" and not (argument.metavar or "").isupper()
    ] == []


def test_each_command_has_an_example_that_can_be_typed() -> None:
    top = get_command(app)
    above = top.context_class(top, info_name="headgate", **top.context_settings)  # the library keeps its help options
    for name in sorted(ALL.keys() - WITHOUT_EXAMPLE):
        found = re.findall(r"Example: headgate (.*?)(?:\n\n|$)", ALL[name].help.strip(), re.DOTALL)
        assert len(found) == 1, f"headgate {name}"
        words = shlex.split(found[0].strip().rstrip("."))
        given = name.split()
        assert words[: len(given)] == given, f"headgate {name}"
        try:
            with ALL[name].make_context(name, words[len(given) :], parent=above):
                pass  # its arguments and options exist, and have values of their types
        except Exception as error:
            error.add_note(f"headgate {name}")
            raise


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


OF_ANOTHER_MEANING = {
    *((f"generation timestamps {name}", "--shards") for name in ("create", "update")),
    ("serve ingest", "--name"),
}
"""Options that have the name of one that a variable sets."""


def test_an_option_that_a_variable_sets_names_it_and_the_default_of_both() -> None:
    of_option = {option: path for path, option in OPTIONS.items() if option != "--kafka-property"}
    variables = known_variables()
    asked = 0
    for name, command in ALL.items():
        for option in command.params:
            path = of_option.get(option.opts[0])
            if path is None or (name, option.opts[0]) in OF_ANOTHER_MEANING:
                continue
            variable = f"HEADGATE_{'__'.join(path).upper()}"
            default = variables[variable].default
            shown = "the host's name" if default is None else f"{default:g}" if isinstance(default, float) else default
            assert option.help.endswith(f"[{variable}, else {shown}]"), f"headgate {name} {option.opts[0]}"
            asked += 1
    assert asked > len(of_option)


def test_no_word_of_a_help_is_taken_for_markup() -> None:
    """The library takes brackets with a small letter behind them for a style, and shows nothing of them."""
    everything = {**ALL, **{name: get_command(app).get_command(None, name) for name in ("demo", "up", "chaos", "sim")}}
    texts = [
        (name, text)
        for name, command in everything.items()
        for text in (command.help, *(getattr(each, "help", None) for each in command.params))
        if text
    ]
    assert [(name, text) for name, text in texts if Text.from_markup(text).plain != text] == []


def test_names_of_arguments_leave_brackets_and_dots_to_the_line_of_usage() -> None:
    assert [
        f"headgate {name} {argument.metavar}"
        for name, command in ALL.items()
        for argument in command.params
        if argument.param_type_name == "argument" and re.search(r"[\[\]{}]|\.\.\.|…", argument.metavar or "")
    ] == []
