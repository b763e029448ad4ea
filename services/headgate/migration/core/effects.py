"""Effects that the scheduler requests at a database, and their results.

Each effect carries the migration's record as it was committed, so that the worker needs no memory of its own, and the
term of the owner that requests it: at the database, nothing that an earlier owner still does may land after it. Another
owner can run each of them again if this one dies in the middle of it: the effect finds what exists, and continues or
undoes it.

    ExamineMigration   Examined | Identified | ExamineRefused      reads only; before anything is accepted
    StartMigration     Progressed | Refused | Completed            Refused: the database is as it was before
    AdoptMigration     Progressed | NotThere | Completed | Broke   takes over what another owner has started
    WatchMigration     Progressed | ToolSeen | Completed | Broke   returns at once
    CutOverMigration   Completed | CutOverFailed | Broke           CutOverFailed: the table is as before; continue
    StopMigration      Stopped | Completed                         Stopped: it writes no more; Completed: too late
    CleanUpMigration   CleanedUp

Any of them may return EffectFailed: it could not be done now, and what is true is not known. It is requested again.

A program that does a migration (pt-online-schema-change, gh-ost) reports its own progress: ToolReported. That is an
input, not a fact: the outcome is checked at the database.
"""

from enum import StrEnum

import msgspec

from headgate.migration.core.spec import MigrationSpec
from headgate.records.migration import Artifact, MigrationRecorded

__all__ = [
    "AdoptMigration",
    "Broke",
    "CleanUpMigration",
    "CleanedUp",
    "Completed",
    "CutOverFailed",
    "CutOverMigration",
    "ExamineMigration",
    "ExamineRefused",
    "Examined",
    "Identified",
    "NotThere",
    "Progressed",
    "Refused",
    "StartMigration",
    "StopMigration",
    "Stopped",
    "ToolReported",
    "ToolSeen",
    "ToolStatus",
    "WatchMigration",
]


class ExamineMigration(msgspec.Struct, frozen=True):
    """Find out whether a submitted migration can be done. ``reverted`` is the record of the one that it undoes.

    ``reads_only``: by reading alone, in sessions that cannot write; less is found out then. ``is_known``: a migration
    of that id exists, at the database of identity ``known_server``. Then only the identity of the spec's database is
    asked for (``Identified``). ``asked_ms``: when the owner asked.
    """

    request: str
    migration: str
    spec: MigrationSpec
    reverted: MigrationRecorded | None = None
    reads_only: bool = False
    is_known: bool = False
    known_server: str = ""
    asked_ms: int = 0


class StartMigration(msgspec.Struct, frozen=True):
    """Start the migration; what an earlier attempt has left is dropped first."""

    migration: str
    record: MigrationRecorded
    reverted: MigrationRecorded | None = None
    owner_rev: int = -1


class AdoptMigration(msgspec.Struct, frozen=True):
    """Continue what another owner has started, from where it is."""

    migration: str
    record: MigrationRecorded
    reverted: MigrationRecorded | None = None
    owner_rev: int = -1


class WatchMigration(msgspec.Struct, frozen=True):
    """Report progress, and obey the record's throttle ratio."""

    migration: str
    record: MigrationRecorded
    owner_rev: int = -1


class CutOverMigration(msgspec.Struct, frozen=True):
    """Put the changed copy in the table's place."""

    migration: str
    record: MigrationRecorded
    owner_rev: int = -1


class StopMigration(msgspec.Struct, frozen=True):
    """End the migration; ``is_forced``: kill what runs, because it was silent for too long or its owner is gone."""

    migration: str
    record: MigrationRecorded
    is_forced: bool
    owner_rev: int = -1


class CleanUpMigration(msgspec.Struct, frozen=True):
    """Drop what the migration has left; ``keeps_tables``: only what keeps the table before up to date."""

    migration: str
    record: MigrationRecorded
    keeps_tables: bool = False
    owner_rev: int = -1


class Examined(msgspec.Struct, frozen=True):
    """It can be done. ``server`` is the database's identity, so that two migrations of it are known as such.

    ``statement``: the ALTER that was found for a wanted table (``MigrationSpec.declarative``), else empty.
    ``needs_approval``: its connection requires that another user than the submitter approves it.
    """

    action: str
    table: str
    server: str
    is_immediate: bool
    has_nothing_to_do: bool = False
    message: str = ""
    statement: str = ""
    needs_approval: bool = False


class Identified(msgspec.Struct, frozen=True):
    """Which database a submission names, by its identity."""

    server: str


class ExamineRefused(msgspec.Struct, frozen=True):
    """It cannot be done: what, where, and what to do about it."""

    reason: str


class Progressed(msgspec.Struct, frozen=True):
    """The migration runs.

    ``eta_seconds`` and ``stage_percent`` are about the present stage, -1 where they are not known.
    ``position`` is how far it is, beside rows and stage, in whatever form: if none of them changes for too long, the
    migration is stale. ``is_live``: its program or thread is there. ``is_working``: the server itself works on one long
    statement, so that no progress can be expected. ``is_held``: it waits for a limit that the operator has set.
    """

    stage: str
    rows_copied: int = 0
    table_rows: int = 0
    eta_seconds: int = -1
    stage_percent: int = -1
    is_ready_to_complete: bool = False
    is_live: bool = True
    throttle_reason: str = ""
    artifacts: tuple[Artifact, ...] = ()
    note: str = ""
    position: str = ""
    is_working: bool = False
    is_held: bool = False


class ToolSeen(msgspec.Struct, frozen=True):
    """A tool's process, as its owner sees it; the tool reports its progress by itself. None: as it is recorded."""

    is_live: bool
    rows_copied: int | None = None
    eta_seconds: int | None = None
    throttle_reason: str = ""
    artifacts: tuple[Artifact, ...] = ()
    note: str = ""


class ToolStatus(StrEnum):
    """The statuses that a tool can report; the words of Vitess's report-status."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


class ToolReported(msgspec.Struct, frozen=True):
    """A tool's report on its migration. An empty ``stage``, and numbers that are None, are unchanged."""

    migration: str
    status: ToolStatus
    stage: str = ""
    rows_copied: int | None = None
    progress_percent: float | None = None
    eta_seconds: int | None = None
    is_ready_to_complete: bool = False
    message: str = ""


class Refused(msgspec.Struct, frozen=True):
    """The migration was not started, and the database is unchanged."""

    reason: str


class Completed(msgspec.Struct, frozen=True):
    """The change is in force: seen at the database, not inferred."""

    message: str = ""
    artifacts: tuple[Artifact, ...] = ()
    note: str = ""


class Broke(msgspec.Struct, frozen=True):
    """The migration cannot continue; its artifacts still exist."""

    reason: str
    artifacts: tuple[Artifact, ...] = ()
    note: str = ""


class NotThere(msgspec.Struct, frozen=True):
    """Nothing of the migration exists at the database, and the table is unchanged."""


class CutOverFailed(msgspec.Struct, frozen=True):
    """The table is as before the cut-over; the copy continues, and a later attempt may succeed."""

    reason: str


class Stopped(msgspec.Struct, frozen=True):
    """Nothing of it writes any more, and the table is as before. ``artifacts`` are still there.

    ``way_back``: what a revert has started and left to the migration that it should have reverted.
    """

    artifacts: tuple[Artifact, ...] = ()
    message: str = ""
    way_back: tuple[Artifact, ...] = ()


class CleanedUp(msgspec.Struct, frozen=True):
    """What could be dropped is gone; ``artifacts`` are left."""

    artifacts: tuple[Artifact, ...] = ()
