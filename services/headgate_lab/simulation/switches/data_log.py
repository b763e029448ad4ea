"""A change log's topic in memory: transactions of writers that are fenced by their id, offsets with holes."""

from collections import defaultdict
from typing import Final

import msgspec

from headgate.generation.changelog.core.outbox import Written
from headgate.generation.changelog.core.reading import Marker
from headgate.generation.core.effects import LogSeen

TRANSACTION_MARK: Final = 1
"""Offsets that the end of a transaction takes on each of its partitions."""


class FencedWriterError(Exception):
    """Another process has taken this writer's transactional.id."""


class PromiseBrokenError(AssertionError):
    """A writer has written more to a stream than it, or the owner that fenced it, had promised."""


class DataRecord(msgspec.Struct, frozen=True):
    """A change, or an END marker. ``life`` is that of the writer, for the judge only."""

    offset: int
    writer: str
    life: int
    position: int
    key: str
    marker: Marker | None = None


class DataLog:
    """The topic's partitions and each writer's position, which is committed with its records."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.records: dict[int, list[DataRecord]] = defaultdict(list)
        self.ends: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.starts: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.written: dict[str, Written] = {}
        self.deleted: dict[tuple[str, int], tuple[int, int]] = {}
        """Changes that retention has deleted, by writer and position: partition and offset of each."""
        self._epochs: dict[str, int] = {}
        self.number, self.exists = 1, True
        """Of the topic: another one has the next number."""

    @property
    def topic_id(self) -> str:
        """Kafka's id of the topic."""
        return f"topic-{self.number}"

    def create(self) -> None:
        """Create the topic, unless it exists."""
        self.exists = True

    def drop(self, topic_id: str | None) -> None:
        """Delete the topic, if it still has this id, with all that is written to it."""
        if self.exists and topic_id == self.topic_id:
            self.number, self.exists = self.number + 1, False
            self.records.clear()
            self.written.clear()
            self.ends = dict.fromkeys(range(self.partitions), 0)
            self.starts = dict.fromkeys(range(self.partitions), 0)

    def seen(self, entropy: int) -> LogSeen:
        """What a look at the topic shows."""
        return LogSeen(self.topic_id, dict(self.ends), entropy)

    def grow(self, partitions: int) -> None:
        """Add partitions."""
        for number in range(self.partitions, partitions):
            self.ends[number] = self.starts[number] = 0
        self.partitions = max(self.partitions, partitions)

    def init(self, writer: str) -> int:
        """Take a writer's transactional.id; the number that commits under it must give."""
        self._epochs[writer] = self._epochs.get(writer, 0) + 1
        return self._epochs[writer]

    def commit(
        self, writer: str, epoch: int, records: list[tuple[int, DataRecord]], written: Written | None = None
    ) -> None:
        """One transaction: records with their partitions. Raises FencedWriterError, and then nothing is written."""
        if self._epochs.get(writer) != epoch or not self.exists:
            raise FencedWriterError(writer)
        self.append(records)
        for partition in {partition for partition, _ in records}:
            self.ends[partition] += TRANSACTION_MARK
        if written is not None:
            self.written[writer] = written

    def append(self, records: list[tuple[int, DataRecord]]) -> None:
        """Records with their partitions, without a transactional.id."""
        for partition, record in records:
            self.records[partition].append(msgspec.structs.replace(record, offset=self.ends[partition]))
            self.ends[partition] += 1

    def delete(self, partition: int, upto: int) -> None:
        """Retention deletes what is before ``upto``."""
        kept = [record for record in self.records[partition] if record.offset >= upto]
        for record in self.records[partition][: len(self.records[partition]) - len(kept)]:
            if record.marker is None:
                self.deleted[record.writer, record.position] = (partition, record.offset)
        self.records[partition] = kept
        self.starts[partition] = max(self.starts[partition], upto)

    def read(self, partition: int, offset: int, limit: int, upto: int | None) -> tuple[list[DataRecord], int]:
        """Records from ``offset`` on, and the position behind them, at most ``upto``."""
        stop = self.ends[partition] if upto is None else min(upto, self.ends[partition])
        found = [record for record in self.records[partition] if offset <= record.offset < stop][:limit]
        return found, (found[-1].offset + 1 if len(found) == limit else max(offset, stop))

    def check_end(self, partition: int, start: int, end: DataRecord) -> None:
        """An END marker is true: all of its writer before it, from ``start`` on, is up to its position.

        Raises PromiseBrokenError.
        """
        for record in self.records[partition]:
            is_before = start <= record.offset < end.offset and record.marker is None
            if is_before and record.writer == end.writer and record.position > end.position:
                raise PromiseBrokenError(f"{end.writer} wrote {record} in spite of {end}")
