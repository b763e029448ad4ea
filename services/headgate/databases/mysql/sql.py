"""Names and texts as a statement needs them."""

from pymysql.converters import escape_string

__all__ = ["literal", "quoted"]


def quoted(*names: str) -> str:
    """An identifier, or one within another: `a`.`b`."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(text: str) -> str:
    """A text as a literal, for the mode of our sessions (backslashes escape)."""
    return f"'{escape_string(text)}'"
