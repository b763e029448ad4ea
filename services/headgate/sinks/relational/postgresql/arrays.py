"""Arrays → PostgreSQL's array texts. Each element is written, and checked, as a value of a column of its type."""

import re
from collections.abc import Iterator
from typing import Final

from headgate.sinks.relational.remedies import Remedy
from headgate.sinks.relational.text import ColumnText, check_element, unreadable
from headgate.sinks.relational.times import NotTextError

_BOUNDS: Final = re.compile(r"(?:\[[+-]?[0-9]+:[+-]?[0-9]+\])+=")
"""Of an array that does not begin at 1: ``[5:6]={1,2}``."""
_TOKEN: Final = re.compile(r'\s*(?:(?P<mark>[{},])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^{},"\\]+))\s*', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def array_text(element: ColumnText, value: object) -> str:
    """A list, lists in it included, or a text that is an array already."""
    if isinstance(value, str):
        if not element.checks_strings:
            return value
        bounds = _BOUNDS.match(value)
        start = 0 if bounds is None else bounds.end()
        return value[:start] + _written(element, _read(value[start:]))
    if not isinstance(value, list):
        raise unreadable(value, "array")
    return _written(element, value)


def _written(element: ColumnText, items: list[object]) -> str:
    texts = []
    for item in items:
        if item is None:
            texts.append("NULL")
        elif isinstance(item, list):
            texts.append(_written(element, item))
        else:
            check_element(item)
            plain = element.written(item)
            if "\0" in plain:  # the server names no column for one within an array
                raise NotTextError(f"an element has a NUL character, which PostgreSQL cannot store. {Remedy.LETTERS}")
            text = plain.replace("\\", "\\\\").replace('"', '\\"')
            texts.append(f'"{text}"')
    return "{" + ",".join(texts) + "}"


def _read(text: str) -> list[object]:
    """The items of an array's text. Raises NotTextError where it is not one."""
    open_lists: list[list[object]] = [[]]
    is_item_due = True
    for mark, item in _tokens(text):
        if mark == "{" and is_item_due:
            open_lists.append([])
        elif mark == "}" and len(open_lists) > 1 and (not is_item_due or not open_lists[-1]):
            closed = open_lists.pop()
            open_lists[-1].append(closed)
            is_item_due = False
        elif mark == "," and not is_item_due and len(open_lists) > 1:
            is_item_due = True
        elif mark == "" and is_item_due and len(open_lists) > 1:
            open_lists[-1].append(item)
            is_item_due = False
        else:
            raise _malformed()
    match open_lists:
        case [[list() as items]]:
            return items
    raise _malformed()


def _tokens(text: str) -> Iterator[tuple[str, str | None]]:
    """Marks, and items with an empty mark."""
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _malformed()
        place = found.end()
        if found["mark"]:
            yield found["mark"], None
        elif found["quoted"] is not None:
            yield "", _ESCAPED.sub(r"\1", found["quoted"])
        else:
            plain = found["plain"].strip()
            yield "", None if plain.upper() == "NULL" else plain


def _malformed() -> NotTextError:
    return NotTextError(
        "the text is invalid input for this column, which takes an array as {1,2,NULL}. Correct it at the source, or "
        "give the column a text type"
    )
