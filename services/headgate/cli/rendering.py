"""How results look to people: states in colour, ages, and layouts that fit the terminal. Decided here for all commands.

It imports rich, which takes long: output.py imports this file where something is shown to people.
"""

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from textwrap import TextWrapper
from typing import Any, Final

import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headgate.cli.ages import DURATIONS, TIMES, duration, moment
from headgate.eventlog.clock import wall_ms
from headgate.observability.colour import in_colour
from headgate.records.name_lists import shown_names

LONG_TEXTS: Final = frozenset({"error", "notices", "detail", "advice", "reason", "record"})
"""Columns that hold sentences: below a table, and not cut."""

NAMES: Final = frozenset({"feed", "span", "table", "place", "topic", "partition", "offset", "key"})
"""Columns that identify the row to which a sentence below the table belongs."""

STATES: Final = frozenset({"state", "wanted", "verdict", "phase", "task"})
"""Columns that hold a state."""

STYLES: Final = {
    "green": "alive committed complete done finished free kept normal ok operating replicating resent running",
    "yellow": "absent accepted awaiting_approval being closing commit copy_paused copying prepare prepared preparing "
    "queued ready removing starting stopped stopping to touched warning",
    "red": "aborted dead failed refused unknown wrong",
    "dim": "cancelled drained over removed superseded",
}
"""Style → states, by their first word. Green is fine, yellow is in progress or waits, red needs an operator."""

_STYLE_OF: Final = {word: style for style, words in STYLES.items() for word in words.split()}
_STYLE_OF_TEXT: Final = {"error": "red", "notices": "yellow"}

_GAP: Final = 2
"""Blanks between a name and its value in facts."""

_PIPE_WIDTH: Final = 2**30
"""Into a pipe nothing is wrapped: the reader is a program or a pager. No record is as long as that."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Errors and names are written by others: their control characters would move the cursor and set colours."""

_COMMAND: Final = re.compile(r"`[^`\n]+`")
_WRAPPER: Final = partial(
    TextWrapper, break_long_words=False, break_on_hyphens=False, expand_tabs=False, replace_whitespace=False
)
"""The standard library's, because rich cuts or breaks a word that is longer than a line."""

_HELD: Final = "\ue000"
"""Stands for the blanks of a command while a text is wrapped. Unicode gives it no meaning."""


def console(*, stderr: bool = False) -> Console:
    """Where people read: as wide as the terminal, and in colour if that is wanted there."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    colours: Final = "auto" if in_colour(stream) else None
    return Console(stderr=stderr, width=width, color_system=colours, highlight=False, soft_wrap=True)


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with a line for each row and its sentences below; a block for each row where a table is too wide."""
    out, short = console(), [column for column in columns if column not in LONG_TEXTS]
    headers = (Column(_label(name), no_wrap=True) for name in short)
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in short))
    if out.measure(table, options=out.options.update(width=_PIPE_WIDTH)).maximum > out.width:
        _print_blocks(columns, rows, out)
        return
    _print_table(table, out)
    for subjects, texts in _sentences(columns, short, rows):
        for name, text in texts:
            out.print(wrapped(Text.assemble(f"{shown_names(subjects)}: ", (f"{name}: ", "bold"), text), out))


