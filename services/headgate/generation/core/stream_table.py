"""All streams of a change log that are not retired: who closed each, where it ends, and which may be read.

The table is made from a set's newest record and is kept until the next one comes. Readers of the change log
(reading.py) and feeds (bounds.py) keep their positions beside it, and ask a ``Gate`` what may be read now. Making a
table takes time that grows with the number of streams; so does each question that is asked of all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import msgspec

from headgate.generation.core.ranges import LogMap, LogStream, MapSwitch
from headgate.generation.core.stream_id import StreamId
from headgate.records.generation import GenerationPhase, GenerationRecorded, SetRecorded

Links = Mapping[tuple[int, int], MapSwitch]
"""What the switches have changed, by the numbers of the generations before and after each."""


class Maps(Protocol):
    """Gives the map of a generation of the set. Raises MapError for a chunk that is missing or corrupt."""

    def __call__(self, epoch: int) -> LogMap:
        """The map of generation ``epoch``."""


class KnownStream(msgspec.Struct, frozen=True):
    """A stream. ``closed_by``: the switch that closed it; ``needs``: the writers whose ENDs it has.

    ``end``: the offset behind its last record, once the owner has measured it.
    """

    stream: LogStream
    closed_by: int | None = None
    needs: frozenset[str] = frozenset()
    end: int | None = None


@dataclass(frozen=True)
class StreamTable:
    """The streams of one record of a set. Make it with ``of``."""

    record: SetRecorded
    streams: Mapping[StreamId, KnownStream] = field(default_factory=dict)
    current: frozenset[StreamId] = frozenset()
    """The streams of the newest committed generation."""
    last_switch: int = 0
    """The newest generation that has closed streams of the one before it."""
    links: Links = field(default_factory=dict)

    @classmethod
    def of(cls, record: SetRecorded, map_of: Maps, links: Links) -> "StreamTable":
        """The table of ``record``. ``links`` of an earlier table spare comparing its maps again. Raises MapError."""
        streams: dict[StreamId, KnownStream] = {}
        used: dict[tuple[int, int], MapSwitch] = {}
        before: GenerationRecorded | None = None
        for generation in record.generations:
            if generation.phase in (GenerationPhase.PREPARED, GenerationPhase.ABORTED):
                continue
            if before is None:
                streams |= {stream.id: KnownStream(stream) for stream in map_of(generation.epoch).streams}
            else:
                pair = (before.epoch, generation.epoch)
                switch = used[pair] = links.get(pair) or MapSwitch.between(*map(map_of, pair))
                streams |= {stream.id: KnownStream(stream) for stream in switch.opened}
                _close(streams, switch, generation)
            before = generation
        current = frozenset(() if before is None else map_of(before.epoch).by_id)
        return cls(record, streams, current, max((after for _, after in used), default=0), used)

    @cached_property
    def by_partition(self) -> Mapping[int, Sequence[KnownStream]]:
        """The streams of each partition, in the order in which they follow each other there."""
        found: dict[int, list[KnownStream]] = {}
        for each in self.streams.values():
            found.setdefault(each.stream.partition, []).append(each)
        for streams in found.values():
            streams.sort(key=lambda each: (each.stream.start_offset, each.stream.generation))
        return found


def _close(streams: dict[StreamId, KnownStream], switch: MapSwitch, generation: GenerationRecorded) -> None:
    needs = frozenset(cut.writer for cut in generation.cuts)
    for stream in switch.closed:
        end = generation.closed_ends.get(stream.partition)
        streams[stream.id] = KnownStream(stream, generation.epoch, needs, end)


class Unread(Protocol):
    """A stream that is not read to its end: a KnownStream, or a reader's position in it."""

    @property
    def stream(self) -> LogStream:
        """Which one."""
        ...

    @property
    def closed_by(self) -> int | None:
        """The switch that closed it."""
        ...


class Gate:
    """Which of the unread streams may be read now, and what the others wait for.

    By lineage a stream waits for its parents. Strictly, it waits for every stream that the switch of its generation, or
    an earlier one, has closed.
    """

    def __init__(self, unread: Mapping[StreamId, Unread], *, strict: bool) -> None:
        self._unread, self._strict = unread, strict
        closed = (each.closed_by for each in unread.values() if each.closed_by is not None) if strict else ()
        self._oldest_switch = min(closed, default=None)
        self._held_by: dict[int, list[StreamId]] = {}
        """Strictly, all streams of a generation wait for the same ones."""

    def is_open(self, stream: LogStream) -> bool:
        """Whether nothing has to be read before ``stream``."""
        if self._strict:
            return self._oldest_switch is None or self._oldest_switch > stream.generation
        return not any(parent in self._unread for parent in stream.parents)

    def readable(self) -> list[StreamId]:
        """Unread streams that may be read now, by generation and range."""
        return _ordered(each.stream for each in self._unread.values() if self.is_open(each.stream))

    def held_by(self, stream: LogStream) -> list[StreamId]:
        """Streams that may be read now and must be read before ``stream`` may begin, by generation and range."""
        if self._strict:
            if stream.generation not in self._held_by:
                self._held_by[stream.generation] = _ordered(self._closed_up_to(stream.generation))
            return self._held_by[stream.generation]
        found: dict[StreamId, LogStream] = {}
        todo = [stream]
        while todo:
            parents = (self._unread[parent].stream for parent in todo.pop().parents if parent in self._unread)
            new = {parent.id: parent for parent in parents if parent.id not in found}
            found |= new
            todo += new.values()
        return _ordered(each for each in found.values() if self.is_open(each))

    def _closed_up_to(self, generation: int) -> Iterable[LogStream]:
        for each in self._unread.values():
            if each.closed_by is not None and each.closed_by <= generation and self.is_open(each.stream):
                yield each.stream


def _ordered(streams: Iterable[LogStream]) -> list[StreamId]:
    return [each.id for each in sorted(streams, key=lambda each: (each.generation, each.start))]
