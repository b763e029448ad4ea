"""Names and numbers of things in messages: lists truncated at one length, and nouns that agree with their number."""

from collections.abc import Sequence
from typing import Final

NAMES_SHOWN_MAX: Final = 10
"""Names in one message. A reader takes in ten at a glance; more of them hide the message itself, and belong in a list
that a command prints."""


def shown_names(names: Sequence[str], separator: str = ", ") -> str:
    """The first names, and the number of the others: ``a, b and 3 more``."""
    more = len(names) - NAMES_SHOWN_MAX
    return separator.join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def number_of(count: int, noun: str) -> str:
    """``1 table``, ``3 tables``: for nouns whose plural ends in s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
