"""Names of tables as people write them: parts with dots between them, a part with a dot in it in double quotes.

``sales.orders`` are two parts, and so are ``"sales.eu"."or""ders"``: a quote within quotes is written twice, as SQL has
it. Names are exact: nothing is folded to lower case, quoted or not.
"""

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["NotAnIdentifierError", "parse_identifier", "show_identifier", "split_table"]

_PART: Final = r'(?:"(?:[^"]|"")+"|[^."]+)'
_WHOLE: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
_PARTS: Final = re.compile(_PART)
_NEEDS_QUOTES: Final = re.compile(r'[."]')


class NotAnIdentifierError(ValueError):
    """A text that is no name of parts with dots between them."""


def parse_identifier(text: str) -> tuple[str, ...]:
    """The parts of a name, without their quotes. Raises NotAnIdentifierError."""
    if _WHOLE.fullmatch(text) is None:
        raise NotAnIdentifierError(
            f"{text!r} is no name: write parts with dots between them, a part that has a dot or a quote in it in "
            'double quotes, and a quote within twice, as in "sales.eu".orders'
        )
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in _PARTS.findall(text))


def show_identifier(parts: Sequence[str]) -> str:
    """The name of these parts, with no more quotes than it needs."""
    return ".".join('"' + part.replace('"', '""') + '"' if _NEEDS_QUOTES.search(part) else part for part in parts)


def split_table(name: str) -> tuple[str | None, str]:
    """(schema or database, table) of a sink table's name; the former None for a bare table name.

    Without quotes it is divided at its first dot, and what stands behind that is the table's whole name.
    """
    if '"' in name and _WHOLE.fullmatch(name) is not None and len(parts := parse_identifier(name)) <= 2:
        return (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    space, dot, table = name.partition(".")
    return (space, table) if dot else (None, name)
