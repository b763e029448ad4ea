"""The two tables that say in timestamp mode which generations there are, and in which order their rows are written.

The **description** table is for those who write: per generation its whole topology. The **streams** table is for those
who read: per generation and range its streams, and a row of its own with the generation's timestamp. A reader looks for
timestamps, so the timestamp's row is written last and deleted first: whoever sees it sees all streams.

Rows are whole and have one value for ever (but for their expiry), so writing them again changes nothing: a publisher
that was interrupted begins again, and two may do it at once. Generations are published one by one, the oldest first.

A generation *expires* when its successor begins. It is removed when no write can belong to it any more, its successor
is published, its changes are no longer kept, and every reader has left it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timeline import LEEWAY_MS, RING_DELAY_MS, GenerationError
from headgate.generation.core.topology import Topology

__all__ = [
    "DescriptionRow",
    "DescriptionTables",
    "RepairRequests",
    "StreamsRow",
    "TimestampRow",
    "needs_repair",
]

WRITES_OVER_MS: Final = LEEWAY_MS + RING_DELAY_MS
"""After its successor began for so long, no writer's clock is still in a generation."""


class DescriptionRow(msgspec.Struct, frozen=True):
    """``cdc_generation_descriptions``: ``timestamp_ms`` → the topology; ``expired_ms`` once a successor is known."""

    timestamp_ms: int
    topology: Topology
    expired_ms: int | None = None


class StreamsRow(msgspec.Struct, frozen=True):
    """``cdc_streams_descriptions``: (``timestamp_ms``, end of the range) → its streams."""

    timestamp_ms: int
    range_end: int
    streams: tuple[StreamId, ...]


class TimestampRow(msgspec.Struct, frozen=True):
    """``cdc_streams_descriptions``: that the generation is there as a whole; ``expired_ms`` as above."""

    timestamp_ms: int
    expired_ms: int | None = None


Row = DescriptionRow | StreamsRow | TimestampRow


