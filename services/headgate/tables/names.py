"""What each database takes as a name of a schema, a table or a column."""

import unicodedata
from typing import Final

from headgate.databases.catalogue import Product
from headgate.databases.mysql.sql import NAME_CHARACTERS_MAX
from headgate.databases.postgresql.sql import NAME_BYTES_MAX

__all__ = ["name_problem"]

_SYSTEM_COLUMNS: Final = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
_BASIC_PLANE_END: Final = "\uffff"
_LINES: Final = frozenset({"Cc", "Zl", "Zp", "Cs"})
"""Kinds of characters that end a line, steer a terminal, or are half a character."""


def name_problem(name: str, sink: Product, *, is_column: bool = False) -> str | None:
    """Why the sink cannot have that name, None if it can."""
    if any(unicodedata.category(character) in _LINES for character in name):
        return f"the name {name!r} has a control character"
    return _postgresql(name, is_column=is_column) if sink is Product.POSTGRESQL else _mysql(name)


def _postgresql(name: str, *, is_column: bool) -> str | None:
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        return f"the name {name!r} has {size} bytes, and PostgreSQL's names have at most {NAME_BYTES_MAX}"
    if is_column and name in _SYSTEM_COLUMNS:
        return f"PostgreSQL has a column {name} of its own in every table"
    return None


def _mysql(name: str) -> str | None:
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the name {name!r} has {len(name)} characters, and names there have at most {NAME_CHARACTERS_MAX}"
    if name.endswith(" "):
        return f"the name {name!r} ends with a space"
    if any(character > _BASIC_PLANE_END for character in name):
        return f"the name {name!r} has a character outside the basic plane of Unicode"
    return None
