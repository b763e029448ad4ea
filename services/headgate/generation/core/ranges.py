"""A change log's map: which range of tokens goes to which stream, and which streams each one follows.

A stream is a place on the log: a partition of the log's topic from an offset on, for one range. A switch closes some
streams and opens others in their place; ranges that do not change keep their stream. A stream's *parents* are the
streams whose tokens it takes over. It may be read only when all of them have ended, so each key's changes keep their
order whatever is split or merged. There may be any number of parents.

The ring is cut without a way round its end: the first range begins at the smallest token, the last ends with the
largest. Partitions are used again once a stream has ended, so their number is the most that were ever needed at once.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec

from headgate.generation.core.stream_id import INDEX_MAX, StreamId
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN

FIRST_TOKEN: Final = MIN_TOKEN + 1
LAST_TOKEN: Final = MAX_TOKEN - 1
"""The smallest and the largest token that a key can have."""


class MapError(ValueError):
    """A map or a switch that would lose or reorder changes; the message names the stream or the token."""


class Recut(msgspec.Struct, frozen=True):
    """Neighbouring streams whose tokens are cut again behind each of ``cuts``; without cuts they are merged."""

    streams: tuple[StreamId, ...]
    cuts: tuple[int, ...]
    why: str


class LogStream(msgspec.Struct, frozen=True):
    """One stream: it takes the tokens (``start``, ``end``] on ``partition``; ``parents`` are the streams it follows.

    ``generation`` is the number of the one that opened it. ``start_offset`` is the first offset that can hold a record
    of it: earlier records on the partition belong to a stream that has ended.
    """

    id: StreamId
    start: int
    end: int
    partition: int
    generation: int
    parents: tuple[StreamId, ...] = ()
    start_offset: int = 0

    def overlaps(self, other: "LogStream") -> bool:
        """Whether there are tokens of both."""
        return self.start < other.end and other.start < self.end


class LogMap(msgspec.Struct, frozen=True, dict=True):
    """The streams of one generation of a log, by their ranges. Make it by ``of``, which checks it."""

    generation: int
    streams: tuple[LogStream, ...]

    @classmethod
    def of(cls, generation: int, streams: Sequence[LogStream], partitions: int) -> "LogMap":
        """A map over a topic of so many partitions.

        Raises MapError for a hole, an overlap, an empty range, a partition that is not there or serves two streams.
        """
        if not streams:
            raise MapError(f"generation {generation} has no stream: every token needs one")
        if len(streams) > INDEX_MAX + 1:
            raise MapError(f"generation {generation} has {len(streams)} streams, more than {INDEX_MAX + 1}")
        _check_ranges(streams)
        taken: dict[int, LogStream] = {}
        ids: set[StreamId] = set()
        for stream in streams:
            if not 0 <= stream.partition < partitions:
                raise MapError(f"stream {stream.id} is on partition {stream.partition}; the topic has {partitions}")
            if stream.partition in taken:
                other = taken[stream.partition].id
                raise MapError(f"streams {other} and {stream.id} are both on partition {stream.partition}")
            if stream.id in ids:
                raise MapError(f"stream {stream.id} has two ranges")
            if stream.generation > generation:
                raise MapError(f"stream {stream.id} is of generation {stream.generation}, behind {generation}")
            taken[stream.partition] = stream
            ids.add(stream.id)
        return cls(generation, tuple(streams))

    def stream_of(self, token: int) -> LogStream:
        """The stream of a key's token. Raises MapError for what is not the token of a key."""
        if not FIRST_TOKEN <= token <= LAST_TOKEN:
            raise MapError(f"{token} is not the token of a key")
        return self.streams[bisect_left(self._ends, token)]

    @cached_property
    def by_id(self) -> Mapping[StreamId, LogStream]:
        """Its streams by their ids."""
        return {stream.id: stream for stream in self.streams}

    @cached_property
    def _ends(self) -> list[int]:
        return [stream.end for stream in self.streams]


class MapSwitch(msgspec.Struct, frozen=True):
    """What a switch from one map to the next closes and opens; what stays is in neither. In the order of ranges."""

    closed: tuple[LogStream, ...]
    opened: tuple[LogStream, ...]

    @classmethod
    def between(cls, before: LogMap, after: LogMap) -> "MapSwitch":
        """The difference of two maps."""
        return cls(
            tuple(stream for stream in before.streams if stream.id not in after.by_id),
            tuple(stream for stream in after.streams if stream.id not in before.by_id),
        )


def check_switch(before: LogMap, after: LogMap, in_use: Iterable[int]) -> MapSwitch:
    """What ``after`` changes, if it may follow ``before``. ``in_use``: partitions with unread streams.

    Raises MapError: a generation that is not behind it (numbers of aborted ones are missing), a stream that stays but
    changes, parents that are not those
    whose tokens are taken over, or a new stream on a partition on which another one still is.
    """
    if after.generation <= before.generation:
        raise MapError(f"generation {after.generation} cannot follow {before.generation}: it is not behind it")
    for stream in after.streams:
        old = before.by_id.get(stream.id)
        if old is not None and old != stream:
            raise MapError(f"stream {stream.id} stays open, so its range, partition and parents stay as they are")
    switch = MapSwitch.between(before, after)
    busy = {stream.partition: stream.id for stream in before.streams}
    used = frozenset(in_use)
    for child in switch.opened:
        if child.generation != after.generation:
            raise MapError(f"stream {child.id} is opened in {after.generation}, but names {child.generation}")
        parents = tuple(stream.id for stream in switch.closed if stream.overlaps(child))
        if child.parents != parents:
            named = ", ".join(map(str, child.parents)) or "none"
            raise MapError(
                f"stream {child.id} takes over from {', '.join(map(str, parents))}, but names {named} as its parents"
            )
        if child.partition in busy or child.partition in used:
            raise MapError(f"stream {child.id} cannot be on partition {child.partition}: another one is not over there")
    return switch


def _check_ranges(streams: Sequence[LogStream]) -> None:
    for stream in streams:
        if stream.start >= stream.end:
            raise MapError(f"stream {stream.id} has no tokens: its range ({stream.start}, {stream.end}] is empty")
    if streams[0].start != FIRST_TOKEN - 1:
        raise MapError(f"no stream takes the tokens up to {streams[0].start}")
    for before, stream in pairwise(streams):
        if stream.start > before.end:
            raise MapError(f"no stream takes the tokens ({before.end}, {stream.start}]")
        if stream.start < before.end:
            raise MapError(f"streams {before.id} and {stream.id} both take the tokens ({stream.start}, {before.end}]")
    if streams[-1].end != LAST_TOKEN:
        raise MapError(f"no stream takes the tokens behind {streams[-1].end}")
