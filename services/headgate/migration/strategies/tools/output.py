"""The part of a program's output that is stored and shown: its own sentences, without possible row values.

A program prints the server's messages, and a server quotes values ("Duplicate entry 'x'"). A value may have quotes and
line ends of its own. So nothing is searched for values: a line is kept if it begins as the program's own lines do, up
to the first quote or bracket, and the server's words only if they are among those that name no value. Every line is
kept whole if the operator has turned values on (config/error_values.py), except those about keys.
"""

import re
import subprocess
from collections.abc import Iterable
from typing import Final

from headgate.config.error_values import are_values_shown

__all__ = ["printed", "shown"]

CUT: Final = "…"

_STAMP: Final = r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* )?"
_BEGINNINGS: Final = r"""
Creat(ing|ed) (new table|triggers|plugin)
(Alter|Copy|Copi|Analyz|Swapp|Dropp|Renam)(ing|ed) (new|old|original|approximately|rows|tables?|triggers|columns|`)
Operation, tries, wait:
\w+, \d+, [\d.]+$
(Error|Cannot) (copy|creat|alter|dropp|swapp|updat|check|clean|load|connect|chang|determin)
Not (dropping|updating|swapping|copying|checking)\b
No (slaves|foreign keys)\b
Ignoring all slaves
Found \d+ slaves
Starting a dry run
Dry run complete
Exiting (on|without|due)\b
Successfully altered
Using original table
Rows are copying
Switching to nibble
Skipping (slave|triggers)\b
Adding original
Lost connection
Failed to find
The (original table|new table|table `|key_len|tool)
This tool\b
You did not specify
`[^`]+`\.`[^`]+` (was not altered|is empty)
DBD::
the table was truncated or rebuilt
another session works on
migration \S+ is not this run's
this version of the program
report \(\w+\) was not taken
Errors in command-line arguments
\* -
Unknown option:
(DEBUG|INFO|NOTICE|WARNING|ERROR|FATAL|CRITICAL)\b
#\s
Copy: \d
report of gh-ost-
flag provided but not defined:
"""
"""How lines of pt-online-schema-change 3 and its plug-in, and of gh-ost and its hooks, begin; one a line."""

_OWN: Final = re.compile(_STAMP + "(?:" + "|".join(_BEGINNINGS.strip().splitlines()) + ")")

_OF_SERVER: Final = re.compile(r"(?:DBD::mysql::\w+ \w+ failed|\bError \d+(?: \(\w+\))?|MySQL error \d+: *Message): *")
"""The server's words follow, which may be a trigger's own."""

_ON_SCHEMA: Final = re.compile(
    "|".join(
        (
            *("Access denied", "Can't connect", "Lost connection", "Server shutdown", "Too many connections"),
            *("Lock wait timeout", "Deadlock found", "Query execution", "You have an error in your SQL syntax"),
            *("Cannot (?:add|delete|drop) ", "Column ", "Data (?:too long|truncated) for column", "Field ", "Table "),
            *("Duplicate (?:column|key name)", "Out of range value for column", "Unknown (?:column|database|table) "),
            "The (?:table|MariaDB server|MySQL server) ",
        )
    )
)
"""Words that name tables and columns, if anything."""

_KEYS: Final = re.compile(r"Duplicate entry|\bvalues: ")
"""Words about keys' values, also about the borders of a range."""

_QUOTES: Final = re.compile("[\"'\\[]")
_NAMED: Final = re.compile(r"(?:column|table|database|user) '[\w.$]+'(?: |$)", re.IGNORECASE)
"""Names among the server's words on a schema."""


def shown(lines: Iterable[str]) -> list[str]:
    """The lines that may be stored, each as far as it may be."""
    return [text for line in lines if (text := _shown(line))]


def printed(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The same of a program that has ended."""
    return shown((done.stdout + done.stderr).decode(errors="replace").strip().splitlines())


def _shown(line: str) -> str:
    if are_values_shown() and _KEYS.search(line) is None:
        return line
    if _OWN.match(line) is None:
        return ""
    said = _OF_SERVER.search(line)
    if said is None:
        return _cut(line, 0)
    if _ON_SCHEMA.match(line, said.end()) is None:
        return line[: said.end()] + CUT
    return _cut(line, said.end())


def _cut(line: str, start: int) -> str:
    """Up to the first quote or bracket behind ``start``; names that the server quotes are skipped."""
    while (quote := _QUOTES.search(line, start)) is not None:
        named = next((name for name in _NAMED.finditer(line) if name.start() < quote.start() < name.end()), None)
        if named is None or start == 0:
            return line[: quote.start()] + CUT
        start = named.end()
    return line
