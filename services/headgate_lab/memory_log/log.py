"""A Kafka cluster in memory, with the semantics that the role loop relies on, for tests and simulation.

``MemoryBroker`` is the cluster; each process under test gets a ``MemoryLog`` of its own from ``broker.client()``. What
is kept of Kafka is what was measured to matter (tests/integration/eventlog): a commit or abort marker takes an
offset and is never delivered; read_committed readers stop at the first open transaction (LSO) while ``end_offsets``
does not; the last ``init`` of a transactional.id wins and ends the dangling transaction of the one before; compaction
keeps the newest committed record of a key and leaves holes.

Nothing here waits, has a clock, a thread or a random number: the same calls give the same log. It is not thread-safe.
The fault methods (``fail_commit``, ``fence``, ``leave_open``, ``hold``, ``cut``, ``fail_write``) each do one thing that
a real cluster does to its clients.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final

from headgate.eventlog.codec import Codec
from headgate.eventlog.lasting_reader import AskedEnds
from headgate.eventlog.log import (
    LEVEL_FIRST,
    CommitRefusedError,
    CommitUncertainError,
    FencedError,
    LogError,
    Partition,
    Placed,
    SchemaLevel,
)
from headgate.eventlog.schema_files import schemas
from headgate.records.base import Key, Record
from headgate.records.control import OwnerAnnounced
from headgate.records.registry import KEY_FORMS
from headgate_lab.memory_log.clients import MemoryReader, MemoryTransactionalWriter, MemoryWriter
from headgate_lab.memory_log.partition import Fate, LogEntry, PartitionLog, Transaction

__all__ = ["CommitFault", "MemoryBroker", "MemoryLog", "MemoryReader", "MemoryTransactionalWriter", "MemoryWriter"]

SHARDED_TOPICS: Final = tuple(sorted(set(KEY_FORMS) - {"announce", "deadletter"}))
"""Every control topic that a role reads, but announce, has one partition per shard."""


class CommitFault(Enum):
    """What the next commit of a transactional.id does instead of succeeding."""

    REFUSED = auto()
    """Aborted, with an error to the client."""
    UNCERTAIN_APPLIED = auto()
    """Committed, but the answer is lost."""
    UNCERTAIN_LOST = auto()
    """Aborted by the broker, but the answer is lost."""
    UNCERTAIN_OPEN = auto()
    """The request is lost: the transaction stays open and blocks readers until the next ``init``."""


class MemoryBroker:
    """The cluster: partitions, transactional ids, and the requested faults."""

    def __init__(self, *, shards: int = 1, cluster_id: str = "memory/headgate.") -> None:
        if shards < 1:
            raise ValueError(f"a log has at least one shard, not {shards}")
        self.cluster_id = cluster_id
        self.shards = shards
        self._logs = {Partition("announce", 0): PartitionLog()} | {
            Partition(topic, number): PartitionLog() for topic in SHARDED_TOPICS for number in range(shards)
        }
        self._producer_epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._commit_faults: dict[str, deque[CommitFault]] = {}
        self.on_committed: Callable[[Partition, LogEntry], None] = lambda _partition, _entry: None
        """Sees every record at the moment it becomes a fact, in that order: what no process of a cluster can."""
        self.monotonic: Callable[[], float] = lambda: 0.0
        """The clock by which readers notice that they are stuck; it advances only when it is driven."""

    def now(self) -> float:
        """The current ``monotonic``, which the driver of the clock may replace later."""
        return self.monotonic()

    def client(self, level: SchemaLevel | None = None) -> "MemoryLog":
        """A connection for one process; by default one that writes the newest schema level at once."""
        return MemoryLog(self, level)

    def partitions(self) -> tuple[Partition, ...]:
        """Every partition of every control topic, sorted."""
        return tuple(sorted(self._logs))

    # --- what a test or the simulator does to the cluster ---

    def fail_commit(self, transactional_id: str, fault: CommitFault) -> None:
        """Let the next commit under this id end so; several calls queue up. A fenced commit does not use one up."""
        self._commit_faults.setdefault(transactional_id, deque()).append(fault)

    def cancel_faults(self) -> None:
        """Forget every fault asked for by ``fail_commit`` that has not happened yet."""
        self._commit_faults.clear()

    def fence(self, transactional_id: str) -> None:
        """End the present producer of this id: what another's ``init``, or the broker's own time-out, does."""
        self.initialise(transactional_id)

    def leave_open(self, transactional_id: str, placed: Sequence[Placed]) -> None:
        """Write in a transaction that is never ended, like a producer that is killed in the middle."""
        self.check_placed(placed)
        self._begin(transactional_id, placed, [LEVEL_FIRST] * len(placed))

    def has_open(self, transactional_id: str) -> bool:
        """Whether a transaction of this id is open."""
        return transactional_id in self._open

    def end_transaction(self, transactional_id: str, *, commit: bool) -> None:
        """End what ``leave_open`` or UNCERTAIN_OPEN left: a late commit arrives, or the broker's time-out aborts."""
        self._end(self._open.pop(transactional_id), Fate.COMMITTED if commit else Fate.ABORTED)

    def append_garbage(self, partition: Partition, key: str, reason: str) -> int:
        """Commit a record that cannot be decoded; returns its offset."""
        return self._append(partition, key, None, None, fault=reason)

    def append_newer(self, partition: Partition, key: str, reason: str) -> int:
        """A committed record of a newer Headgate; its offset."""
        return self._append(partition, key, None, None, fault=reason, newer=True)

    def compact(self, partition: Partition, *, before: int | None = None, drop_tombstones: bool = False) -> None:
        """Clean below ``before`` (default: all that is stable): the newest committed record of each key stays.

        Aborted records go and never count as the newest; nothing at or above the LSO is touched, as in Kafka.
        ``drop_tombstones`` is a cleaning after delete.retention.ms has passed.
        """
        self.log_of(partition).compact(partition, before=before, drop_tombstones=drop_tombstones)

    def compact_all(self, *, drop_tombstones: bool = False) -> None:
        """Compact every partition."""
        for partition in self.partitions():
            self.compact(partition, drop_tombstones=drop_tombstones)

    def retain_from(self, partition: Partition, offset: int) -> None:
        """Delete everything below ``offset`` (retention, or an operator's DeleteRecords)."""
        self.log_of(partition).retain_from(partition, offset)

    # --- what clients ask for ---

    def log_of(self, partition: Partition) -> PartitionLog:
        """The partition; always the same object. LogError for one that the cluster does not have."""
        log = self._logs.get(partition)
        if log is None:
            raise LogError(f"{partition.topic}/{partition.number} does not exist on a log of {self.shards} shards")
        return log

    def check_placed(self, placed: Sequence[Placed]) -> None:
        """ValueError for what no writer may be asked to write, before anything of it is written."""
        if not placed:
            raise ValueError("write at least one record: an empty transaction succeeds even for a fenced producer")
        for item in placed:
            self.log_of(item.partition)
            if item.fact.key.topic != item.partition.topic:
                raise ValueError(f"{item.fact.key} belongs on {item.fact.key.topic}, not on {item.partition.topic}")

    def end_offset(self, partition: Partition) -> int:
        """The read_uncommitted end."""
        return self.log_of(partition).end

    def last_stable_offset(self, partition: Partition) -> int:
        """Where read_committed readers stop."""
        return self.log_of(partition).last_stable(partition)

    def entries(self, partition: Partition, start: int, stop: int, records_max: int) -> list[LogEntry]:
        """Up to ``records_max`` records (also aborted ones) with start <= offset < stop."""
        return self.log_of(partition).between(start, stop)[:records_max]

    def initialise(self, transactional_id: str) -> int:
        """Fence earlier producers of this id and abort their open transaction; the new producer epoch."""
        dangling = self._open.pop(transactional_id, None)
        if dangling is not None:
            self._end(dangling, Fate.ABORTED)
        epoch = self._producer_epochs.get(transactional_id, -1) + 1
        self._producer_epochs[transactional_id] = epoch
        return epoch

    def commit(self, transactional_id: str, epoch: int, placed: Sequence[Placed], levels: Sequence[int]) -> list[int]:
        """One whole transaction of records of these schema levels; the offsets of its records."""
        self.check_placed(placed)
        if self._producer_epochs.get(transactional_id) != epoch:
            raise FencedError(f"transactional.id {transactional_id!r}: another producer has taken it; start as new")
        faults = self._commit_faults.get(transactional_id)
        fault = faults.popleft() if faults else None
        transaction, offsets = self._begin(transactional_id, placed, levels)
        if fault is CommitFault.UNCERTAIN_OPEN:
            raise CommitUncertainError(f"transactional.id {transactional_id!r}: no answer to the commit")
        del self._open[transactional_id]
        applied = fault is None or fault is CommitFault.UNCERTAIN_APPLIED
        self._end(transaction, Fate.COMMITTED if applied else Fate.ABORTED)
        if fault is CommitFault.REFUSED:
            raise CommitRefusedError(f"transactional.id {transactional_id!r}: the transaction was aborted")
        if fault is not None:
            raise CommitUncertainError(f"transactional.id {transactional_id!r}: no answer to the commit")
        return offsets

    def append(self, placed: Placed, level: int = LEVEL_FIRST) -> int:
        """One record of a schema level, outside any transaction; its offset."""
        self.check_placed((placed,))
        return self._append(placed.partition, placed.fact.key, placed.fact.value, None, level=level)

    def _begin(
        self, transactional_id: str, placed: Sequence[Placed], levels: Sequence[int]
    ) -> tuple[Transaction, list[int]]:
        if transactional_id in self._open:
            raise ValueError(f"transactional.id {transactional_id!r} has a transaction in flight already")
        transaction = Transaction()
        self._open[transactional_id] = transaction
        offsets = [
            self._append(p.partition, p.fact.key, p.fact.value, transaction, level=level)
            for p, level in zip(placed, levels, strict=True)
        ]
        return transaction, offsets

    def _append(
        self,
        partition: Partition,
        key: Key | str,
        value: Record | None,
        transaction: Transaction | None,
        *,
        fault: str | None = None,
        newer: bool = False,
        level: int = LEVEL_FIRST,
    ) -> int:
        log = self.log_of(partition)
        offset = log.end
        if isinstance(value, OwnerAnnounced):
            level = max(level, value.level)
        entry = LogEntry(offset, key, value, transaction, fault, newer, level)
        log.entries.append(entry)
        log.end = offset + 1
        if transaction is None:
            self.on_committed(partition, entry)
            return offset
        transaction.entries.append((partition, entry))
        if partition not in transaction.first_offsets:
            transaction.first_offsets[partition] = offset
            log.open.add(transaction)
        return offset

    def _end(self, transaction: Transaction, fate: Fate) -> None:
        transaction.fate = fate
        for partition in transaction.first_offsets:
            log = self.log_of(partition)
            log.open.remove(transaction)
            log.end += 1
        entries, transaction.entries = transaction.entries, []
        if fate is Fate.COMMITTED:
            for partition, entry in entries:
                self.on_committed(partition, entry)


