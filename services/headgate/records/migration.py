"""Records of the migration topic: operators' requests, and the owner's state of each schema change.

``MigrationRecorded`` is the whole state of one migration. Its transitions are in ``headgate.migration.core``.
"""

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from headgate.records.base import Key
from headgate.records.control import MemberAnnounced, OwnerAnnounced, RequestSettled


class MigrationState(StrEnum):
    """The states of Vitess's online DDL, and one before them: another user than the submitter has to approve it first.

    Complete, failed and cancelled are terminal; the others are pending. What was added later comes last, as in the
    record's schema.
    """

    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"
    AWAITING_APPROVAL = "awaiting_approval"


class MigrationStrategy(StrEnum):
    """How the table is changed: ``direct`` is the statement as it is, ``online`` a copy whose rows come through Spark.

    ``triggers`` is only in records of earlier versions (ADR 0081).
    """

    ONLINE = "online"
    TRIGGERS = "triggers"
    PT_OSC = "pt-osc"
    GH_OST = "gh-ost"
    DIRECT = "direct"


OFFERED: Final = tuple(strategy for strategy in MigrationStrategy if strategy is not MigrationStrategy.TRIGGERS)
"""The strategies that can be requested."""


class MigrationRequestKind(StrEnum):
    """What an operator can ask for."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    RETRY = "retry"
    LAUNCH = "launch"
    COMPLETE = "complete"
    REVERT = "revert"
    CLEANUP = "cleanup"
    THROTTLE = "throttle"
    FORCE_CUTOVER = "force_cutover"
    APPROVE = "approve"
    """On a topic of its own, so that the right to submit is not the right to approve."""


class MigrationRequested(msgspec.Struct, frozen=True):
    """An operator's request. ``spec`` is the migration as JSON, for submit and revert.

    ``throttle_ratio`` (throttle): 0 is full speed, 1 pauses it; ``expires_seconds``: for how long.
    """

    kind: MigrationRequestKind
    migration: str
    spec: str | None
    throttle_ratio: float | None
    expires_seconds: float | None
    requested_by: str
    requested_ms: int


FEED: Final = "feed"
"""The kind of artifact that keeps the table before up to date; all others are at the database."""


class Artifact(msgspec.Struct, frozen=True):
    """Something a migration has left: ``kind`` is table, trigger or feed, ``name`` as on the server, or the cluster."""

    kind: str
    name: str


class StageTime(msgspec.Struct, frozen=True):
    """The time that a migration has spent in a stage, all its visits together."""

    stage: str
    ms: int


class MigrationRecorded(msgspec.Struct, frozen=True):
    """``<id>`` on migration: one schema change of one table.

    ``sequence`` is the offset of its request: the order of submission. ``spec`` is the migration as accepted, as JSON.
    ``is_immediate``: it has no phase of copying. ``attempt`` counts starts, ``retries`` those of them that followed a
    retry. ``ending`` is the state that it is being ended towards: an intent, until a stop is confirmed.
    ``owner_failed``: it failed because its owner did. ``was_ready``: it had copied everything at some time. ``note`` is
    the strategy's own memory, as JSON: where to resume. ``eta_seconds`` is -1 if it is not known. ``live_ms``: when it
    last made progress. ``server``: the identity of the database, whatever name or address it has; empty in records of
    earlier versions. Deadlines are times of the owners' clocks, 0 if there is none: ``throttle_until_ms`` ends the
    throttle, ``cutover_after_ms`` is when the next cut-over may be tried, and ``waiting_ms`` is since when only the
    cut-over is missing.

    ``stage_percent`` is how much of the present stage is done, -1 if that is not known; ``stage_ms`` is when the stage
    began, and ``stages`` has the time spent in stages that were left, of this attempt. ``eta_seconds`` is the time to
    the end of the stage. ``throttled_ms``: since when ``throttle_reason`` holds it up, 0 if nothing does.

    ``submitted_by`` and ``approved_by`` are users as their commands named them; ``approval_required``: another user
    than the submitter has to approve it before it is queued.
    """

    owner_rev: int
    sequence: int
    spec: str
    action: str
    table: str
    is_immediate: bool
    state: MigrationState
    stage: str
    attempt: int
    retries: int
    ending: MigrationState | None
    owner_failed: bool
    has_nothing_to_do: bool
    launch_postponed: bool
    completion_postponed: bool
    is_ready_to_complete: bool
    was_ready: bool
    cutover_attempts: int
    cutover_forced: bool
    rows_copied: int
    table_rows: int
    eta_seconds: int
    throttle_ratio: float
    throttle_reason: str
    artifacts: tuple[Artifact, ...]
    note: str
    message: str
    added_ms: int
    ready_ms: int
    started_ms: int
    live_ms: int
    ended_ms: int
    server: str = ""
    throttle_until_ms: int = 0
    waiting_ms: int = 0
    cutover_after_ms: int = 0
    stage_percent: int = -1
    stage_ms: int = 0
    stages: tuple[StageTime, ...] = ()
    throttled_ms: int = 0
    approval_required: bool = False
    submitted_by: str = ""
    approved_by: str = ""
    approved_ms: int = 0


class MigrationOwnerKey(Key, frozen=True, order=True):
    """``migration/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("migration",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class MigrationMemberKey(Key, frozen=True, order=True):
    """``migration-member/<id>`` on announce: a process that could own the migrations."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("migration-member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class EarlierMigrationRequestKey(Key, frozen=True, order=True):
    """``request/<id>`` on migration: the requests of earlier versions' commands. They are no longer answered."""

    topic: ClassVar[str] = "migration"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = MigrationRequested
    request: str


class MigrationApprovalKey(Key, frozen=True, order=True):
    """``request/<id>`` on migration-approval, written by the user who approves."""

    topic: ClassVar[str] = "migration-approval"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = MigrationRequested
    request: str


class MigrationRequestKey(Key, frozen=True, order=True):
    """``request/<id>`` on migration-request, written by the user who requests."""

    topic: ClassVar[str] = "migration-request"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = MigrationRequested
    request: str


class MigrationOutcomeKey(Key, frozen=True, order=True):
    """``outcome/<id>`` on migration."""

    topic: ClassVar[str] = "migration"
    prefix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    request: str


class MigrationKey(Key, frozen=True, order=True):
    """``<migration>`` on migration."""

    topic: ClassVar[str] = "migration"
    record: ClassVar[type] = MigrationRecorded
    by_owner: ClassVar[bool] = True
    migration: str


KEYS: Final[tuple[type[Key], ...]] = (
    MigrationOwnerKey,
    MigrationMemberKey,
    MigrationRequestKey,
    MigrationApprovalKey,
    EarlierMigrationRequestKey,
    MigrationOutcomeKey,
    MigrationKey,
)
"""In the order in which a key's text is tried: forms with a fixed first word come first within a topic."""

FOR_PEOPLE: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    MigrationRecorded: ("rows_copied", "table_rows", "throttle_reason", "message", "submitted_by", "approved_by"),
    MigrationRequested: ("requested_by",),
}
"""See fitting.py."""
