"""Shortens texts from outside in a record so that the record can always be written.

Errors of databases and registries, names and times from events go into records. A text may be as long as a row, and may
contain half of a surrogate pair, which UTF-8 cannot encode; a number from an event may have any length. A record with
such a value could not be encoded: the process that decided it would fail, then its successor, which decides the same.

Fields **for people** (``FOR_PEOPLE``) are shortened and clamped, and their odd characters are replaced. Values that
decisions depend on are never changed: names and offsets are refused where they come in (``why_unwritable``), evidence
of time where it is decoded (headgate.formats). Machines fit a record when they decide it, so that what they remember is
what is on the log.
"""

from typing import Any, Final, TypeVar

import msgspec

from headgate.records import generation, migration, timestamps
from headgate.records.control import (
    AgentAnnounced,
    ChangeQuarantined,
    FeedProgressed,
    FeedRecorded,
    HeldBy,
    OperationRequested,
    RequestSettled,
    SessionEnded,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    TaskReported,
)
from headgate.records.ts import TS_MAX

RecordT = TypeVar("RecordT", bound=msgspec.Struct)

TEXT_LENGTH_MAX: Final = 8_000
"""Characters of a text for people: a page. Far above the limit of error texts (2 000, agent/lane), far below what a
topic takes, even with all of a record's texts at four bytes a character."""

CUT: Final = " … (cut)"

NUMBER_MAX: Final = 2**63 - 1
"""Avro's ``long``."""

FOR_PEOPLE: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    **generation.FOR_PEOPLE,
    **migration.FOR_PEOPLE,
    **timestamps.FOR_PEOPLE,
    AgentAnnounced: ("version", "address"),
    TaskReported: ("error_code", "error", "maintenance"),
    SpanDispatched: ("last_error",),
    SessionEnded: ("reason",),
    SpanProgressed: (
        "seen_ts",
        "resolved_ts",
        "rows",
        "bytes",
        "lag_ms",
        "passed_over",
        "passed_over_table",
    ),
    HeldBy: ("detail",),
    FeedProgressed: ("held_by",),
    OperationRequested: ("requested_by",),
    RequestSettled: ("reason",),
    FeedRecorded: ("error_code", "error", "notices"),
    ChangeQuarantined: ("error_code", "error"),
}
"""Fields that outsiders can influence and that no decision uses. ``resolved_ts`` is evidence, and refused as such where
it is decoded; here a number beyond all times is dropped."""


def fitted(record: RecordT) -> RecordT:
    """``record`` as it can be written; the same object if nothing has to be changed."""
    changed: dict[str, Any] = {}
    for name in FOR_PEOPLE.get(type(record), ()):
        value = getattr(record, name)
        if name == "resolved_ts":
            fit = value if value is None or 0 <= value <= TS_MAX else None
        else:
            fit = _fitted_value(value)
        if fit is not value:
            changed[name] = fit
    return msgspec.structs.replace(record, **changed) if changed else record


def _fitted_value(value: Any) -> Any:
    if isinstance(value, str):
        return fitted_text(value)
    if isinstance(value, int):
        return value if 0 <= value <= NUMBER_MAX else min(max(value, 0), NUMBER_MAX)
    if isinstance(value, tuple):
        fit = tuple(map(fitted_text, value))
        return value if fit == value else fit
    return fitted(value) if isinstance(value, HeldBy) else value


def fitted_text(text: str) -> str:
    """``text`` no longer than a page, in characters that UTF-8 has; the same object if it already is."""
    if len(text) > TEXT_LENGTH_MAX:
        text = text[: TEXT_LENGTH_MAX - len(CUT)] + CUT
    return text if is_name(text) else text.encode(errors="backslashreplace").decode()[:TEXT_LENGTH_MAX]


def is_name(text: str) -> bool:
    """Whether UTF-8 can encode it: names go into keys, where nothing may be replaced."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def why_unwritable(plan: SpanPlan) -> str | None:
    """Why a span cannot be planned this way; None if it can."""
    if not all(map(is_name, (plan.span, plan.topic, plan.table))):
        return f"table {fitted_text(plan.table)!r} has half of a surrogate pair in its name, which nothing can write"
    odd = next((offset for _, offset in sorted(plan.start.items()) if not 0 <= offset <= NUMBER_MAX), None)
    return None if odd is None else f"table {plan.table} cannot start at offset {odd}: no topic has it"