class _AskedEnds:
    """Ends that were asked for; here the answer is there at once."""

    def __init__(self, ends: Mapping[Partition, int]) -> None:
        self._ends = ends

    def answer(self) -> Mapping[Partition, int]:
        return self._ends


class MemoryLog:
    """One process's connection; its own network faults are ``cut`` and ``hold``."""

    def __init__(self, broker: MemoryBroker, level: SchemaLevel | None = None) -> None:
        self.broker = broker
        self._codec = Codec(schemas(), level)
        self._cut = False
        self._held: dict[Partition, int] = {}
        self._write_faults: deque[bool] = deque()
        self._serial = 0
        self._stops: dict[Partition, tuple[int, bool]] = {}

    @property
    def cluster_id(self) -> str:
        """Identity of the log."""
        return self.broker.cluster_id

    @property
    def shards(self) -> int:
        """Partitions of each sharded topic."""
        return self.broker.shards

    @property
    def level(self) -> SchemaLevel:
        """At which schema level this process writes."""
        return self._codec.level

    def levels_of(self, placed: Sequence[Placed]) -> list[int]:
        """With which schema version each record is written. Raises LevelTooLowError."""
        values = [item.fact.value for item in placed]
        return [LEVEL_FIRST if value is None else self._codec.schema_for(value).version for value in values]

    def cut(self) -> None:
        """From now on every call of this process raises LogError, until ``heal``."""
        self._cut = True

    def heal(self) -> None:
        """The network is back."""
        self._cut = False

    def hold(self, partition: Partition, at: int | None = None) -> None:
        """Readers of this process see nothing of the partition from offset ``at`` on (default: its present end)."""
        self._held[partition] = self.broker.end_offset(partition) if at is None else at

    def release(self, partition: Partition) -> None:
        """The partition's lag is over."""
        self._held.pop(partition, None)

    def stop_reading(self, partition: Partition, *, told: bool) -> None:
        """Clients that this process has now deliver no more of a partition, as after a failed lookup of an offset.

        ``told``: the client reports it, once. The next client reads on.
        """
        self._stops[partition] = self._serial, told

    def next_serial(self) -> int:
        """The number of a new client."""
        self._serial += 1
        return self._serial

    def has_stopped(self, partition: Partition, serial: int) -> bool:
        """Whether the client of that number delivers no more of the partition."""
        return serial <= self._stops.get(partition, (0, False))[0]

    def has_failed_lookup(self, partition: Partition, serial: int) -> bool:
        """Whether it has stopped, and reports it."""
        return self.has_stopped(partition, serial) and self._stops[partition][1]

    def fail_write(self, *, applied: bool) -> None:
        """The next ``Writer.write`` of this process raises LogError, after or without having written."""
        self._write_faults.append(applied)

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The read_uncommitted ends, now."""
        self.check_connected()
        return {partition: self.broker.end_offset(partition) for partition in partitions}

    def first_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The beginning: nothing is ever taken from it whole."""
        self.check_connected()
        return {partition: 0 for partition in partitions if self.broker.log_of(partition)}

    def stable_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Up to where readers get now."""
        self.check_connected()
        return {partition: self.broker.last_stable_offset(partition) for partition in partitions}

    def hidden_keys(self, partition: Partition, start: int) -> list[Key]:
        """Keys of all records from there on, but for what lags for this process."""
        self.check_connected()
        stop = min(self.broker.end_offset(partition), self._held.get(partition, self.broker.end_offset(partition)))
        entries = self.broker.log_of(partition).between(start, stop)
        return [entry.key for entry in entries if not isinstance(entry.key, str)]

    def reader(
        self,
        start: Mapping[Partition, int],
        *,
        is_brief: bool = False,  # noqa: ARG002 - nothing here takes time
        lease_seconds: float | None = None,
    ) -> MemoryReader:
        """A read_committed reader; offset 0 means from the beginning."""
        return MemoryReader(self, start, lease_seconds)

    def ask_ends(self, partitions: Collection[Partition]) -> AskedEnds:
        """The ends, answered at once."""
        return _AskedEnds(self.stable_offsets(sorted(partitions)))

    def transactional_writer(self, transactional_id: str) -> MemoryTransactionalWriter:
        """A writer under that id."""
        return MemoryTransactionalWriter(self, transactional_id)

    def writer(self, name: str) -> MemoryWriter:
        """An idempotent writer."""
        return MemoryWriter(self, name)

    def check_connected(self) -> None:
        """Raise LogError while the network is cut."""
        if self._cut:
            raise LogError(f"{self.cluster_id}: the broker cannot be reached; check the network")

    def visible_end(self, partition: Partition) -> int:
        """Where this process's readers stop: the LSO, or earlier while the partition lags."""
        stable = self.broker.last_stable_offset(partition)
        return min(stable, self._held.get(partition, stable))

    def take_write_fault(self) -> bool | None:
        """The fault of the next write: None for none, else whether it is applied all the same."""
        return self._write_faults.popleft() if self._write_faults else None
