"""Statements composed of quoted names, literals and other statements, in the way of psycopg."""

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

__all__ = ["SQL", "Composable", "Composed", "Identifier", "Literal", "quoted"]


def quoted(*names: str) -> str:
    """An identifier in double quotes, or one within another."""
    return Identifier(*names).as_string()
