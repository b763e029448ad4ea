"""What commands print: a table for people, JSON or YAML for programs on standard output, the rest on standard error."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


class Output(StrEnum):
    """``-o``: how a command prints what it found."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show_value(output: Output, value: Any) -> None:
    """One document, YAML if asked for, else JSON; bytes are not possible here, times are milliseconds."""
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    if output is Output.YAML:
        # By way of JSON, so that both say the same: enumerations become their values, tuples lists.
        text = yaml.safe_dump(json.loads(text), allow_unicode=True, sort_keys=False)
    sys.stdout.write(text)
    sys.stdout.flush()


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Rows under ``columns``; JSON has every field of each row, the table only the columns.

    A row is one line, cut to a terminal's width; its long texts stand below the table, whole.
    """
    if output is not Output.TABLE:
        show_value(output, list(rows))
        return
    short = [column for column in columns if column not in _LONG_TEXTS]
    headers = (Column(column, no_wrap=True, overflow="ellipsis") for column in short)
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in short))
    console = Console(width=_width(), highlight=False)
    _print(table, console)
    for row in rows:
        for column in columns:
            if column in _LONG_TEXTS and row.get(column):
                whose = " ".join(_cell(row.get(name)) for name in short if name in _NAMES)
                text = f"{whose or _cell(row.get(short[0]))}: {column}: {_cell(row[column])}"
                console.print(Text(text), soft_wrap=True)


_LONG_TEXTS = frozenset({"error", "notices", "detail", "advice", "reason", "record"})
_NAMES = frozenset({"feed", "span", "table", "place", "topic", "partition", "offset", "key"})


def show_object(facts: Mapping[str, Any], output: Output) -> None:
    """One thing's facts, a line each, cut to a terminal's width; what is longer stands below, whole."""
    if output is not Output.TABLE:
        show_value(output, dict(facts))
        return
    texts = {name: _cell(value) for name, value in facts.items()}
    names = max(map(cell_len, texts), default=0)
    value = Column(no_wrap=True, overflow="ellipsis")
    table = Table(Column(min_width=names, no_wrap=True), value, box=None, pad_edge=False, show_header=False)
    for name, text in texts.items():
        table.add_row(Text(name, style="bold"), Text(text))
    console = Console(width=_width(), highlight=False)
    _print(table, console)
    for name, text in texts.items():
        if names + _GAP + cell_len(text) > console.width:
            console.print(Text(f"{name}: {text}"), soft_wrap=True)


_GAP: Final = 2
"""Blanks between two columns of a table without lines."""

_PIPE_WIDTH: Final = 2**30
"""Into a pipe nothing is cut: the reader is a program or a pager. No record is as long as that."""


def _print(table: Table, console: Console) -> None:
    """Without the blanks that fill up lines to the table's width: into a pipe that is its longest text."""
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _width() -> int | None:
    return None if sys.stdout.isatty() else _PIPE_WIDTH


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return " ".join(value.split())
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else str(value)


def again(show: Callable[[], None], every_seconds: float | None) -> None:
    """Show something once, or, with a pace, until Ctrl-C: on a terminal each time in the place of the last."""
    show()
    while every_seconds is not None:
        time.sleep(every_seconds)
        if sys.stdout.isatty():
            Console().clear()
        show()


def note(message: str) -> None:
    """A line for people beside the result. Not wrapped, so that what it says to type can be copied."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))


_errors = Output.TABLE


def errors_as(output: Output) -> Output:
    """From here on errors are printed as this command prints its results."""
    global _errors  # noqa: PLW0603 - one command to a process; what has gone wrong knows no command's options
    _errors = output
    return output


def complain(message: str, code: int = 1, name: str = "bug") -> None:
    """An error, on standard error: a line for people, or, where results are, an object for programs."""
    if _errors is not Output.TABLE:
        text = json.dumps({"error": {"code": code, "name": name, "message": message}}, ensure_ascii=False)
        sys.stderr.write(text + "\n")  # one line of JSON is YAML as well
        return
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text("error: ", style="bold red") + Text(message))


def age(now_ms: int, then_ms: int) -> str:
    """How long ago, for people: clocks of different machines are compared, so never for a decision."""
    seconds = max(0, now_ms - then_ms) / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