def _sentences(
    columns: Sequence[str], short: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> Iterable[tuple[list[str], list[tuple[str, Text]]]]:
    """The sentences below a table, each with the rows that it is about: one cause often holds many tables."""
    groups: dict[tuple[tuple[str, str], ...], tuple[list[str], list[tuple[str, Text]]]] = {}
    for row in rows:
        texts = [(name, _cell(name, row[name])) for name in columns if name in LONG_TEXTS and row.get(name)]
        if texts:
            whose = " ".join(_cell(name, row.get(name)).plain for name in short if name in NAMES)
            subjects, _ = groups.setdefault(tuple((name, text.plain) for name, text in texts), ([], texts))
            subjects.append(whose or _cell(short[0], row.get(short[0])).plain)
    return groups.values()


def print_facts(facts: Mapping[str, Any]) -> None:
    """One thing's facts, a line each, wrapped at words; nested values follow below, as YAML."""
    nested = {name: value for name, value in facts.items() if _is_nested(value)}
    out = console()
    _print_block([(_label(name), _cell(name, facts[name])) for name in facts if name not in nested], out)
    for name, value in nested.items():
        # By way of JSON, as in show_value: enumerations become their values, tuples lists.
        text = yaml.safe_dump({name: json.loads(json.dumps(value))}, allow_unicode=True, sort_keys=False)
        out.print(Text(text), end="")


def wrapped(text: Text, out: Console, width: int | None = None) -> Text:
    """The text in lines of whole words. A command in backquotes stays on one line, so that it can be copied."""
    if out.width == _PIPE_WIDTH:
        return text
    columns = max(1, out.width if width is None else width)
    return Text("\n").join(line for part in text.split("\n") for line in _lines(part, columns))


def _lines(text: Text, width: int) -> Iterator[Text]:
    held = _COMMAND.sub(lambda found: found[0].replace(" ", _HELD), text.plain)
    starts, at = [], 0
    for line in _WRAPPER(width=width).wrap(held):
        starts.append(held.index(line, at))
        at = starts[-1] + len(line)
    for words in text.divide(starts[1:]):
        words.rstrip()
        yield words


def clear(every_seconds: float) -> None:
    """Clear the terminal, and print the time and the refresh interval."""
    out = console()
    out.clear()
    out.print(Text(f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, every {every_seconds:g} s. Ctrl-C ends it", style="dim"))


def print_plain(line: str) -> None:
    """A line of a result, whole, without others' control characters."""
    console().print(Text(_printable(line)))


def print_line(message: str, before: str = "") -> None:
    """A line on standard error, in whole words."""
    out = console(stderr=True)
    out.print(wrapped(Text.assemble((before, "bold red"), _printable(message)), out))


def _print_blocks(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], out: Console) -> None:
    for number, row in enumerate(rows):
        if number:
            out.print()
        there = [name for name in columns if row.get(name) not in (None, "", [], {})]
        _print_block([(_label(name), _cell(name, row[name])) for name in there], out)


def _print_block(facts: Sequence[tuple[str, Text]], out: Console) -> None:
    """Names, and beside them values in lines of whole words."""
    names = max((cell_len(name) for name, _ in facts), default=0) + _GAP
    for name, value in facts:
        for number, line in enumerate(wrapped(value, out, out.width - names).split("\n")):
            label = name if number == 0 else ""
            out.print(Text.assemble((label, "bold"), " " * (names - cell_len(label)), line))


def _print_table(table: Table, out: Console) -> None:
    """Without the blanks that fill up lines to the table's width: into a pipe that is its longest text."""
    with out.capture() as captured:
        out.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _label(name: str) -> str:
    return name.removesuffix("_ms") if name in TIMES or name in DURATIONS else name


def _cell(name: str, value: Any) -> Text:
    """A value by its field's name. Never JSON, but for a record of a control topic, which is one."""
    text = _words(name, value)
    if name in STATES:
        return Text(text, style=_STYLE_OF.get(text.partition(" ")[0], ""))
    return Text(text, style=_STYLE_OF_TEXT.get(name, ""))


def _words(name: str, value: Any) -> str:
    if value is None or value == "" or (name in TIMES and value == 0):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, str):
        return _printable(" ".join(value.split()))
    return json.dumps(value, ensure_ascii=False) if name == "record" else _listed(value) or "-"


def _number(name: str, value: float) -> str:
    if name in TIMES:
        return moment(wall_ms(), int(value))
    return duration(value) if name in DURATIONS and value >= 0 else str(value)


def _printable(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


def _listed(value: Any) -> str:
    """Lists and small mappings on one line: ``a, b`` and ``0=17, 1=4``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_inner(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_inner, value))
    return str(value)


def _inner(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return f"({_listed(value)})"
    return _words("", value)


def _is_nested(value: Any) -> bool:
    """Whether a value has parts that have parts."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(part, Mapping | list | tuple) for part in parts)