class DescriptionTables(msgspec.Struct, frozen=True):
    """Both tables as a value: rows by their keys. Every change gives other tables; storing them is the caller's."""

    descriptions: Mapping[int, DescriptionRow] = {}
    streams: Mapping[tuple[int, int], StreamsRow] = {}
    timestamps: Mapping[int, TimestampRow] = {}

    def described(self, timestamp_ms: int, topology: Topology) -> DescriptionRow:
        """The row of a new generation. Raises GenerationError unless it is behind all that are described.

        Describing the same generation again gives the row that is there.
        """
        known = self.descriptions.get(timestamp_ms)
        if known is not None and known.topology == topology:
            return known
        latest = max(self.descriptions, default=None)
        if latest is not None and timestamp_ms <= latest:
            raise GenerationError(
                f"a generation from {timestamp_ms} ms on cannot be described: that of {latest} ms is there already"
            )
        return DescriptionRow(timestamp_ms, topology)

    def to_publish(self) -> tuple[Row, ...]:
        """The rows still to be written for the oldest generation that readers do not see; its timestamp is the last."""
        waiting = sorted(set(self.descriptions) - set(self.timestamps))
        if not waiting:
            return ()
        oldest = self.descriptions[waiting[0]]
        rows = [StreamsRow(waiting[0], entry.end, entry.streams) for entry in oldest.topology.entries]
        missing = [row for row in rows if self.streams.get((row.timestamp_ms, row.range_end)) != row]
        return (*missing, TimestampRow(waiting[0], oldest.expired_ms))

    def to_expire(self) -> tuple[Row, ...]:
        """Rows that say from when on a generation is superseded, for those whose successor is described."""
        rows: list[Row] = []
        ordered = sorted(self.descriptions)
        for timestamp_ms, successor_ms in pairwise(ordered):
            description, seen = self.descriptions[timestamp_ms], self.timestamps.get(timestamp_ms)
            if description.expired_ms is None:
                rows.append(replace(description, expired_ms=successor_ms))
            if seen is not None and seen.expired_ms is None:
                rows.append(replace(seen, expired_ms=successor_ms))
        return tuple(rows)

    def to_remove(self, now_ms: int, kept_ms: int, readers_ms: Iterable[int] = ()) -> tuple[Row, ...]:
        """Rows to delete, in this order. ``readers_ms``: the generation that each reader is in.

        ``kept_ms``: how long changes are kept after they were written; 0 keeps everything.
        """
        if kept_ms == 0:
            return ()
        over_ms = min([now_ms - max(kept_ms, WRITES_OVER_MS), *readers_ms])
        rows: list[Row] = []
        for timestamp_ms in sorted(self.descriptions):
            description = self.descriptions[timestamp_ms]
            successor_ms = description.expired_ms
            if successor_ms is None or successor_ms > over_ms or successor_ms not in self.timestamps:
                break
            ends = (entry.end for entry in description.topology.entries)
            seen = self.timestamps.get(timestamp_ms)
            rows += [] if seen is None else [seen]
            rows += [row for end in ends if (row := self.streams.get((timestamp_ms, end))) is not None]
            rows.append(description)
        return tuple(rows)

    def with_rows(self, rows: Sequence[Row]) -> "DescriptionTables":
        """The tables after these rows were written, in whatever order and however often."""
        descriptions, streams, timestamps = dict(self.descriptions), dict(self.streams), dict(self.timestamps)
        for row in rows:
            match row:
                case DescriptionRow():
                    descriptions[row.timestamp_ms] = row
                case StreamsRow():
                    streams[row.timestamp_ms, row.range_end] = row
                case TimestampRow():
                    timestamps[row.timestamp_ms] = row
        return DescriptionTables(descriptions, streams, timestamps)

    def without_rows(self, rows: Sequence[Row]) -> "DescriptionTables":
        """The tables after these rows were deleted; a row that is not there is no error."""
        descriptions, streams, timestamps = dict(self.descriptions), dict(self.streams), dict(self.timestamps)
        for row in rows:
            match row:
                case DescriptionRow():
                    descriptions.pop(row.timestamp_ms, None)
                case StreamsRow():
                    streams.pop((row.timestamp_ms, row.range_end), None)
                case TimestampRow():
                    timestamps.pop(row.timestamp_ms, None)
        return DescriptionTables(descriptions, streams, timestamps)

    def streams_at(self, timestamp_ms: int) -> frozenset[StreamId]:
        """What a reader sees of a generation. Raises GenerationError for one that is not (or no longer) published."""
        if timestamp_ms not in self.timestamps:
            raise GenerationError(f"no generation of {timestamp_ms} ms is published")
        rows = (row for key, row in self.streams.items() if key[0] == timestamp_ms)
        return frozenset(stream for row in rows for stream in row.streams)


def needs_repair(topology: Topology | None, ring: Sequence[int]) -> str | None:
    """Why a new generation has to be made for a ring with these tokens; None if the present one fits it."""
    if topology is None:
        return "there is no generation"
    if topology.is_optimal_for(ring):
        return None
    return f"the generation has {len(topology.entries)} ranges, the ring {len(set(ring))}, or they end elsewhere"


class RepairRequests(msgspec.Struct, frozen=True):
    """Requests to check and repair. All that come before the commit of a generation are answered by that commit.

    They may be: the check is made of the ring as it is when the generation is made, and asking twice asks for the same.
    """

    waiting: tuple[str, ...] = ()

    def asked(self, request: str) -> tuple["RepairRequests", bool]:
        """With one more request (once, however often it is made); whether the work is to be begun."""
        if request in self.waiting:
            return self, False
        return RepairRequests((*self.waiting, request)), not self.waiting

    def answered(self) -> tuple["RepairRequests", tuple[str, ...]]:
        """None left, and who is answered now that the work is done, or has failed."""
        return RepairRequests(), self.waiting
