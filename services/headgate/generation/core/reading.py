"""A reader of a change log that is switched: which streams may be read now, and what a record on them means.

A stream is read from its start to the END markers of all writers that its switch has listed. It may be read when all
its parents have been read to theirs (by lineage), or, strictly, when every stream has that the switch of its generation
has closed. So each key's changes come in the order in which they were written, whatever was split or merged between.

What must not pass in silence is told: a record behind its writer's END is refused; a marker, or records, that retention
has taken before they were read is a gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from headgate.generation.core.ranges import LogMap, LogStream
from headgate.generation.core.state import GenerationState
from headgate.generation.core.stream_id import StreamId
from headgate.records.generation import GenerationPhase, GenerationRecorded

__all__ = ["Gap", "Marker", "Reading", "StreamReading", "UnknownStreamError", "Verdict"]


class UnknownStreamError(LookupError):
    """A stream that no generation on the log has."""


class Verdict(Enum):
    """What a record is to its reader."""

    DELIVER = auto()
    MARKER = auto()
    REFUSE = auto()
    """Its writer has ended the stream before: nobody may have written it."""


class Marker(msgspec.Struct, frozen=True):
    """END: ``writer`` writes no more to the stream that the switch to ``epoch`` has closed."""

    epoch: int
    writer: str


class Gap(msgspec.Struct, frozen=True):
    """Records of a stream that are not on the log any more, and were not read. Reported, then reading goes on."""

    stream: StreamId
    partition: int
    first: int
    last: int
    what: str


@dataclass(slots=True)
class StreamReading:
    """How far a stream is read. ``closed_by``: the switch that closes it, and the writers whose ENDs it waits for.

    ``is_resumed``: an earlier life has read a part of it, and the markers in there.
    """

    stream: LogStream
    next_offset: int
    closed_by: int | None = None
    needs: frozenset[str] = frozenset()
    end: int | None = None
    ended_by: dict[int, set[str]] = field(default_factory=dict)
    is_read: bool = False
    is_resumed: bool = False


class Reading:
    """One reader's position in a set. ``learn`` takes the newest records; all else is asked of it."""

    def __init__(self, name: str, *, strict: bool = False, done: Iterable[StreamId] = ()) -> None:
        """``done``: streams that a former life has read, from its checkpoint."""
        self._name = name
        self._strict = strict
        self._done = set(done)
        self._known_epoch = 0
        self.streams: dict[StreamId, StreamReading] = {}
        self.refused = 0

    def learn(self, state: GenerationState) -> tuple[Gap, ...]:
        """Take up new streams, and which are closed. Learn first when the topic was read to an end captured before.

        The gaps: streams that were closed and retired, with nobody waiting for this reader.
        Raises MapError for chunks that are missing or corrupt.
        """
        record = state.sets.get(self._name)
        if record is None:
            return ()
        committed = [each for each in record.generations if _is_committed(each)]
        before: LogMap | None = None
        for generation in committed:
            log = state.map_of(self._name, generation.epoch)
            for stream in log.streams:
                if stream.id not in self.streams:
                    is_read = stream.id in self._done
                    self.streams[stream.id] = StreamReading(stream, stream.start_offset, is_read=is_read)
            if before is not None:
                self._close(before, log, generation)
            before = log
        for reading in self.streams.values():
            self._settle(reading)
        return () if before is None else self._retired(before)

    def resume_at(self, positions: dict[StreamId, int]) -> None:
        """Go on from a checkpoint: next offset by stream. Raises UnknownStreamError."""
        for stream, offset in positions.items():
            reading = self._reading(stream)
            reading.is_resumed = reading.is_resumed or offset > max(reading.next_offset, reading.stream.start_offset)
            reading.next_offset = max(offset, reading.next_offset)
            self._settle(reading)

    def readable(self) -> tuple[StreamReading, ...]:
        """Streams that may be read now, in the order of their generations and ranges."""
        found = [each for each in self.streams.values() if not each.is_read and self._may_begin(each.stream)]
        return tuple(sorted(found, key=lambda each: (each.stream.generation, each.stream.start)))

    def held_by(self, stream: LogStream) -> tuple[StreamReading, ...]:
        """Which streams, of those that may be read now, must be read before ``stream`` may begin; sorted by range."""
        found: dict[StreamId, StreamReading] = {}
        todo = [stream]
        while todo:
            for each in self._before(todo.pop()):
                if each.is_read or each.stream.id in found:
                    continue
                found[each.stream.id] = each
                todo.append(each.stream)
        roots = (each for each in found.values() if self._may_begin(each.stream))
        return tuple(sorted(roots, key=lambda each: (each.stream.generation, each.stream.start)))

    def take(self, stream: StreamId, offset: int, writer: str, marker: Marker | None) -> Verdict:
        """A record of a stream that is read, at the next offset or behind it. Raises UnknownStreamError."""
        reading = self._reading(stream)
        reading.next_offset = max(reading.next_offset, offset + 1)
        if marker is not None:
            reading.ended_by.setdefault(marker.epoch, set()).add(marker.writer)
            self._settle(reading)
            return Verdict.MARKER
        is_late = reading.closed_by is not None and writer in reading.ended_by.get(reading.closed_by, ())
        self.refused += is_late
        return Verdict.REFUSE if is_late else Verdict.DELIVER

    def passed(self, stream: StreamId, position: int, log_start: int) -> Gap | None:
        """The reader's position in a stream, and where its partition begins now; a gap, once, if there is one.

        Positions pass what is no record (transaction markers): so a stream is read to its end without a record there.
        """
        reading = self._reading(stream)
        first = reading.next_offset
        if log_start > first and (reading.end is None or first < reading.end):
            upto = log_start if reading.end is None else min(log_start, reading.end)
            reading.next_offset = max(upto, position)
            gap = Gap(stream, reading.stream.partition, first, upto, "deleted by retention before it was read")
            self._settle(reading)
            return gap
        reading.next_offset = max(first, position)
        return self._missing_marker(reading)

    def read_epoch(self) -> int:
        """The highest switch up to which every closed stream has been read: what ReaderReported says."""
        open_ones = [
            each.closed_by for each in self.streams.values() if each.closed_by is not None and not each.is_read
        ]
        return min(open_ones) - 1 if open_ones else self._known_epoch

    def _retired(self, current: LogMap) -> tuple[Gap, ...]:
        gaps = []
        for reading in self.streams.values():
            if reading.closed_by is None and not reading.is_read and reading.stream.id not in current.by_id:
                reading.is_read = True
                at, partition = reading.next_offset, reading.stream.partition
                gaps.append(Gap(reading.stream.id, partition, at, at, "closed and retired before it was read"))
        return tuple(gaps)

    def _missing_marker(self, reading: StreamReading) -> Gap | None:
        self._settle(reading)
        if reading.is_read or reading.end is None or reading.next_offset < reading.end:
            return None
        ended = reading.ended_by.get(reading.closed_by or 0, set())
        missing = ", ".join(sorted(reading.needs - ended))
        reading.is_read = True
        return Gap(reading.stream.id, reading.stream.partition, reading.end, reading.end, f"no END marker of {missing}")

    def _close(self, before: LogMap, after: LogMap, generation: GenerationRecorded) -> None:
        self._known_epoch = max(self._known_epoch, generation.epoch)
        for stream in before.streams:
            if stream.id not in after.by_id:
                reading = self.streams[stream.id]
                reading.closed_by = generation.epoch
                reading.needs = frozenset(cut.writer for cut in generation.cuts)
                reading.end = generation.closed_ends.get(stream.partition, reading.end)

    def _settle(self, reading: StreamReading) -> None:
        if reading.closed_by is None or reading.is_read:
            return
        has_all = reading.needs <= reading.ended_by.get(reading.closed_by, set())
        is_at_end = reading.end is not None and reading.next_offset >= reading.end
        # Where no marker can be seen (there is no writer, or an earlier life has seen it) the measured end decides.
        by_markers = has_all and bool(reading.needs)
        reading.is_read = by_markers or (is_at_end and (has_all or reading.is_resumed))

    def _may_begin(self, stream: LogStream) -> bool:
        return all(each.is_read for each in self._before(stream))

    def _before(self, stream: LogStream) -> Iterable[StreamReading]:
        """What must be read before ``stream`` begins."""
        if self._strict:
            switches = [(each.closed_by, each) for each in self.streams.values()]
            return [each for epoch, each in switches if epoch is not None and epoch <= stream.generation]
        return [self.streams[parent] for parent in stream.parents if parent in self.streams]

    def _reading(self, stream: StreamId) -> StreamReading:
        found = self.streams.get(stream)
        if found is None:
            raise UnknownStreamError(f"set {self._name} has no stream {stream}")
        return found


def _is_committed(generation: GenerationRecorded) -> bool:
    return generation.phase not in (GenerationPhase.PREPARED, GenerationPhase.ABORTED)
