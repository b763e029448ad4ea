"""What commands print: a table for people, JSON or YAML for programs on standard output, the rest on standard error.

What only people see is in rendering.py, and imported when it is printed: rich takes as long to import as many a command
takes to run. YAML is imported where it is asked for.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from headgate.observability.colour import in_colour


class Output(StrEnum):
    """``-o``: how a command prints what it found."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show_value(output: Output, value: Any) -> None:
    """One document, YAML if asked for, else JSON; bytes are not possible here, times are milliseconds."""
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    if output is Output.YAML:
        import yaml  # noqa: PLC0415 - see above

        # Converted through JSON, so that both are equal: enumerations become their values, tuples lists.
        text = yaml.safe_dump(json.loads(text), allow_unicode=True, sort_keys=False)
    sys.stdout.write(text)
    sys.stdout.flush()


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Rows under ``columns``; JSON has every field of each row as it is, people see the columns."""
    if output is not Output.TABLE:
        show_value(output, list(rows))
        return
    _begin_page()
    from headgate.cli.rendering import print_rows  # noqa: PLC0415 - see above

    print_rows(columns, rows)


def show_object(facts: Mapping[str, Any], output: Output) -> None:
    """One thing's facts; JSON has them as they are."""
    if output is not Output.TABLE:
        show_value(output, dict(facts))
        return
    _begin_page()
    from headgate.cli.rendering import print_facts  # noqa: PLC0415 - see above

    print_facts(facts)


def again(show: Callable[[], None], every_seconds: float | None) -> None:
    """Show something once, or, with an interval, until Ctrl-C: on a terminal each time in the place of the last.

    There people see when it was shown, and at which interval that is done. What was shown last stays until ``show``
    prints, so that the screen is not empty while it reads.
    """
    global _due  # noqa: PLW0603 - one terminal to a process
    while True:
        _due = every_seconds
        show()
        _begin_page()
        if every_seconds is None:
            return
        time.sleep(every_seconds)


_due: float | None = None
"""The interval, while the page that was shown last is still to be cleared."""


def _begin_page() -> None:
    """Clear the terminal, once before each page that is watched."""
    global _due
    every_seconds, _due = _due, None
    if every_seconds is not None and _errors is Output.TABLE and sys.stdout.isatty():
        from headgate.cli.rendering import clear  # noqa: PLC0415 - see above

        clear(every_seconds)


def note(message: str) -> None:
    """A line for people beside the result. Commands in it can be copied from a terminal."""
    _begin_page()
    _say(message)


_errors = Output.TABLE


def errors_as(output: Output) -> Output:
    """From here on errors are printed as this command prints its results."""
    global _errors  # noqa: PLW0603 - one command to a process; what has gone wrong knows no command's options
    _errors = output
    return output


def is_for_people() -> bool:
    """Whether this command prints tables and sentences, and not JSON or YAML."""
    return _errors is Output.TABLE


def complain(message: str, code: int = 1, name: str = "bug") -> None:
    """An error, on standard error: a line for people, or, where results are, an object for programs."""
    if _errors is not Output.TABLE:
        text = json.dumps({"error": {"code": code, "name": name, "message": message}}, ensure_ascii=False)
        sys.stderr.write(text + "\n")  # one line of JSON is YAML as well
        return
    _say(message, before="error: ")


def _say(message: str, before: str = "") -> None:
    """A line on standard error. ``before`` is coloured on a terminal."""
    if not sys.stderr.isatty() and not in_colour(sys.stderr):
        sys.stderr.write(f"{before}{message}\n")
        return
    from headgate.cli.rendering import print_line  # noqa: PLC0415 - see above

    print_line(message, before)
