"""Ledgers: who may write a table, and which feeds were removed, each the newest version of a log of its own.

The state is one property of that log, so that it stays when old entries of the log are removed. A writer replaces it on
exactly the version that it has read.
"""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from headgate.records.control import Epoch
from headgate.sinks.contract import SinkConflictError
from headgate.sinks.fence import FenceRow
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.row_copying import CopyMark

__all__ = [
    "Copying",
    "Feeds",
    "Holding",
    "Holdings",
    "KeptColumns",
    "Ledger",
    "LedgerEntry",
    "Log",
    "Row",
    "Source",
    "Written",
]

PROPERTY: Final = "headgate.state"


class Row(msgspec.Struct, frozen=True):
    """Who may write a partition's changes. ``start``: its first offset in the incarnation.

    ``table_id``: the table's id when the incarnation was first claimed with a table.
    """

    epoch: tuple[int, int]
    incarnation: int
    start: int
    closed: bool
    topic_id: str | None = None
    table_id: str | None = None

    def fence_row(self, next_offset: int | None) -> FenceRow:
        """What the rules of every sink know of it. ``next_offset``: the table's, None if it has none."""
        position = self.start if next_offset is None else next_offset
        return FenceRow(Epoch(*self.epoch), self.incarnation, position, self.closed, self.topic_id)


class Source(msgspec.Struct, frozen=True):
    """The source table of a topic's events (sinks/source_tables.py), as met in an incarnation."""

    incarnation: int
    table: str


class KeptColumns(msgspec.Struct, frozen=True):
    """What is kept of the table's columns in an incarnation, where Headgate alters the table."""

    incarnation: int
    columns: KnownColumns


class Copying(msgspec.Struct, frozen=True):
    """How far a request to copy the table is: ``begun`` once the table has range ``number``, and ``done`` before.

    ``table_id``: the table that has got the ranges.
    """

    table_id: str
    number: int
    done: CopyMark
    begun: CopyMark

    def reached(self, request: str, table_id: str, number: int | None) -> CopyMark:
        """How far ``request`` is in a table that has range ``number``."""
        if self.done.request != request or self.table_id != table_id:
            return CopyMark(request=request)
        return self.begun if number is not None and number >= self.number else self.done


class Holding(msgspec.Struct, frozen=True):
    """What a table's ledger has of one topic of one feed."""

    cluster: str
    feed_id: str
    feed: str
    topic: str
    rows: dict[int, Row]
    source: Source | None = None
    copying: Copying | None = None
    known: KeptColumns | None = None

    @property
    def is_open(self) -> bool:
        """Whether a process may write."""
        return any(not row.closed for row in self.rows.values())


class Holdings(msgspec.Struct, frozen=True):
    """All about one table."""

    all: tuple[Holding, ...] = ()

    def of(self, cluster: str, feed_id: str, topic: str) -> Holding | None:
        """The holding of a topic."""
        return next(
            (each for each in self.all if (each.cluster, each.feed_id, each.topic) == (cluster, feed_id, topic)), None
        )

    def with_(self, holding: Holding) -> "Holdings":
        """The same with this one in the place of the former."""
        place = holding.cluster, holding.feed_id, holding.topic
        rest = [each for each in self.all if (each.cluster, each.feed_id, each.topic) != place]
        return Holdings((*rest, holding))

    def without(self, cluster: str, feed_id: str) -> "Holdings":
        """The same without the holdings of a feed."""
        return Holdings(tuple(each for each in self.all if (each.cluster, each.feed_id) != (cluster, feed_id)))


class Feeds(msgspec.Struct, frozen=True):
    """Of all feeds into the folder, as cluster and feed_id in one text: tables claimed, and when it was removed."""

    tables: dict[str, tuple[str, ...]] = {}
    removed_ms: dict[str, int] = {}


class Written(msgspec.Struct, frozen=True):
    """The version of a ledger that was written. ``id``: the ledger's."""

    id: str
    version: int


class LedgerEntry(Protocol):
    """One version of a ledger's log."""

    @property
    def id(self) -> str:
        """The id that the log got when it was created."""
        ...

    @property
    def version(self) -> int:
        """The first is 0, and each next one more."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """What the version has."""
        ...

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Write the next version, on exactly this one. Raises ConflictError, SinkError."""
        ...


class Log(Protocol):
    """What a ledger is stored in."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        ...

    def read(self) -> LedgerEntry | None:
        """The newest version; None before the first. Raises SinkError."""
        ...

    def create(self, properties: dict[str, str]) -> str:
        """Write the first version, and return the log's id. Raises ConflictError if there is one, SinkError."""
        ...


T = TypeVar("T", bound=msgspec.Struct)


class Ledger(Generic[T]):
    """One ledger. ``nothing`` is its state before the first write."""

    def __init__(self, log: Log, nothing: T) -> None:
        self._log = log
        self._nothing = nothing

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self._log.place

    def read(self) -> tuple[LedgerEntry | None, T]:
        """Its newest version, None before the first, and the state. Raises SinkError."""
        entry = self._log.read()
        if entry is None:
            return None, self._nothing
        try:
            return entry, msgspec.json.decode(entry.properties.get(PROPERTY, ""), type=type(self._nothing))
        except msgspec.MsgspecError as error:
            raise SinkConflictError(
                f"{self.place} is not a ledger of Headgate, or of a newer version. Only Headgate may write to it. "
                "Upgrade this process if a newer version has written it"
            ) from error

    def write(self, on: LedgerEntry | None, state: T) -> Written:
        """Replace the state of version ``on``, which was read. Raises ConflictError, SinkError."""
        properties = {PROPERTY: msgspec.json.encode(state).decode()}
        if on is None:
            return Written(self._log.create(properties), 0)
        written = Written(on.id, on.version + 1)  # of what it writes on: a library may move it to the new version
        on.set_properties(properties)
        return written
