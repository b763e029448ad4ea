"""A reader of a change log with switches: which streams may be read now, and the meaning of their records.

A stream is read from its start to the END markers of all writers that its switch has listed. It may be read when all
its parents are read to theirs (by lineage), or, strictly, when every stream is that the switch of its generation has
closed. So each key's changes come in the order in which they were written, whatever was split or merged in between.

Nothing is lost silently. A record behind its writer's END is refused and counted. Records and markers that retention
deleted before they were read, and streams that were retired before, are gaps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec

from headgate.generation.core.ranges import LogStream
from headgate.generation.core.state import GenerationState
from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.generation.core.stream_table import Gate, KnownStream, StreamTable

FINISHED: Final = -1
"""The position of a stream that is read to its end."""

OFFSET_MAX: Final = (1 << 63) - 1
"""The largest offset of a Kafka partition."""


class UnknownStreamError(LookupError):
    """A stream that no generation on the log has."""


class PositionsError(ValueError):
    """Positions that a reader of this change log cannot have stored; the message names the key."""


class Verdict(Enum):
    """What a record is to its reader."""

    DELIVER = auto()
    MARKER = auto()
    REFUSE = auto()
    """Its writer has ended the stream before, so it must not have been written."""


class Marker(msgspec.Struct, frozen=True):
    """END: ``writer`` writes no more to the stream that the switch to ``epoch`` has closed."""

    epoch: int
    writer: str


class Gap(msgspec.Struct, frozen=True):
    """Offsets ``first`` to ``last`` - 1 of a stream were not read and cannot be; ``what`` is the reason.

    ``stream`` is its id in hexadecimal. ``partition`` is None for a stream of which only a stored position is known.
    """

    stream: str
    partition: int | None
    first: int
    last: int
    what: str


@dataclass(slots=True)
class StreamReading:
    """How far a stream is read. ``closed_by``, ``needs`` and ``end``: see KnownStream.

    ``may_lack_markers``: END markers may have been read in an earlier run, or deleted; then the measured end decides.
    """

    stream: LogStream
    next_offset: int
    closed_by: int | None = None
    needs: frozenset[str] = frozenset()
    end: int | None = None
    ended_by: dict[int, set[str]] = field(default_factory=dict)
    is_read: bool = False
    may_lack_markers: bool = False


class Reading:
    """One reader's position in a change log. ``learn`` takes the newest records; everything else is asked of it."""

    def __init__(self, name: str, *, strict: bool = False) -> None:
        self._name = name
        self._strict = strict
        self._table: StreamTable | None = None
        self._unread: dict[StreamId, StreamReading] = {}
        self.streams: dict[StreamId, StreamReading] = {}
        """All that are not retired, or not read."""
        self.refused = 0
        self.version = 0
        """Changes whenever ``readable`` may give another answer."""
        self.moved: set[StreamId] = set()
        """Streams whose position has changed; the consumer of the set clears it."""
        self.retired: set[StreamId] = set()
        """Streams that were retired before they were read: a gap, reported once. The consumer of the set clears it."""

    def learn(self, state: GenerationState) -> tuple[Gap, ...]:
        """Adopt new streams, and those that were closed. The topic must have been read to an end captured before.

        Returns a gap for each stream that was retired, or whose END markers are missing, before it was read.
        Raises MapError for chunks that are missing or corrupt.
        """
        table = state.streams_of(self._name)
        if table is None or table is self._table:
            return ()
        self._table = table
        self.version += 1
        for known in table.streams.values():
            reading = self.streams.get(known.stream.id)
            if reading is None:
                self._add(known)
            elif (reading.closed_by, reading.end) != (known.closed_by, known.end):
                reading.closed_by, reading.needs = known.closed_by, known.needs
                reading.end = known.end if known.end is not None else reading.end
                self._settle(reading)
        gaps = [gap for reading in list(self._unread.values()) if (gap := self._missing_marker(reading))]
        return (*gaps, *self._retired(table))

    def resume(self, positions: Mapping[str, int]) -> tuple[Gap, ...]:
        """Continue from stored positions: stream ids to next offsets, FINISHED for a stream that is read to its end.

        Streams without a position are read from their start. Returns a gap for each stream that was retired although it
        was not finished. Raises PositionsError, and then nothing is changed.
        """
        parsed = parse_positions(positions)
        unfinished = [stream for stream, position in parsed.items() if position != FINISHED]
        if unfinished and not any(stream in self.streams for stream in parsed):
            raise PositionsError(
                f"none of the streams in these positions (such as {unfinished[0]}) belongs to change log "
                f"{self._name!r}. Either they are the positions of another change log, or all of these streams were "
                "retired before they were read. Correct the positions, or start without them"
            )
        for stream, position in parsed.items():
            known = self.streams.get(stream)
            if known is not None and position == FINISHED and known.closed_by is None:
                raise PositionsError(
                    f"stream {stream} of change log {self._name!r} is not closed, so it cannot have been read to its "
                    "end. Correct the positions"
                )
        gaps = []
        for stream, position in parsed.items():
            known = self.streams.get(stream)
            if known is not None:
                self._resume(known, position)
            elif position != FINISHED:
                self.retired.add(stream)
                gaps.append(Gap(str(stream), None, position, position, "retired before it was read to its end"))
        return tuple(gaps)

    def resume_at(self, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets by partition. Streams behind the offset are read from their start."""
        for reading in list(self._unread.values()):
            offset = offsets.get(reading.stream.partition, -1)
            if offset >= reading.stream.start_offset:
                self._resume(reading, offset if reading.end is None else min(offset, reading.end))

    def readable(self) -> tuple[StreamReading, ...]:
        """Streams that may be read now, in the order of their generations and ranges."""
        return tuple(self.streams[each] for each in Gate(self._unread, strict=self._strict).readable())

    def take(self, stream: StreamId, offset: int, writer: str, marker: Marker | None) -> Verdict:
        """Judge a record of a stream, at the next offset or behind it. Raises UnknownStreamError."""
        reading = self._reading(stream)
        self.moved.add(stream)
        reading.next_offset = max(reading.next_offset, offset + 1)
        if marker is not None:
            reading.ended_by.setdefault(marker.epoch, set()).add(marker.writer)
            self._settle(reading)
            return Verdict.MARKER
        is_late = reading.closed_by is not None and writer in reading.ended_by.get(reading.closed_by, ())
        self.refused += is_late
        return Verdict.REFUSE if is_late else Verdict.DELIVER

    def passed(self, stream: StreamId, position: int, log_start: int) -> Gap | None:
        """Adopt the reader's position in a stream, and the offset at which its partition begins now.

        Positions pass what is not a record (transaction markers), so a stream can be read to its end without a record
        there. Returns a gap, once, if records were deleted before they were read.
        """
        reading = self._reading(stream)
        self.moved.add(stream)
        first = reading.next_offset
        if log_start > first and not reading.is_read and (reading.end is None or first < reading.end):
            upto = log_start if reading.end is None else min(log_start, reading.end)
            reading.next_offset = max(upto, position)
            reading.may_lack_markers = True
            self._settle(reading)
            return Gap(str(stream), reading.stream.partition, first, upto, "deleted by retention before it was read")
        reading.next_offset = max(first, position)
        return self._missing_marker(reading)

    def read_epoch(self, unread: Mapping[StreamId, int] | None = None) -> int:
        """The highest switch up to which every closed stream is read, as ReaderReported contains it.

        ``unread``: stored positions to be judged in place of those that this reader has reached.
        """
        left = self._unread.values() if unread is None else self._left_at(unread)
        closed = [each.closed_by for each in left if each.closed_by is not None]
        last = 0 if self._table is None else self._table.last_switch
        return min(closed) - 1 if closed else last

    def positions(self) -> dict[StreamId, int]:
        """The next offset of every stream, FINISHED for one that is read to its end."""
        return {stream: position_of(each) for stream, each in self.streams.items()}

    def _left_at(self, positions: Mapping[StreamId, int]) -> list[StreamReading]:
        return [each for stream, each in self.streams.items() if positions.get(stream) != FINISHED]

    def _add(self, known: KnownStream) -> None:
        stream = known.stream
        reading = StreamReading(stream, stream.start_offset, known.closed_by, known.needs, known.end)
        self.streams[stream.id] = self._unread[stream.id] = reading
        self.moved.add(stream.id)
        self._settle(reading)

    def _resume(self, reading: StreamReading, position: int) -> None:
        if position == FINISHED:
            self._finish(reading)
            return
        reading.may_lack_markers = reading.may_lack_markers or position > reading.next_offset
        reading.next_offset = max(position, reading.next_offset)
        self._settle(reading)

    def _retired(self, table: StreamTable) -> list[Gap]:
        """Forget streams that are retired. One that is not read, and whose end is unknown, is a gap."""
        gaps = []
        for stream in [stream for stream in self.streams if stream not in table.streams]:
            reading = self.streams[stream]
            if not reading.is_read and reading.end is None:
                at, partition = reading.next_offset, reading.stream.partition
                gaps.append(Gap(str(stream), partition, at, at, "closed and retired before it was read"))
                self._finish(reading)
                self.retired.add(stream)
            if reading.is_read:
                del self.streams[stream]
                self.moved.discard(stream)
        return gaps

    def _missing_marker(self, reading: StreamReading) -> Gap | None:
        self._settle(reading)
        if reading.is_read or reading.end is None or reading.next_offset < reading.end or self._waits(reading):
            return None
        ended = reading.ended_by.get(reading.closed_by or 0, set())
        missing = ", ".join(sorted(reading.needs - ended))
        self._finish(reading)
        at = reading.end
        return Gap(str(reading.stream.id), reading.stream.partition, at, at, f"no END marker of {missing}")

    def _settle(self, reading: StreamReading) -> None:
        if reading.closed_by is None or reading.is_read:
            return
        has_all = reading.needs <= reading.ended_by.get(reading.closed_by, set())
        is_at_end = reading.end is not None and reading.next_offset >= reading.end
        by_markers = has_all and bool(reading.needs)
        if by_markers or (is_at_end and (has_all or reading.may_lack_markers) and not self._waits(reading)):
            self._finish(reading)

    def _waits(self, reading: StreamReading) -> bool:
        """Whether a stream of which nothing was read waits for its parents.

        An empty one is at its end from the beginning. It must not count as read before its parents: its children have
        the keys of these, and would be read too early.
        """
        is_begun = reading.may_lack_markers or reading.next_offset > reading.stream.start_offset
        return not is_begun and any(parent in self._unread for parent in reading.stream.parents)

    def _finish(self, reading: StreamReading) -> None:
        reading.is_read = True
        self.moved.add(reading.stream.id)
        self._unread.pop(reading.stream.id, None)
        self.version += 1

    def _reading(self, stream: StreamId) -> StreamReading:
        found = self.streams.get(stream)
        if found is None:
            raise UnknownStreamError(f"set {self._name} has no stream {stream}")
        return found


def parse_positions(positions: Mapping[str, int]) -> dict[StreamId, int]:
    """Stored positions by stream. Raises PositionsError for a key or a value that no reader has stored."""
    return {_stream_in(key): _checked(key, position) for key, position in positions.items()}


def position_of(reading: StreamReading) -> int:
    """What is stored of a stream."""
    return FINISHED if reading.is_read else reading.next_offset


def _stream_in(key: object) -> StreamId:
    if not isinstance(key, str):
        raise PositionsError(
            f"{key!r} is not the id of a stream: the keys of positions are texts of 32 hexadecimal digits, "
            f"as in `reader.positions`, not {type(key).__name__}"
        )
    try:
        return StreamId.parse(key)
    except StreamIdError as error:
        raise PositionsError(f"{key!r} is not the id of a stream: {error}") from error


def _checked(key: str, position: object) -> int:
    if type(position) is not int or not FINISHED <= position <= OFFSET_MAX:
        raise PositionsError(
            f"the position of stream {key} must be an offset, or {FINISHED} for a stream that is read to its end, "
            f"got {position!r}"
        )
    return position
