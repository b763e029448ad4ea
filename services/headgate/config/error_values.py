"""Whether errors may quote what a row holds.

Errors are stored on control topics, logged, and shown by the views, which have no login. Rows may hold what
none of their readers may see. So an error names table, column, topic, partition and offset, by which an operator finds
the record, and quotes a value only if the operator of the process allows it; a key's value, which identifies the row,
never.
"""

from typing import Final

from headgate.config.secrets import setting

VALUES_IN_ERRORS: Final = "HEADGATE_VALUES_IN_ERRORS"
VALUE_CHARACTERS_MAX: Final = 80
"""Enough to recognise a value. Errors are records on a topic, so they stay small."""

_YES: Final = ("1", "true", "yes", "on", "t", "y")
"""What pydantic reads as true, which reads the same variable for `headgate serve`."""


def rules() -> dict[str, str]:
    """The setting as this process has it, for Spark's workers on other machines."""
    return {VALUES_IN_ERRORS: value} if (value := setting(VALUES_IN_ERRORS)) else {}


def are_values_shown() -> bool:
    """Whether the operator of this process has turned values on."""
    return setting(VALUES_IN_ERRORS).strip().lower() in _YES


def quoted_value(value: object) -> str:
    """``: 'value'`` to end an error with, cut to a bounded length; nothing unless the operator turned it on."""
    if not are_values_shown():
        return ""
    return f": {str(value)[:VALUE_CHARACTERS_MAX]!r}"
