"""Constant defaults of a source's columns, as a sink's statement may have them. Expressions are left out.

A default at the sink is for rows of other programs: Headgate writes every column that an event has.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.databases.catalogue import Product
from headgate.tables.mapped import Default

__all__ = ["default_text"]

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DAY: Final = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_TIME: Final = re.compile(f"{_DAY}(?: {_CLOCK})?|{_CLOCK}")
_NO_YEAR: Final = "0000"

_POSTGRES_TEXT: Final = re.compile(r"'(?P<text>(?:[^']|'')*)'::[^']*", re.DOTALL)
"""A literal with its cast, as ``pg_get_expr`` prints a constant. An operator or a function does not have this form."""
_POSTGRES_CAST: Final = re.compile(
    r'(?:[a-z_][a-z0-9_ ]*\.|"(?:[^"]|"")+"\.)?(?:[a-z_][a-z0-9_ ]*|"(?:[^"]|"")+")'
    r"(?:\([0-9, -]+\))?(?: with(?:out)? time zone)?(?:\[\])?"
)
_MARIADB_TEXT: Final = re.compile(r"'(?P<text>(?:[^'\\]|'')*)'", re.DOTALL)
"""A literal without a backslash: what one means depends on who reads it."""


class _Constant(msgspec.Struct, frozen=True):
    text: str
    is_text: bool
    """Whether it was in quotes."""


def default_text(
    expression: str | None,
    source: Product,
    takes: Default,
    literal: Callable[[str], str],
    *,
    room: int | None = None,
) -> str | None:
    """What follows DEFAULT at the sink, None for none. ``literal`` quotes a text for the sink.

    ``room``: how many characters the column has. PostgreSQL does not compare a default with it, MySQL refuses a longer.
    """
    found = None if expression is None or takes is Default.NONE else _constant(expression, source)
    if found is None:
        return None
    text = found.text
    if takes is Default.BOOLEAN or (takes is Default.ANY and not found.is_text):
        return text if text in ("true", "false") or _NUMBER.fullmatch(text) else None
    if takes is Default.NUMBER:
        return text if _NUMBER.fullmatch(text) else None
    if takes is Default.TIME:
        is_fit = _TIME.fullmatch(text) is not None and not text.startswith(_NO_YEAR)
        return literal(text) if is_fit else None
    is_fit = found.is_text and "\0" not in text and (room is None or len(text) <= room)
    return literal(text) if is_fit else None


def _constant(expression: str, source: Product) -> _Constant | None:
    if _NUMBER.fullmatch(expression) or expression in ("true", "false"):
        return _Constant(expression, is_text=False)
    if source is Product.MYSQL:
        # Without quotes around texts, so a function's name is possible, too.
        return _Constant(expression, is_text=False)
    if source is Product.MARIADB:
        found = _MARIADB_TEXT.fullmatch(expression)
    else:
        found = _POSTGRES_TEXT.fullmatch(expression)
        if found is not None and _POSTGRES_CAST.fullmatch(expression[found.end("text") + 3 :]) is None:
            return None
    return None if found is None else _Constant(found["text"].replace("''", "'"), is_text=True)
