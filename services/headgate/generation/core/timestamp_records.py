"""The records of timestamp sets, and what follows from them: the next row, and what may be removed.

A generation's rows are written in this order: its ring and its place in the set, so that all writers know that it
exists; its descriptions; its streams; its timestamp. A reader polls for timestamps: a reader that sees one sees all
streams. They are deleted in the opposite order. The value of a row never changes, so two processes may write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import msgspec

from headgate.records.base import Key, Record
from headgate.records.timestamps import (
    DescriptionKey,
    RangesDescribed,
    RingKey,
    RingRecorded,
    StreamsKey,
    StreamsListed,
    TimestampGeneration,
    TimestampKey,
    TimestampLeft,
    TimestampPublished,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
    TimestampsRequested,
    TimestampsRequestKey,
)

LEEWAY_MS: Final = 5_000
"""How far clocks of writers may be apart."""

RowKey = DescriptionKey | StreamsKey | TimestampKey


class PlacedTimestamps(msgspec.Struct, frozen=True):
    """A request and its position: requests are processed in that order."""

    offset: int
    request: TimestampsRequested


@dataclass(slots=True)
class TimestampRecords:
    """The newest record of every key; of generations by (set, timestamp)."""

    sets: dict[str, TimestampSetRecorded] = field(default_factory=dict)
    rings: dict[tuple[str, int], RingRecorded] = field(default_factory=dict)
    descriptions: dict[tuple[str, int], dict[int, RangesDescribed]] = field(default_factory=dict)
    streams: dict[tuple[str, int], dict[int, StreamsListed]] = field(default_factory=dict)
    published: dict[tuple[str, int], TimestampPublished] = field(default_factory=dict)
    readers: dict[str, dict[str, TimestampLeft]] = field(default_factory=dict)
    requests: dict[TimestampsRequestKey, PlacedTimestamps] = field(default_factory=dict)

    def evolve(self, key: Key, value: Record | None, offset: int) -> None:
        """Adopt one record, of whatever key; ``value`` is of the key's type."""
        match key:
            case TimestampSetKey():
                _adopt(self.sets, key.set, value)
            case RingKey():
                _adopt(self.rings, (key.set, key.timestamp_ms), value)
            case DescriptionKey():
                _adopt_in(self.descriptions, (key.set, key.timestamp_ms), key.chunk, value)
            case StreamsKey():
                _adopt_in(self.streams, (key.set, key.timestamp_ms), key.chunk, value)
            case TimestampKey():
                _adopt(self.published, (key.set, key.timestamp_ms), value)
            case TimestampReaderKey():
                _adopt_in(self.readers, key.set, key.reader, value)
            case TimestampsRequestKey() if isinstance(value, TimestampsRequested):
                self.requests[key] = PlacedTimestamps(offset, value)
            case TimestampsRequestKey():
                self.requests.pop(key, None)
            case _:
                pass

    def parts(self) -> list[tuple[str, Any]]:
        """Every record with a name of its own, for a digest."""
        plain: dict[str, Mapping[Any, Any]] = {"timestamps": self.sets, "ring": self.rings, "timestamp": self.published}
        nested: dict[str, Mapping[Any, Mapping[Any, Any]]] = {
            "description": self.descriptions,
            "streams": self.streams,
            "timestamps-reader": self.readers,
        }
        return [
            *((f"{what} {key}", record) for what, records in plain.items() for key, record in records.items()),
            *(
                (f"{what} {outer} {inner}", record)
                for what, records in nested.items()
                for outer, of_outer in records.items()
                for inner, record in of_outer.items()
            ),
            *(
                (f"timestamps-request {key.text()} {placed.offset}", placed.request)
                for key, placed in self.requests.items()
            ),
        ]


class Removal(msgspec.Struct, frozen=True):
    """Generations that are ``due`` to be removed, what holds each of the others, and when to check again."""

    due: tuple[int, ...]
    held: dict[int, tuple[str, ...]]
    next_ms: int | None


def missing_row(records: TimestampRecords, name: str, generation: TimestampGeneration) -> RowKey | None:
    """The next row to be written of a generation; its timestamp is the last."""
    timestamp_ms = generation.timestamp_ms
    for form, known in ((DescriptionKey, records.descriptions), (StreamsKey, records.streams)):
        there = known.get((name, timestamp_ms), {})
        if len(there) < generation.chunks:
            return form(name, timestamp_ms, next(n for n in range(generation.chunks) if n not in there))
    return None if (name, timestamp_ms) in records.published else TimestampKey(name, timestamp_ms)


def writes_over_ms(record: TimestampSetRecorded) -> int:
    """So long after its successor began, no writer's clock is still in a generation."""
    return LEEWAY_MS + record.ring_delay_ms


def removal_of(records: TimestampRecords, name: str, record: TimestampSetRecorded, now_ms: int) -> Removal:
    """What may be removed now.

    A generation goes when no write can belong to it any more, its successor is published, its changes are no longer
    kept, and every reader has left it; and not before those that are older.
    """
    kept_ms = max(record.kept_ms, writes_over_ms(record))
    due: list[int] = []
    held: dict[int, tuple[str, ...]] = {}
    next_ms = None
    for generation, successor in pairwise(record.generations):
        over_ms = successor.timestamp_ms + kept_ms
        why = [
            f"reader {reader}"
            for reader, said in sorted(records.readers.get(name, {}).items())
            if said.left_ms < generation.timestamp_ms
        ]
        if record.kept_ms == 0:
            why.insert(0, KEPT_FOR_EVER)
        elif over_ms > now_ms:
            why.insert(0, f"its changes are kept until {over_ms} ms")
            next_ms = over_ms if next_ms is None else next_ms
        if (name, successor.timestamp_ms) not in records.published:
            why.append(f"generation {successor.timestamp_ms} is not published")
        if held:
            why.append("an older generation is kept")
        if why:
            held[generation.timestamp_ms] = tuple(why)
        else:
            due.append(generation.timestamp_ms)
    return Removal(tuple(due), held, next_ms)


KEPT_FOR_EVER: Final = "changes are kept without limit"


def _adopt(records: dict[Any, Any], key: Any, value: Any) -> None:
    """A record replaces its key's record unless its owner is an earlier one."""
    old = records.get(key)
    if value is None:
        records.pop(key, None)
    elif old is None or getattr(value, "owner_rev", 0) >= getattr(old, "owner_rev", 0):
        records[key] = value


def _adopt_in(records: dict[Any, dict[Any, Any]], outer: Any, inner: Any, value: Any) -> None:
    of_outer = records.setdefault(outer, {})
    _adopt(of_outer, inner, value)
    if not of_outer:
        del records[outer]
