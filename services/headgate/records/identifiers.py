"""Names of tables as people write them: parts separated by dots, and parts that contain a dot in double quotes.

``sales.orders`` has two parts, and so has ``"sales.eu"."or""ders"``: a quote within quotes is written twice, as in SQL.
Names are exact: nothing is folded to lower case, quoted or not.

A sink table has one spelling (``table_spelling``), however a feed writes it. Owners, claims, the fence and the
catalogue compare that.

A name that ends in ``@column=value`` is that of a slice (slices.py). A table that is really called like that is written
in double quotes, ``public."a@b=c"``, which no slice's name ends in. Older versions, which had no slices, have stored it
without quotes (``earlier_spelling``).
"""

import re
from collections.abc import Sequence
from typing import Final

from headgate.records.slices import slice_of, whole_table, with_slice

_QUOTED: Final = r'"(?:[^"]|"")+"'
_PART: Final = rf'(?:{_QUOTED}|[^."]+)'
_WHOLE: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
_PARTS: Final = re.compile(_PART)
_QUOTED_PART: Final = re.compile(_QUOTED, re.DOTALL)
_DIVIDED: Final = re.compile(rf"(?P<space>{_QUOTED}|[^.]+)\.(?P<table>.+)", re.DOTALL)
_NEEDED_QUOTES: Final = re.compile(r'[."]')
"""What older versions put into quotes."""
_NEEDS_QUOTES: Final = re.compile(r'[."]|@[^."]*=')
"""Wherever the signs of a slice are in a part: a dot behind it can belong to the slice's value."""


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
    """The name of these parts, with no more quotes than it needs. It is never a slice's."""
    return _shown(parts, _NEEDS_QUOTES)


def _shown(parts: Sequence[str], quoted: re.Pattern[str]) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' if quoted.search(part) else part for part in parts)


def split_table(name: str) -> tuple[str | None, str]:
    """(schema or database, table) of a sink table's name; the former is None for a bare table name.

    Of a slice's name it is the table that has the slice. See ``split_whole``.
    """
    return split_whole(whole_table(name))


def split_whole(name: str) -> tuple[str | None, str]:
    """``split_table`` of a name that is never a slice's: what people write, and what older versions have stored.

    The name is divided after a quoted first part, or else at its first dot. What follows is the table: without its
    quotes if it is one quoted part, otherwise exactly as it is written, dots included.
    """
    divided = None if _QUOTED_PART.fullmatch(name) else _DIVIDED.fullmatch(name)
    space, table = (None, name) if divided is None else divided.group("space", "table")
    return (None if space is None else _unquoted(space)), _unquoted(table)


def table_spelling(space: str | None, table: str) -> str:
    """The one spelling of a sink table's name: without quotes, unless it would be read as another name.

    ``split_table`` gives the parts back. The fence at the sink keys its rows by this text, so it must never change.
    """
    earlier = earlier_spelling(space, table)
    return earlier if slice_of(earlier) is None else show_identifier(_parts(space, table))


def earlier_identifier(parts: Sequence[str]) -> str:
    """``show_identifier`` as versions without slices had it: quotes only for dots and quotes."""
    return _shown(parts, _NEEDED_QUOTES)


def earlier_spelling(space: str | None, table: str) -> str:
    """``table_spelling`` as versions without slices had it: what is a slice's name today was a table's."""
    plain = ".".join(_parts(space, table))
    return plain if split_whole(plain) == (space, table) else earlier_identifier(_parts(space, table))


def normal_table(name: str) -> str:
    """``name`` in its one spelling: ``"public"."orders"`` becomes ``public.orders``."""
    if '"' not in name and name.count("@") <= 1:  # most names, and owners have hundreds of thousands of them
        return name
    return with_slice(table_spelling(*split_table(name)), name)


def namesake(name: str) -> str | None:
    """The table for which older versions stored the name of this slice, or the slice for this table; else None.

    A row of progress that an older version left at a sink looks like one of the slice. So neither is written while
    another feed writes the other.
    """
    if "@" not in name:
        return None
    earlier = earlier_spelling(*split_whole(name))
    if slice_of(name) is None:
        return None if slice_of(earlier) is None else earlier
    return table_spelling(*split_whole(name)) if earlier == name else None


def _parts(space: str | None, table: str) -> list[str]:
    return [table] if space is None else [space, table]


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if _QUOTED_PART.fullmatch(part) else part
