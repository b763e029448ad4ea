"""The records of topic headgate-sink-progress in a target cluster, and what they add up to.

The topic is compacted. All records about one target topic are in one partition, so a claimer reads only that one.
Keys are JSON arrays whose first element is the kind:

- ``["progress", cluster, feed_id, target, topic, partition]`` → Row: the fence, for one partition of a source topic.
- ``["source", cluster, feed_id, target, topic]`` → SourceRow: which table's events the source topic has.
- ``["removed", cluster, feed_id]`` → Removed: in every partition, once the feed was forgotten. Whatever of it is read
  besides, or comes later, does not count.

A null value removes what its key names.
"""

import uuid
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, FeedIdentity, SinkConflictError
from headgate.sinks.fence import FenceRow

__all__ = [
    "PARTITIONS",
    "PROGRESS_TOPIC",
    "ProgressRecord",
    "ProgressScope",
    "Removed",
    "Row",
    "SourceRow",
    "State",
    "View",
    "claimer_id",
    "feed_claimer_id",
    "holder_id",
    "partition_of",
    "place_of",
    "progress_key",
    "removed_key",
    "source_key",
    "writers_of",
]

PROGRESS_TOPIC: Final = "headgate-sink-progress"

PARTITIONS: Final = 8
"""Of the progress topic. A transaction that a frozen agent has open holds up claims in its partition only."""


class ProgressScope(NamedTuple):
    """Whose rows these are: one feed's, from one source topic into one target topic."""

    cluster: str
    feed_id: str
    target: str
    topic: str


class Row(msgspec.Struct, frozen=True):
    """Who may write one partition, and from where on. ``epoch`` is (owner_rev, n).

    ``holder``: the transactional.id whose transactions write the row while it is open. ``target_id``: Kafka's id of
    the target topic when the row was claimed.
    """

    epoch: tuple[int, int]
    incarnation: int
    next: int
    closed: bool
    holder: str
    feed: str
    topic_id: str | None = None
    target_id: str | None = None

    @property
    def fence_row(self) -> FenceRow:
        """What the rules of every sink know of it."""
        return FenceRow(Epoch(*self.epoch), self.incarnation, self.next, self.closed, self.topic_id)


class SourceRow(msgspec.Struct, frozen=True):
    """The source table of a topic's events (sinks/source_tables.py), as met in an incarnation."""

    incarnation: int
    table: str


class Removed(msgspec.Struct, frozen=True):
    """When the feed was forgotten (ms since 1970)."""

    at_ms: int


class ProgressRecord(NamedTuple):
    """A record for partition ``number`` of the progress topic."""

    number: int
    key: bytes
    value: bytes | None


def place_of(claim: Claim, target: str) -> ProgressScope:
    """Where a claim's rows are."""
    return ProgressScope(claim.identity.cluster_id, claim.identity.feed_id, target, claim.topic)


def partition_of(target: str) -> int:
    """The partition of the progress topic that has all about a target topic."""
    return zlib.crc32(target.encode()) % PARTITIONS


def progress_key(place: ProgressScope, partition: int) -> bytes:
    """The key of a Row."""
    return msgspec.json.encode(["progress", *place, partition])


def source_key(place: ProgressScope) -> bytes:
    """The key of a SourceRow."""
    return msgspec.json.encode(["source", *place])


def removed_key(identity: FeedIdentity) -> bytes:
    """The key of Removed."""
    return msgspec.json.encode(["removed", identity.cluster_id, identity.feed_id])


def holder_id(progress: str) -> str:
    """A new transactional.id for records, with the progress topic's name before it."""
    return f"{progress}.holder.{uuid.uuid4().hex}"


def claimer_id(progress: str, target: str) -> str:
    """The transactional.id of all who claim rows of a target topic."""
    return f"{progress}.claim.{target}"


def feed_claimer_id(progress: str, feed_id: str) -> str:
    """The transactional.id of who forgets a feed."""
    return claimer_id(progress, f"feed.{feed_id}")


def writers_of(progress: str, key: bytes | None, value: bytes | None) -> list[str]:
    """The transactional.ids that may have written a record of the progress topic, the most probable first.

    None if Headgate has not written it.
    """
    try:
        kind, *about = msgspec.json.decode(key or b"", type=list[str | int])
        if kind == "removed" or value is None:
            return [feed_claimer_id(progress, str(about[1]))]
        holder = msgspec.json.decode(value, type=Row).holder if kind == "progress" else ""
        return [each for each in (holder, claimer_id(progress, str(about[2]))) if each]
    except (ValueError, IndexError, msgspec.MsgspecError):
        return []


class View(msgspec.Struct, frozen=True):
    """All about one target topic, at one moment."""

    rows: Mapping[ProgressScope, Mapping[int, Row]]
    sources: Mapping[ProgressScope, SourceRow]
    removed: Mapping[tuple[str, str], Removed]


class State:
    """The progress topic, folded in its order. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[ProgressScope, dict[int, Row]] = {}
        self._sources: dict[ProgressScope, SourceRow] = {}
        self._removed: dict[tuple[str, str], Removed] = {}

    def fold(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take one record in. Raises SinkConflictError if Headgate did not write it; ``where`` is its place."""
        try:
            kind, *about = msgspec.json.decode(key or b"", type=list[str | int])
            if kind == "progress":
                *place, partition = about
                self._fold_row(ProgressScope(*map(str, place)), int(partition), value)
            elif kind == "source":
                self._fold_source(ProgressScope(*map(str, about)), value)
            elif kind == "removed":
                cluster, feed_id = map(str, about)
                self._fold_removed((cluster, feed_id), value)
            else:
                raise ValueError(kind)  # noqa: TRY301 - one error for all that is not ours
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            raise SinkConflictError(
                f"{where} of the target cluster is not a record of Headgate, or of a newer version. Find out who "
                "writes to that topic: only Headgate may. Upgrade this process if a newer version has written it"
            ) from error

    def _fold_row(self, place: ProgressScope, partition: int, value: bytes | None) -> None:
        rows = self._rows.setdefault(place, {})
        if value is None:
            rows.pop(partition, None)
        else:
            rows[partition] = msgspec.json.decode(value, type=Row)
        if not rows:
            del self._rows[place]

    def _fold_source(self, place: ProgressScope, value: bytes | None) -> None:
        if value is None:
            self._sources.pop(place, None)
        else:
            self._sources[place] = msgspec.json.decode(value, type=SourceRow)

    def _fold_removed(self, feed: tuple[str, str], value: bytes | None) -> None:
        if value is not None:
            self._removed[feed] = msgspec.json.decode(value, type=Removed)

    def view(self, target: str | None) -> View:
        """All about one target topic; about all with None. Nothing of feeds that were removed."""
        return View(
            rows={place: dict(rows) for place, rows in self._rows.items() if self._counts(place, target)},
            sources={place: row for place, row in self._sources.items() if self._counts(place, target)},
            removed=dict(self._removed),
        )

    def holders(self, cluster: str, feed_id: str) -> set[str]:
        """Who holds open rows of a feed, whether it is removed or not."""
        mine = (rows for place, rows in self._rows.items() if place[:2] == (cluster, feed_id))
        return {row.holder for rows in mine for row in rows.values() if not row.closed}

    def _counts(self, place: ProgressScope, target: str | None) -> bool:
        return target in (None, place.target) and (place.cluster, place.feed_id) not in self._removed
