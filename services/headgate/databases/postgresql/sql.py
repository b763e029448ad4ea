"""Statements composed of quoted names, literals and other statements, in the way of psycopg."""

from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

__all__ = ["NAME_BYTES_MAX", "SQL", "Composable", "Composed", "Identifier", "Literal", "literal", "quoted"]

NAME_BYTES_MAX: Final = 63
"""Of a schema, a table, a column or a label. The server cuts off what is longer, with a notice."""


def quoted(*names: str) -> str:
    """An identifier in double quotes, or one within another."""
    return Identifier(*names).as_string()


def literal(text: str) -> str:
    """A text as a literal, the same in every session. Raises psycopg.DataError for one with the character NUL."""
    return Literal(text).as_string().strip()
