"""Names of tables as people write them: parts separated by dots, and parts that contain a dot in double quotes.

``sales.orders`` has two parts, and so has ``"sales.eu"."or""ders"``: a quote within quotes is written twice, as in SQL.
Names are exact: nothing is folded to lower case, quoted or not.

A sink table has one spelling (``table_spelling``), however a feed writes it. Owners, claims, the fence and the
catalogue compare that.
"""

import re
from collections.abc import Sequence
from typing import Final

from headgate.records.slices import whole_table, with_slice

_QUOTED: Final = r'"(?:[^"]|"")+"'
_PART: Final = rf'(?:{_QUOTED}|[^."]+)'
_WHOLE: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
_PARTS: Final = re.compile(_PART)
_QUOTED_PART: Final = re.compile(_QUOTED, re.DOTALL)
_DIVIDED: Final = re.compile(rf"(?P<space>{_QUOTED}|[^.]+)\.(?P<table>.+)", re.DOTALL)
_NEEDS_QUOTES: Final = re.compile(r'[."]')


class NotAnIdentifierError(ValueError):
    """The text is not a name of parts separated by dots."""


def parse_identifier(text: str) -> tuple[str, ...]:
    """The parts of a name, without their quotes. Raises NotAnIdentifierError."""
    return tuple(part for part, _ in identifier_parts(text))


def identifier_parts(text: str) -> tuple[tuple[str, bool], ...]:
    """The parts of a name, without their quotes, and whether they had some. Raises NotAnIdentifierError."""
    if _WHOLE.fullmatch(text) is None:
        raise NotAnIdentifierError(
            f"{text!r} is not a valid name. Separate its parts by dots, put a part that contains a dot or a quote in "
            'double quotes, and write a quote inside them twice, as in "sales.eu".orders'
        )
    return tuple((_unquoted(part), part.startswith('"')) for part in _PARTS.findall(text))


def show_identifier(parts: Sequence[str]) -> str:
    """The name of these parts, with no more quotes than it needs."""
    return ".".join('"' + part.replace('"', '""') + '"' if _NEEDS_QUOTES.search(part) else part for part in parts)


def split_table(name: str) -> tuple[str | None, str]:
    """(schema or database, table) of a sink table's name; the former is None for a bare table name.

    The name is divided after a quoted first part, or else at its first dot. What follows is the table: without its
    quotes if it is one quoted part, otherwise exactly as it is written, dots included. Of a slice's name
    (records/slices.py) it is the table that has the slice.
    """
    name = whole_table(name)
    divided = None if _QUOTED_PART.fullmatch(name) else _DIVIDED.fullmatch(name)
    space, table = (None, name) if divided is None else divided.group("space", "table")
    return (None if space is None else _unquoted(space)), _unquoted(table)


def table_spelling(space: str | None, table: str) -> str:
    """The one spelling of a sink table's name: without quotes, unless it would be divided elsewhere.

    ``split_table`` gives the parts back. The fence at the sink keys its rows by this text, so it must never change.
    """
    plain = table if space is None else f"{space}.{table}"
    if split_table(plain) == (space, table):
        return plain
    return show_identifier([table] if space is None else [space, table])


def normal_table(name: str) -> str:
    """``name`` in its one spelling: ``"public"."orders"`` becomes ``public.orders``."""
    if '"' not in name:  # most names, and owners have hundreds of thousands of them
        return name
    return with_slice(table_spelling(*split_table(name)), name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if _QUOTED_PART.fullmatch(part) else part
