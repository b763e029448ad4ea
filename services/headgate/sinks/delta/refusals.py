"""Errors of delta-rs that no attempt will heal: what a table declares does not permit the commit, or the read."""

import re
from collections.abc import Collection
from typing import Final

from headgate.config.error_values import are_values_shown
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.delta.constraints import VIOLATED
from headgate.sinks.lake.files import ERROR_LENGTH_MAX

__all__ = ["is_refusal", "refused", "violated"]

_FEATURES: Final = re.compile(
    r"Unsupported table features required(: \[[\w, ()\"]*\])?|Kernel error: Unsupported|"
    r"Unsupported minimum (reader|writer) version( \d+)?|Feature '\w*' is not supported|"
    r"([\w ]*: \{[\w', ]*\} but these are )?not yet supported by the deltalake reader|"
    r"Column mapping is (enabled|not supported)|on column-mapped tables is not yet supported"
)
"""With the names of the features, and nothing that a row could have."""

_APPEND_ONLY: Final = re.compile(r"Delta table is append-only")


def is_refusal(error: Exception) -> bool:
    """Whether the error is about what the table declares, and not about another commit."""
    return any(known.search(str(error)) for known in (_FEATURES, _APPEND_ONLY, VIOLATED))


def violated(error: Exception, doing: str, conditions: Collection[str]) -> SinkRefusedError | None:
    """The error's meaning if it is about rows that a condition of the table forbids. ``conditions``: all of them."""
    text = str(error)
    if not VIOLATED.search(text):
        return None
    which = f" ({'; '.join(conditions)})" if conditions else ""
    rows = f": {text[:ERROR_LENGTH_MAX]}" if are_values_shown() else ""
    return SinkRefusedError(
        f"{doing}: rows violate a constraint of the table{which}{rows}. Correct the rows at the source, or drop the "
        "constraint (Spark: ALTER TABLE … DROP CONSTRAINT, or ALTER COLUMN … DROP NOT NULL)"
    )


def refused(error: Exception, doing: str) -> SinkRefusedError | None:
    """What the error means; None if it is of another kind."""
    found = violated(error, doing, ())
    if found is not None:  # first, because its text has a row, whose values could read like the others
        return found
    text = str(error)
    if _FEATURES.search(text):
        features = ": ".join(found[0] for found in _FEATURES.finditer(text))
        return SinkRefusedError(
            f"{doing}: the table uses features that delta-rs does not write: {features}. Drop them "
            "(Spark: ALTER TABLE … DROP FEATURE), or let Headgate create the table and copy its rows"
        )
    if _APPEND_ONLY.search(text):
        return SinkRefusedError(
            f"{doing}: the table is append-only, and the feed updates and deletes rows. Unset its property "
            "delta.appendOnly, or set sink.mode: append"
        )
    return None
