"""Why a copy waits: how each kind of reason in a record begins, so that readers of the record know which kind it is."""

from typing import Final

OPERATOR: Final = "an operator:"
DATABASE: Final = "the database:"
REPLICA: Final = "a replica"
FEED: Final = "feed "
CLEAN_UP: Final = "clean-up:"


def by_operator(ratio: float) -> str:
    """The reason of a copy that an operator throttles by this ratio."""
    return f"{OPERATOR} ratio {ratio:g}"
