"""The interface between a role and its log: the features of Kafka that Headgate relies on.

Two implementations exist: ``kafka.py`` (confluent-kafka) and the lab's ``memory_log/log.py`` (the same semantics, for
tests and simulation). The role loop, and everything else that reads or writes control topics, knows only this file.

What an implementation promises (measured: tests/integration/eventlog):
- readers are read_committed: records of open and aborted transactions are never delivered;
- offsets have gaps (transaction markers, compaction, aborted records), so positions are never computed from counts;
- ``end_offsets`` is the read_uncommitted end, so "caught up" cannot miss committed records behind an open transaction;
- a commit that returned is durable; one that raised CommitUncertainError may or may not be.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

import msgspec

from headgate.records.base import Fact, Key, Record

__all__ = [
    "LEVEL_FIRST",
    "CommitRefusedError",
    "CommitUncertainError",
    "Delivery",
    "FencedError",
    "Garbage",
    "LevelTooLowError",
    "Log",
    "LogError",
    "LogReader",
    "NewerSchemaError",
    "Partition",
    "Placed",
    "SchemaLevel",
    "TransactionalWriter",
    "Writer",
]


LEVEL_FIRST: Final = 1
"""The schema level at which every log begins: in force until an owner announces that all can read more."""


class Partition(msgspec.Struct, frozen=True, order=True):
    """A partition of a topic. The ``topic`` of a control topic is without the cluster's prefix ("dispatch")."""

    topic: str
    number: int


class Placed(msgspec.Struct, frozen=True):
    """A fact and the partition it goes to: the writer always sets it (partition = shard)."""

    partition: Partition
    fact: Fact


class Delivery(msgspec.Struct, frozen=True):
    """One good record as read: its partition and offset, and its content. ``value`` None is a tombstone."""

    partition: Partition
    offset: int
    key: Key
    value: Record | None


class Garbage(msgspec.Struct, frozen=True):
    """A record that cannot be understood: skipped and counted, the same live and in replay, never a crash."""

    partition: Partition
    offset: int
    reason: str


class LogError(Exception):
    """The log cannot do what was asked now; the message explains what, where and what to do.

    ``code`` is the error's stable name, for operators and for code that maps errors to exit codes.
    """

    code: ClassVar[str] = "log-error"


class FencedError(LogError):
    """Another producer has taken this transactional.id (or the broker timed us out): this writer is over."""

    code: ClassVar[str] = "fenced"


class CommitUncertainError(LogError):
    """The commit may or may not have happened: use a new producer, replay, look (no KIP-890 in librdkafka)."""

    code: ClassVar[str] = "commit-uncertain"


class CommitRefusedError(LogError):
    """The transaction was aborted: nothing of it is, or will be, visible."""

    code: ClassVar[str] = "commit-refused"


class NewerSchemaError(LogError):
    """A record written by a newer Headgate: this role must end rather than misread it."""

    code: ClassVar[str] = "newer-schema"


class LevelTooLowError(LogError):
    """A record that the log's schema level does not allow: not every live process could read it (docs/adr/0008)."""

    code: ClassVar[str] = "schema-level"


class SchemaLevel:
    """The level of one process: ``reads`` is the newest it knows, ``writes`` the highest it has met. Only grows.

    Read from any thread; an int is replaced whole.
    """

    def __init__(self, reads: int, writes: int = LEVEL_FIRST) -> None:
        self.reads = reads
        self.writes = writes

    def met(self, level: int) -> None:
        """A record of this level is on the log. Raises NewerSchemaError beyond what this process reads."""
        if level > self.reads:
            raise NewerSchemaError(
                f"the log is written at schema level {level}, this Headgate reads no more than {self.reads}: upgrade "
                "this process"
            )
        self.writes = max(self.writes, level)


