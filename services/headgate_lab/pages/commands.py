"""The page of the product's commands, with the text of ``--help``. Made when the site is built, not stored."""

import re
from collections.abc import Iterator
from typing import Any, Final

import typer
from typer.main import get_command

from headgate.cli.main import OWN_COMMANDS, PANELS, app

__all__ = ["page"]

_HEAD: Final = """\
# Commands

Made from the code. `headgate COMMAND --help` prints the same. Commands that talk to a cluster also take `--bootstrap`,
`--cluster` and `--kafka-property` ([settings](settings.md)), and `-o json` or `-o yaml` where they report something.
Their exit codes are [here](../exit-codes.md). `headgate demo`, `up`, `bench`, `chaos` and `sim` are in another package
([install](../install.md)).
"""

_COMMON: Final = frozenset({"--bootstrap", "--cluster", "--kafka-property", "--output", "--help"})
"""Described once, at the top."""


def page() -> str:
    """The whole page."""
    top: Any = get_command(app)
    context = typer.Context(top, info_name="headgate")
    parts = [_HEAD]
    panel = ""
    for name in OWN_COMMANDS:
        if PANELS.get(name, panel) != panel:
            panel = PANELS[name]
            parts.append(f"\n## {panel}\n")
        parts += _described(top.get_command(context, name), ["headgate", name])
    return "".join(parts)


def _described(command: Any, words: list[str]) -> Iterator[str]:
    context = typer.Context(command, info_name=words[-1])
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _described(command.get_command(context, name), [*words, name])
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not set(each.opts) & _COMMON]
    usage = " ".join([*words, *(_argument(each) for each in arguments)])
    yield f"\n### {' '.join(words[1:])}\n\n```\n{usage}\n```\n\n{_text(command.help or '')}\n"
    rows = [(f"`{_argument(each)}`", each.help or "") for each in arguments if each.help]
    rows += [(f"`{', '.join(each.opts)}`", _option(each)) for each in options]
    if rows:
        yield "\n| | |\n|---|---|\n" + "".join(f"| {name} | {_cell(text)} |\n" for name, text in rows)


def _argument(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper()).replace("[", "").replace("]", "")
    many = "…" if argument.nargs != 1 and not name.endswith("…") else ""
    return f"{name}{many}" if argument.required else f"[{name}{many}]"


def _option(option: Any) -> str:
    text = option.help or ""
    is_shown = isinstance(option.default, str | int | float) and option.default != "" and not option.is_bool_flag
    shown = getattr(option.default, "value", option.default)
    return f"{text} [default: {shown}]" if is_shown else f"{text}{' (required)' if option.required else ''}"


def _text(help_text: str) -> str:
    """Paragraphs, each in one line, with examples as code."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in help_text.split("\n\n")]
    return "\n\n".join(re.sub(r"^Example: (.*)$", r"    \1", paragraph) for paragraph in paragraphs if paragraph)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
