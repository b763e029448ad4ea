"""The log of ``headgate bench control``: in memory, but bytes to all its readers and writers.

What a coordinator pays for a record is mostly decoding it. So the memory log of the tests, which passes records on as
they are, gets the real codec at both ends: owners encode what they commit, readers decode what they are given. The
same bytes go to a file, compacted as Kafka's cleaner would leave them, from which another process replays.
"""

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.codec import Codec
from headgate.eventlog.log import Delivery, Garbage, Partition, Placed
from headgate.eventlog.schema_files import schemas
from headgate.records.base import Key
from headgate_lab.memory_log.clients import MemoryReader, MemoryTransactionalWriter
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog

__all__ = ["PARTITIONS", "FileLog", "MeasuredCluster", "WireLog"]

_HEAD: Final = struct.Struct(">BQHI")
"""Of one record in the file: partition's place, offset, length of the key, length of the value."""

WRITE_BUFFER_BYTES: Final = 1 << 20

PARTITIONS: Final = tuple(Partition(topic, 0) for topic in ("announce", *COORDINATOR_KIND.topics))
"""What a coordinator of the only shard reads."""


class MeasuredCluster:
    """A cluster of one shard and the bytes of everything that is stored on it."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.codec = Codec(schemas())
        self.bytes: dict[tuple[Partition, int], tuple[bytes, bytes | None]] = {}

    def client(self) -> "WireLog":
        """A coordinator's connection."""
        return WireLog(self)

    def append(self, placed: Placed) -> None:
        """What an agent or an operator writes; they pay for its encoding."""
        offset = self.broker.append(placed)
        self.bytes[placed.partition, offset] = self.codec.encode(placed.fact)

    def dump(self, path: Path) -> int:
        """The compacted log as a file for FileLog; the number of its records."""
        self.broker.compact_all(drop_tombstones=True)
        count = 0
        with path.open("wb", WRITE_BUFFER_BYTES) as file:
            for place, partition in enumerate(PARTITIONS):
                end = self.broker.end_offset(partition)
                for entry in self.broker.entries(partition, 0, end, end):
                    key, value = self.bytes[partition, entry.offset]
                    if value is not None:
                        file.write(_HEAD.pack(place, entry.offset, len(key), len(value)) + key + value)
                        count += 1
        return count


class WireLog(MemoryLog):
    """One process's connection to a Wire."""

    def __init__(self, wire: MeasuredCluster) -> None:
        super().__init__(wire.broker)
        self.wire = wire

    def reader(self, start: Mapping[Partition, int], **_how: object) -> MemoryReader:
        """See Log."""
        return _Reader(self, start)

    def transactional_writer(self, transactional_id: str) -> MemoryTransactionalWriter:
        """See Log."""
        return _LogWriter(self, transactional_id)


class _Reader(MemoryReader):
    def __init__(self, log: WireLog, start: Mapping[Partition, int]) -> None:
        super().__init__(log, start)
        self._wire = log.wire

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """Pay for reading the keys of what is left out, as the real reader does."""
        decode_key = self._wire.codec.decode_key
        super().pass_over(lambda key: is_known(decode_key(key.topic, key.text().encode())))

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:
        decode, stored = self._wire.codec.decode, self._wire.bytes
        batch: list[Delivery | Garbage] = []
        for item in super().poll(records_max, timeout_seconds):
            key, value = decode(item.partition.topic, *stored[item.partition, item.offset])
            batch.append(Delivery(item.partition, item.offset, key, value))
        return batch


class _LogWriter(MemoryTransactionalWriter):
    def __init__(self, log: WireLog, transactional_id: str) -> None:
        super().__init__(log, transactional_id)
        self._wire = log.wire

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        encoded = [self._wire.codec.encode(item.fact) for item in placed]
        offsets = super().commit(placed)
        for item, offset, raw in zip(placed, offsets, encoded, strict=True):
            self._wire.bytes[item.partition, offset] = raw
        return offsets


class FileLog(MemoryLog):
    """A log whose records are in a file of ``MeasuredCluster.dump``.

    What is written goes to memory behind them and is not read.

    Nothing of the file is held, so that a process's memory is its state's, as it is with Kafka.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(MemoryBroker())
        self.path = path
        self.codec = Codec(schemas())
        self.ends = dict.fromkeys(PARTITIONS, 0)
        for partition, offset, _, _ in self.records():
            self.ends[partition] = offset + 1

    def records(self) -> Generator[tuple[Partition, int, bytes, bytes], None, None]:
        """(partition, offset, key, value) of each, partition after partition."""
        with self.path.open("rb", WRITE_BUFFER_BYTES) as file:
            while head := file.read(_HEAD.size):
                place, offset, key_bytes, value_bytes = _HEAD.unpack(head)
                yield PARTITIONS[place], offset, file.read(key_bytes), file.read(value_bytes)

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """See Log."""
        return {partition: self.ends[partition] for partition in partitions}

    def stable_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """See Log."""
        return self.end_offsets(partitions)

    def reader(self, start: Mapping[Partition, int], **_how: object) -> "_FileReader":  # type: ignore[override]
        """See Log."""
        return _FileReader(self, start)


class _FileReader:
    stopped: str | None = None

    def __init__(self, log: FileLog, start: Mapping[Partition, int]) -> None:
        self._codec = log.codec
        self._positions = dict(start)
        self._records = log.records()

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:  # noqa: ARG002
        batch: list[Delivery | Garbage] = []
        for partition, offset, raw_key, raw_value in self._records:
            key, value = self._codec.decode(partition.topic, raw_key, raw_value)
            batch.append(Delivery(partition, offset, key, value))
            self._positions[partition] = offset + 1
            if len(batch) >= records_max:
                break
        return batch

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """A file holds nothing that its reader has written."""

    def positions(self) -> Mapping[Partition, int]:
        return dict(self._positions)

    def close(self) -> None:
        self._records.close()
