"""The state of migrations on the log, and how a record changes it: per key, nothing else.

Beside it, ``MigrationTerm`` is one owner's memory, from its election to its end: what it has asked for, when it heard
of whom. ``decide`` writes it, nothing else; no digest covers it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.records.base import Key, Record
from headgate.records.control import OwnerAnnounced, RequestSettled
from headgate.records.defaults import without_defaults
from headgate.records.migration import (
    MigrationApprovalKey,
    MigrationKey,
    MigrationOutcomeKey,
    MigrationOwnerKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKey,
    MigrationState,
)
from headgate.records.migration_standing import PENDING
from headgate.runtime.machine import OFFSET_UNKNOWN

__all__ = [
    "LEVEL_FIRST",
    "PENDING",
    "TERMINAL",
    "MigrationTerm",
    "MigrationsState",
    "PlacedRequest",
    "digest",
    "evolve",
    "new_state",
]

LEVEL_FIRST: Final = 1
"""What is written as long as no owner has announced more."""

TERMINAL: Final = frozenset({MigrationState.COMPLETE, MigrationState.FAILED, MigrationState.CANCELLED})


class PlacedRequest(msgspec.Struct, frozen=True):
    """A request with its offset: the order in which requests are answered."""

    request: MigrationRequested
    offset: int


@dataclass(slots=True)
class MigrationTerm:
    """One owner's memory."""

    owner_rev: int
    busy: dict[str, Any] = field(default_factory=dict)
    """By migration: the effect that is out. There is one at a time."""
    examining: dict[str, str] = field(default_factory=dict)
    """By database: the request that is being examined. One at a time, so that the order of submission is kept."""
    examined_again: dict[str, int] = field(default_factory=dict)
    """By request: how often an examination could not be done."""
    live_at: dict[str, float] = field(default_factory=dict)
    """When a running migration was seen to make progress last (monotonic); at first, when this owner took it over."""
    seen: dict[str, Any] = field(default_factory=dict)
    """How far a running migration was when it was watched last: stage, rows, position."""
    written_at: dict[str, float] = field(default_factory=dict)
    """When progress was recorded last (monotonic)."""
    said_failed: dict[str, str] = field(default_factory=dict)
    """Tools that have reported that they failed, and their messages; forgotten once that was checked."""
    uncertain: set[str] = field(default_factory=set)
    """Migrations for which the result of an effect is not known: it is found out before anything else is tried."""
    cleaning: set[str] = field(default_factory=set)
    """Migrations whose artifacts an operator wants gone now."""

    def forget(self, migration: str) -> None:
        """Forget what was remembered of an earlier attempt."""
        for memory in (self.live_at, self.seen, self.written_at):
            memory.pop(migration, None)
        self.said_failed.pop(migration, None)
        self.cleaning.discard(migration)
        self.uncertain.discard(migration)


class MigrationsState:
    """Everything on the topic; ``term`` is the owner's memory.

    ``level`` is the schema level that the owner has announced: what a lower one cannot express is not decided (ADR
    0008).
    """

    __slots__ = ("approvals", "level", "migrations", "outcomes", "requests", "term")

    def __init__(self) -> None:
        self.migrations: dict[str, MigrationRecorded] = {}
        self.requests: dict[str, PlacedRequest] = {}
        self.approvals: dict[str, PlacedRequest] = {}
        self.outcomes: dict[str, RequestSettled] = {}
        self.level = LEVEL_FIRST
        self.term: MigrationTerm | None = None


def new_state(_shard: int) -> MigrationsState:
    """The state before anything is read."""
    return MigrationsState()


def evolve(state: MigrationsState, key: Key, value: Record | None, offset: int = OFFSET_UNKNOWN) -> None:
    """A record replaces its key's, unless it is of an earlier owner."""
    match key:
        case MigrationKey():
            _put(state.migrations, key.migration, value)
        case MigrationOutcomeKey():
            _put(state.outcomes, key.request, value)
        case MigrationRequestKey():
            _place(state.requests, key.request, value, offset)
        case MigrationApprovalKey():
            _place(state.approvals, key.request, value, offset)
        case MigrationOwnerKey() if isinstance(value, OwnerAnnounced):
            state.level = max(state.level, value.level)
        case _:
            pass


def _place(requests: dict[str, PlacedRequest], name: str, value: Record | None, offset: int) -> None:
    if isinstance(value, MigrationRequested):
        requests[name] = PlacedRequest(value, offset)
    else:
        requests.pop(name, None)


def _put(records: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        records.pop(name, None)
        return
    old = records.get(name)
    if old is None or value.owner_rev >= old.owner_rev:
        records[name] = value


def digest(state: MigrationsState) -> str:
    """SHA-256 over the log part: the same for the full log, the compacted one and the live state."""
    total = hashlib.sha256()
    for name, key, record in _log_part(state):
        total.update(msgspec.json.encode((name, key, without_defaults(record))))
    return total.hexdigest()


def _log_part(state: MigrationsState) -> Iterator[tuple[str, str, msgspec.Struct]]:
    for name in ("approvals", "migrations", "outcomes", "requests"):
        for key, record in sorted(getattr(state, name).items()):
            yield name, key, record
