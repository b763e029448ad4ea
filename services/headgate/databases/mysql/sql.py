"""Names and texts, quoted for statements."""

from typing import Final

from pymysql.converters import escape_string

__all__ = ["NAME_CHARACTERS_MAX", "literal", "quoted"]

NAME_CHARACTERS_MAX: Final = 64
"""Of a database, a table or a column: MySQL's and MariaDB's own limit."""


def quoted(*names: str) -> str:
    """An identifier, or one within another: `a`.`b`."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(text: str) -> str:
    """A text as a literal, for the mode of our sessions (backslashes escape)."""
    return f"'{escape_string(text)}'"
