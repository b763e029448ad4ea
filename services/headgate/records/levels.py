"""The changes of each schema level, and how they are written at a lower one (docs/adr/0008).

Most new things are requested by a client, which then waits (``level_of``). Some are only reported: they are left out
until the level is high enough (``withheld``). The tables are checked against the schema files.
"""

from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from headgate.records.control import (
    AgentAnnounced,
    ChangeQuarantined,
    FeedProgressed,
    FeedRecorded,
    OperationKind,
    OperationRequested,
    OwnerAnnounced,
    SpanDispatched,
    SpanPlan,
    SpanProgressed,
    TaskReported,
    WantedState,
)
from headgate.records.migration import MigrationRecorded, MigrationRequestKind, MigrationState

RecordT = TypeVar("RecordT", bound=msgspec.Struct)

FIELDS: Final[dict[type[msgspec.Struct], dict[str, int]]] = {
    AgentAnnounced: {"lease_seconds": 2},
    ChangeQuarantined: {"topic_id": 2},
    FeedProgressed: {"resolved_ts": 2, "unapplied": 2},
    FeedRecorded: {"target_ts": 2, "sink_id": 2, "pinned": 2, "notices": 2, "abandoned": 2, "paused": 2},
    MigrationRecorded: {
        "server": 2,
        "throttle_until_ms": 2,
        "waiting_ms": 2,
        "cutover_after_ms": 2,
        "stage_percent": 2,
        "stage_ms": 2,
        "stages": 2,
        "throttled_ms": 2,
        "approval_required": 2,
        "submitted_by": 2,
        "approved_by": 2,
        "approved_ms": 2,
    },
    OperationRequested: {"parts": 2, "abandon_sink": 2},
    OwnerAnnounced: {"level": 2},
    SpanDispatched: {"copy": 2, "maintain": 2},
    SpanPlan: {"topic_id": 2},
    SpanProgressed: {"passed_over": 2, "passed_over_table": 2},
    TaskReported: {"maintained": 2, "maintenance": 2, "maintenance_failed": 2},
}
"""Fields that a record did not have from the beginning."""

WORDS: Final[dict[StrEnum, int]] = {
    MigrationRequestKind.APPROVE: 2,
    MigrationState.AWAITING_APPROVAL: 2,
    OperationKind.SPLIT_TABLE: 2,
    OperationKind.MERGE_TABLE: 2,
    OperationKind.PAUSE_TABLE: 2,
    OperationKind.RESUME_TABLE: 2,
    OperationKind.RESYNC_TABLE: 2,
    OperationKind.OPTIMIZE_TABLE: 2,
    WantedState.FINISHED: 2,
}
"""Words that an enum did not have from the beginning."""

WITHHELD: Final[dict[type[msgspec.Struct], frozenset[str]]] = {
    AgentAnnounced: frozenset({"lease_seconds"}),
    ChangeQuarantined: frozenset({"topic_id"}),
    FeedProgressed: frozenset({"resolved_ts", "unapplied"}),
    FeedRecorded: frozenset({"sink_id", "notices"}),
    MigrationRecorded: frozenset(
        {
            "server",
            "throttle_until_ms",
            "waiting_ms",
            "cutover_after_ms",
            "stage_percent",
            "stage_ms",
            "stages",
            "throttled_ms",
            "submitted_by",
        }
    ),
    SpanPlan: frozenset({"topic_id"}),
    SpanProgressed: frozenset({"passed_over", "passed_over_table"}),
}
"""Fields whose absence means "not known": nothing is lost that would not be determined again, or is missed."""


NESTED: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {FeedRecorded: ("spans",)}
"""Fields that contain several structs with fields of their own in the tables above."""


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Defaults of fields that were added later. Computed once per type, because every record is checked."""
    added = FIELDS.get(kind, {})
    return {field.name: field.default for field in msgspec.structs.fields(kind) if field.name in added}


def level_of(record: msgspec.Struct) -> int:
    """The least level that can express ``record``."""
    kind = type(record)
    defaults = _defaults(kind)
    levels = [level for name, level in FIELDS.get(kind, {}).items() if getattr(record, name) != defaults[name]]
    levels += [
        WORDS[value] for value in msgspec.structs.astuple(record) if isinstance(value, StrEnum) and value in WORDS
    ]
    levels += [level_of(part) for name in NESTED.get(kind, ()) for part in getattr(record, name)]
    return max(levels, default=1)


def withheld(record: RecordT, level: int) -> RecordT:
    """``record`` without WITHHELD fields that only later levels have; the same object if it has none."""
    kind = type(record)
    names = WITHHELD.get(kind)
    if names is None:
        return record
    silent = {
        name: default
        for name, default in _defaults(kind).items()
        if name in names and FIELDS[kind][name] > level and getattr(record, name) != default
    }
    for name in NESTED.get(kind, ()):
        told = getattr(record, name)
        rest = tuple(withheld(part, level) for part in told)
        if any(left is not part for left, part in zip(rest, told, strict=True)):
            silent[name] = rest
    return msgspec.structs.replace(record, **silent) if silent else record
