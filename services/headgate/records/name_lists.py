"""Lists of names in messages, all truncated at one length."""

from collections.abc import Sequence
from typing import Final

NAMES_SHOWN_MAX: Final = 10
"""Names in one message. A reader takes in ten at a glance; more of them hide the message itself, and belong in a list
that a command prints."""


def shown_names(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and the number of the others: ``a, b and 3 more``."""
    more = len(names) - NAMES_SHOWN_MAX
    return separator.join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