class LogReader(Protocol):
    """Reads assigned partitions from given offsets on."""

    @property
    def stopped(self) -> str | None:
        """Why records may be missing from what ``poll`` returns, None if none are. Until then its user is not ready."""
        ...

    def poll(self, records_max: int, timeout_seconds: float) -> list[Delivery | Garbage]:
        """Up to ``records_max`` records, waiting at most ``timeout_seconds`` for the first. Raises LogError."""
        ...

    def positions(self) -> Mapping[Partition, int]:
        """Per partition the offset up to which everything visible has been delivered (markers included)."""
        ...

    def pass_over(self, is_known: Callable[[Key], bool]) -> None:
        """From now on leave out good records of such keys: positions pass them, but they are not returned.

        For an owner that knows what it wrote itself: not decoding those values saves it a third of its reading.
        """
        ...

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        ...


class TransactionalWriter(Protocol):
    """One owner's log writer: at most one transaction in flight, and a later ``init`` elsewhere ends it."""

    def init(self) -> None:
        """Fence earlier writers with this transactional.id, and end their dangling transaction."""
        ...

    def commit(self, placed: Sequence[Placed]) -> list[int]:
        """Write all of ``placed`` (≥ 1) in one transaction; the offsets, in the same order.

        Raises FencedError, CommitRefusedError or CommitUncertainError, and LogError if it is not known whether readers
        get the last commit to these partitions; after any of them close this writer.
        """
        ...

    def seen(self, positions: Mapping[Partition, int]) -> None:
        """A reader of committed records has got so far, which spares this writer the question."""
        ...

    def end_hanging(self, harmless: Sequence[Placed]) -> bool:
        """End the transaction of an earlier owner of this id where ``init`` found nothing to end.

        ``harmless``: a fact that changes nothing for each partition that readers do not get past. The latest
        transaction that wrote there is ended as it was decided; False if that cannot be found out, then nothing is
        written. Raises as ``commit``, and LogError.
        """
        ...

    def close(self) -> None:
        """Let go without committing anything. Idempotent."""
        ...


class Writer(Protocol):
    """An agent's log writer: idempotent, acks=all, no transactions (a killed one must not pin readers)."""

    def write(self, placed: Sequence[Placed], timeout_seconds: float) -> None:
        """Write and wait for every acknowledgement, in order per partition. Raises LogError when one is late."""
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


class Log(Protocol):
    """A cluster's control topics."""

    @property
    def cluster_id(self) -> str:
        """Identity of the log: the broker cluster's id and the prefix of our topics."""
        ...

    @property
    def shards(self) -> int:
        """Number of partitions of sync, dispatch, checkpoint and changefeed."""
        ...

    @property
    def level(self) -> SchemaLevel:
        """At which schema level this process writes: the highest it has met on the log."""
        ...

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The read_uncommitted ends, now. Raises LogError."""
        ...

    def first_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Where what is left of each begins, now. Raises LogError."""
        ...

    def stable_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """How far readers get now; an open transaction is the end. Raises LogError.

        All that was read before this call, by any reader, is below these offsets.
        """
        ...

    def hidden_keys(self, partition: Partition, start: int) -> list[Key]:
        """Keys of all records from ``start`` to the present end, whether or not their transactions commit.

        A sign that a client writes behind a transaction that stays open; never a fact. Records that cannot be
        understood are left out; it may stop short of the end after HIDDEN_SECONDS_MAX. Raises LogError.
        """
        ...

    def reader(
        self, start: Mapping[Partition, int], *, is_brief: bool = False, lease_seconds: float | None = None
    ) -> LogReader:
        """A reader of these partitions; offset 0 means from the beginning.

        ``is_brief``: it reads what exists, and does not wait for more. It begins at offsets as they are, 0 too
        (``first_offsets`` shows where that is possible), and finds each end sooner. ``lease_seconds``: the lease of the
        process, if it judges others by what it reads; a client that stops delivering is replaced sooner then.
        """
        ...

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        """A writer under that id; call ``init`` before anything else."""
        ...

    def writer(self, name: str) -> Writer:
        """An idempotent writer; ``name`` is its client.id and its ``writer`` header."""
        ...
