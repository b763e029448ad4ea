"""A ChangeReader's progress, without Kafka: what to fetch next, what each record is, what was committed.

``ChangeReader`` (changelog/shell/reader.py) carries it out on Kafka, and the simulation
(headgate_lab/simulation/switches) in memory:

    learn       adopt the newest records of the topic generation
    fetches     which partitions to read, and from which offset
    take        a record of one of them: deliver it, or not
    reached     the end of a partition, or an offset behind which it has no record
    deleted     the partition begins behind the offset that was to be read
    positions   where to continue after everything that was taken: what the caller stores
    commit      the caller has stored them: only now may others rely on it
"""

from collections.abc import Mapping
from typing import Final

from headgate.generation.changelog.core.reading import (
    FINISHED,
    Gap,
    Marker,
    Reading,
    StreamReading,
    Verdict,
    parse_positions,
    position_of,
)
from headgate.generation.core.state import GenerationState

GAPS_MAX: Final = 1_000
"""Gaps that are kept, the newest. Each is logged as well, and a reader rarely has more than one."""


class ReaderProgress:
    """The progress of one reader. ``strict``: a stream waits for the whole generation before, not only its parents."""

    def __init__(self, name: str, *, strict: bool = False) -> None:
        self._reading = Reading(name, strict=strict)
        self._wanted: dict[int, StreamReading] = {}
        self._wanted_version = -1
        self._blocked: set[int] = set()
        self._new_gaps: list[Gap] = []
        self.gaps: tuple[Gap, ...] = ()
        """What was deleted or retired before it was read, the newest GAPS_MAX."""
        self.committed_epoch = 0
        """By what was committed, every stream is read that switches up to this one have closed."""

    def learn(self, state: GenerationState) -> None:
        """Adopt the newest records. Raises MapError for a chunk that is missing or corrupt."""
        self._keep(*self._reading.learn(state))

    def resume(self, positions: Mapping[str, int]) -> None:
        """Continue from stored positions (see Reading.resume), which count as committed. Raises PositionsError."""
        self._keep(*self._reading.resume(positions))
        self._reading.moved.clear()
        self.committed_epoch = self._reading.read_epoch()

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets by partition. Partitions without one are read from their oldest stream on."""
        self._reading.resume_at(offsets)
        self.committed_epoch = self._reading.read_epoch()

    def new_gaps(self) -> tuple[Gap, ...]:
        """Gaps that this has not returned before."""
        found = tuple(self._new_gaps)
        self._new_gaps.clear()
        return found

    @property
    def refused(self) -> int:
        """Records that follow their writer's END."""
        return self._reading.refused

    @property
    def positions(self) -> dict[str, int]:
        """Where to continue after everything that was taken: next offset by stream, -1 for one read to its end."""
        return {str(stream): position for stream, position in self._reading.positions().items()}

    @property
    def moved(self) -> dict[str, int]:
        """Those of ``positions`` that have changed since the last commit.

        Streams that were retired unread count as finished, so that their gap is reported once.
        """
        streams = self._reading.streams
        moved = {str(stream): position_of(streams[stream]) for stream in self._reading.moved}
        return moved | {str(stream): FINISHED for stream in self._reading.retired}

    @property
    def unread(self) -> tuple[StreamReading, ...]:
        """Streams that are not read to their ends."""
        return tuple(each for each in self._reading.streams.values() if not each.is_read)

    def commit(self, positions: Mapping[str, int] | None = None) -> None:
        """The caller has stored ``positions``: these, or those of now. Raises PositionsError."""
        if positions is None:
            self._reading.moved.clear()
            self._reading.retired.clear()
            self.committed_epoch = max(self.committed_epoch, self._reading.read_epoch())
        else:
            read = self._reading.read_epoch(parse_positions(positions))
            self.committed_epoch = max(self.committed_epoch, read)

    def fetches(self) -> Mapping[int, StreamReading]:
        """The stream to read of each partition now, at its ``next_offset``.

        All streams that may be read are read. Where two are on one partition, the older one comes first: it has an end.
        """
        if self._wanted_version != self._reading.version:
            self._wanted_version = self._reading.version
            self._wanted = {}
            for each in self._reading.readable():
                other = self._wanted.setdefault(each.stream.partition, each)
                if each.stream.start_offset < other.stream.start_offset:
                    self._wanted[each.stream.partition] = each
        if self._blocked:
            return {partition: each for partition, each in self._wanted.items() if partition not in self._blocked}
        return self._wanted

    def take(self, partition: int, offset: int, writer: str, marker: Marker | None) -> StreamReading | None:
        """The stream of a record that the caller must be given; None for any other record."""
        reading = self._at(partition, offset)
        if reading is None:
            return None
        verdict = self._reading.take(reading.stream.id, offset, writer, marker)
        return reading if verdict is Verdict.DELIVER else None

    def reached(self, partition: int, offset: int) -> None:
        """Everything on the partition before ``offset`` was taken."""
        reading = self._at(partition, offset)
        if reading is not None and offset > reading.next_offset:
            self._keep(self._reading.passed(reading.stream.id, offset, 0))

    def deleted(self, partition: int, log_start: int) -> None:
        """The partition begins at ``log_start`` now."""
        reading = self._wanted.get(partition)
        if reading is not None:
            self._keep(self._reading.passed(reading.stream.id, log_start, log_start))

    def is_awaited(self, partition: int, offset: int) -> bool:
        """Whether a record at ``offset`` is read next or later, by ``fetches`` as they were last asked for."""
        reading = self._wanted.get(partition)
        is_before_end = reading is not None and (reading.end is None or offset < reading.end)
        return (
            reading is not None
            and is_before_end
            and not reading.is_read
            and partition not in self._blocked
            and offset >= reading.next_offset
        )

    def block(self, partition: int) -> None:
        """Stop reading a partition, because its next record cannot be read."""
        self._blocked.add(partition)

    def unblock(self, partition: int) -> None:
        """Resume it, at the record at which it was blocked."""
        self._blocked.discard(partition)

    def _at(self, partition: int, offset: int) -> StreamReading | None:
        """The stream that is read there. If ``offset`` is behind its end, it has been read to its end."""
        if self.is_awaited(partition, offset):
            return self._wanted[partition]
        reading = self._wanted.get(partition)
        is_behind = reading is not None and reading.end is not None and offset >= reading.end
        if reading is not None and is_behind and not reading.is_read and partition not in self._blocked:
            self._keep(self._reading.passed(reading.stream.id, reading.end or 0, 0))
        return None

    def _keep(self, *gaps: Gap | None) -> None:
        found = [gap for gap in gaps if gap is not None]
        self._new_gaps += found
        self.gaps = (*self.gaps, *found)[-GAPS_MAX:]
