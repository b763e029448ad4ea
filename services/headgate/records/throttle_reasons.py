"""Prefixes of the reasons for which a copy waits, by which readers of a record know the kind of reason."""

from typing import Final

OPERATOR: Final = "an operator:"
DATABASE: Final = "the database:"
REPLICA: Final = "a replica"
FEED: Final = "feed "
CLEAN_UP: Final = "clean-up:"


def by_operator(ratio: float) -> str:
    """The reason of a copy that an operator throttles by this ratio."""
    return f"{OPERATOR} ratio {ratio:g}"
