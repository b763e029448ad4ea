"""How far a copy of a whole table is: as a text for people, which is what its agent reports, and as numbers."""

import re
from typing import Final

import msgspec

__all__ = ["CopyProgress", "read_copy_progress"]

_TEXT: Final = re.compile(
    r"(?P<rows>[0-9]+) rows are copied(?: of about (?P<about>[0-9]+) \([0-9]+ %\))?(?:, (?P<deleted>[0-9]+) deleted)?"
    r"(?:, about (?P<left>[0-9]+) s left)?"
)

PERCENT_MAX: Final = 99
"""Of a copy that is not done: the number of rows is the source's estimate."""


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``rows_about`` is the source's estimate of the table's rows, and ``seconds_left`` is by the speed so far.

    ``rows`` and ``deleted`` count from the request's beginning. An unknown number is null.
    """

    rows: int
    rows_about: int | None = None
    deleted: int = 0
    seconds_left: int | None = None

    @property
    def percent(self) -> int | None:
        """Percent of the rows, at most PERCENT_MAX."""
        return min(PERCENT_MAX, 100 * self.rows // self.rows_about) if self.rows_about else None

    @property
    def text(self) -> str:
        """The inverse of ``read_copy_progress``."""
        text = f"{self.rows} rows are copied"
        if self.rows_about:
            text += f" of about {self.rows_about} ({self.percent} %)"
        if self.deleted:
            text += f", {self.deleted} deleted"
        return text + ("" if self.seconds_left is None else f", about {self.seconds_left} s left")


def read_copy_progress(text: str) -> CopyProgress | None:
    """The progress with which a report begins, None if it has none."""
    found = _TEXT.match(text)
    if found is None:
        return None
    about, deleted, left = found["about"], found["deleted"], found["left"]
    return CopyProgress(
        rows=int(found["rows"]),
        rows_about=None if about is None else int(about),
        deleted=int(deleted or 0),
        seconds_left=None if left is None else int(left),
    )
