"""What a process holds of the in-memory log: a reader, an owner's log writer, an agent's. None of them ever waits."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headgate.eventlog.lasting_reader import AskedEnds, LastingReader, ReaderStoppedError
from headgate.eventlog.log import Delivery, Garbage, LogError, NewerSchemaError, Partition, Placed
from headgate.records.base import Key
from headgate_lab.memory_log.partition import LogEntry

if TYPE_CHECKING:
    from headgate_lab.memory_log.log import MemoryLog

__all__ = ["MemoryReader", "MemoryTransactionalWriter", "MemoryWriter"]


class MemoryReader(LastingReader[Delivery | Garbage]):
    """A log's reader, which replaces a client that has stopped as the one on Kafka does."""

    def __init__(self, log: "MemoryLog", start: Mapping[Partition, int], lease_seconds: float | None = None) -> None:
        self._log = log
        self._is_known: Callable[[Key], bool] | None = None
        super().__init__(start, log.broker.now, lease_seconds)

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """Leave out good records of such keys from now on."""
        self._is_known = is_known

    def _open_client(self, start: Mapping[Partition, int]) -> "_Client":
        return _Client(self._log, start, self._knows)

    def _ask_ends(self, partitions: Collection[Partition]) -> AskedEnds:
        return self._log.ask_ends(partitions)

    def _knows(self, key: Key) -> bool:
        return self._is_known is not None and self._is_known(key)


class _Client:
    """Reads its partitions in turn, so that a busy one cannot starve the others."""

    def __init__(self, log: "MemoryLog", start: Mapping[Partition, int], is_known: Callable[[Key], bool]) -> None:
        self._log = log
        self._logs = {partition: log.broker.log_of(partition) for partition in sorted(start)}
        self._positions = {partition: start[partition] or each.start for partition, each in self._logs.items()}
        self._turn = deque(self._positions)
        self._is_known = is_known
        self._closed = False
        self._serial = log.next_serial()
        self._told: set[Partition] = set()

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:  # noqa: ARG002
        """Up to ``records_max`` records; never waits, whatever the timeout, because the test drives the time."""
        self._log.check_connected()
        if self._closed:
            raise LogError("this reader is closed; make a new one")
        self._tell_stopped()
        batch: list[Delivery | Garbage] = []
        for number, partition in enumerate(self._turn):
            if len(batch) >= records_max:
                self._turn.rotate(-number)
                break
            if not self._log.has_stopped(partition, self._serial):
                self._read(partition, records_max, batch)
        return batch

    def _tell_stopped(self) -> None:
        """Raise once for each partition whose lookup has failed, as librdkafka reports it once."""
        for partition in self._positions:
            if partition not in self._told and self._log.has_failed_lookup(partition, self._serial):
                self._told.add(partition)
                raise ReaderStoppedError(f"{partition.topic}/{partition.number}: looking up where to begin failed")

    def positions(self) -> Mapping[Partition, int]:
        """Per partition the offset up to which everything visible has been delivered."""
        return dict(self._positions)

    def close(self) -> None:
        """Let go."""
        self._closed = True

    def _read(self, partition: Partition, records_max: int, batch: list[Delivery | Garbage]) -> None:
        log, position = self._logs[partition], self._positions[partition]
        if position < log.start:
            raise LogError(
                f"{partition.topic}/{partition.number}: offset {position} has expired, the log starts at {log.start}"
            )
        if position >= log.end:
            return
        stop, level = self._log.visible_end(partition), self._log.level
        for entry in log.between(position, stop):
            if len(batch) >= records_max:
                break
            if batch and (entry.newer or entry.level > level.reads):
                self._positions[partition] = position
                return
            if entry.committed() and not self._passes_over(entry):
                if entry.level > level.writes:
                    self._meet(partition, entry)
                batch.append(_delivered(partition, entry))
            position = entry.offset + 1
        # Markers and holes behind the last record count as delivered, as position() does in librdkafka.
        self._positions[partition] = position if len(batch) >= records_max else max(position, stop)

    def _meet(self, partition: Partition, entry: LogEntry) -> None:
        try:
            self._log.level.met(entry.level)
        except NewerSchemaError as newer:
            raise NewerSchemaError(f"{partition.topic}/{partition.number} offset {entry.offset}: {newer}") from newer

    def _passes_over(self, entry: LogEntry) -> bool:
        return not isinstance(entry.key, str) and self._is_known(entry.key)


def _delivered(partition: Partition, entry: LogEntry) -> Delivery | Garbage:
    if entry.newer:
        raise NewerSchemaError(f"{partition.topic}/{partition.number} offset {entry.offset}: {entry.fault}")
    if isinstance(entry.key, str):
        return Garbage(partition, entry.offset, entry.fault or "key cannot be read")
    return Delivery(partition, entry.offset, entry.key, entry.value)


class MemoryTransactionalWriter:
    """One owner's log writer."""

    def __init__(self, log: "MemoryLog", transactional_id: str) -> None:
        self._log = log
        self._transactional_id = transactional_id
        self._epoch: int | None = None
        self._closed = False

    def init(self) -> None:
        """Fence the previous writer of this id, and abort its open transaction."""
        self._log.check_connected()
        self._epoch = self._log.broker.initialise(self._transactional_id)

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        """All of ``placed`` in one transaction; the offsets."""
        self._log.check_connected()
        if self._closed or self._epoch is None:
            raise LogError(f"transactional.id {self._transactional_id!r}: init first, and never after close")
        levels = self._log.levels_of(placed)
        return self._log.broker.commit(self._transactional_id, self._epoch, placed, levels)

    def seen(self, positions: Mapping[Partition, int]) -> None:
        """This broker loses no end of a transaction, so nothing needs proof."""

    def end_hanging(self, harmless: Sequence[Placed]) -> bool:  # noqa: ARG002
        """This broker loses no end of a transaction: what still hides records is another's."""
        return False

    def close(self) -> None:
        """Let go."""
        self._closed = True


class MemoryWriter:
    """An agent's log writer: idempotent, not transactional."""

    def __init__(self, log: "MemoryLog", name: str) -> None:
        self._log = log
        self._name = name

    def write(self, placed: Sequence[Placed], timeout_seconds: float) -> None:
        """Append every record, in order."""
        self._log.check_connected()
        self._log.broker.check_placed(placed)
        levels = self._log.levels_of(placed)
        applied = self._log.take_write_fault()
        if applied is not False:
            for item, level in zip(placed, levels, strict=True):
                self._log.broker.append(item, level)
        if applied is not None:
            raise LogError(f"writer {self._name!r}: no acknowledgement within {timeout_seconds} s")

    def close(self) -> None:
        """Let go."""
