"""A Kafka reader that replaces a client that stops delivering, at the same positions.

librdkafka can stop one partition and continue to poll the others. After a failed lookup of a first offset, for example,
it reports the error once and never fetches that partition again. A process that keeps polling such a client is blind,
and nothing shows it. This reader therefore opens another client at its own positions

- when the client reports an error that librdkafka does not overcome, and
- when a partition stays at one position, below an end that the brokers named, for STALL_SECONDS, or for the lease of
  the process that reads if that is shorter.

Positions are exactly what was delivered, so a replacement loses and repeats nothing. From the first sign until the
replacement has reached the ends of that moment, ``stopped`` holds the reason, and the reader's user is not ready.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, Protocol, TypeVar

from headgate.eventlog.connection import BrokerUnreachableError
from headgate.eventlog.log import LogError, NewerSchemaError, Partition

__all__ = [
    "BACKLOG_STALL_SECONDS",
    "LOOK_SECONDS",
    "REPLACE_SECONDS",
    "STALL_SECONDS",
    "STALL_SECONDS_MIN",
    "AskedEnds",
    "LastingReader",
    "OffsetGoneError",
    "PartitionError",
    "ReaderStoppedError",
]

_log = logging.getLogger(__name__)

STALL_SECONDS: Final = 10.0
"""A broker that answers for its ends, and delivers nothing below them for so long, has lost the client's requests. Not
longer for a longer lease: until then an owner or agent does not see what others decide."""

STALL_SECONDS_MIN: Final = 2.0
"""Not shorter for a shorter lease: librdkafka rests for half a second after an error, and asks again."""

BACKLOG_STALL_SECONDS: Final = 60.0
"""The same while every poll is full: a partition's records may wait behind all that the client has queued of others,
32 MiB by default (partition_reader.QUEUED_KBYTES_MAX), which even a slow user takes within this time."""

LOOKS_PER_STALL: Final = 4
"""Questions for the ends in the time of a stall, which bounds how much later it is noticed."""

LOOK_SECONDS: Final = STALL_SECONDS / LOOKS_PER_STALL
"""Between two questions for the ends, of a reader without a lease."""

REPLACE_SECONDS: Final = 1.0
"""Least time between two replacements while their cause lasts."""

ItemT = TypeVar("ItemT")


class ReaderStoppedError(LogError):
    """The client delivers no more of a partition. LastingReader replaces it; no other code sees this error."""


class PartitionError(LogError):
    """``partition`` cannot be read. Other partitions of the same reader are read on."""

    code = "partition-error"

    def __init__(self, partition: Partition, said: str) -> None:
        super().__init__(said)
        self.partition = partition


class OffsetGoneError(PartitionError):
    """The log does not have the offset that is read next. Another client would not find it either."""

    code = "offset-gone"


class Client(Protocol[ItemT]):
    """What is replaced: reads its partitions from given offsets on. For one thread."""

    def poll(self, items_max: int, timeout_seconds: float) -> list[ItemT]:
        """Up to ``items_max``, waiting at most so long for the first. Raises LogError."""
        ...

    def positions(self) -> Mapping[Partition, int]:
        """Per partition the offset up to which everything visible has been delivered."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class AskedEnds(Protocol):
    """Ends of partitions that were asked for, in the background."""

    def answer(self) -> Mapping[Partition, int] | None:
        """The ends, None until the brokers have answered. Raises LogError if they will not."""
        ...


class LastingReader(ABC, Generic[ItemT]):
    """Reads by one client after the other (see the module's docstring). For one thread.

    A base class that knows no callback of its own: were it part of a reference cycle, the garbage collector could free
    an administrative client on that client's own thread, and librdkafka would abort the process.
    """

    def __init__(
        self, start: Mapping[Partition, int], monotonic: Callable[[], float], lease_seconds: float | None = None
    ) -> None:
        """``lease_seconds``: of the process, if it judges others by what it reads.

        It doubts for two leases that an owner of whom it reads nothing lives (runtime/candidate.py). A client that
        stopped must have been replaced by then, or it would take a shard from an owner that is well.
        """
        self._monotonic = monotonic
        self._stall_seconds = (
            STALL_SECONDS if lease_seconds is None else max(STALL_SECONDS_MIN, min(lease_seconds, STALL_SECONDS))
        )
        self._look_seconds = self._stall_seconds / LOOKS_PER_STALL
        self._client = self._open_client(start)
        now = monotonic()
        self._polled_at = now
        self._look_at = now + self._look_seconds
        self._asked: AskedEnds | None = None
        self._short: dict[Partition, tuple[int, float, int]] = {}
        """Partition below its end → position, since when, end."""
        self._excused: frozenset[Partition] = frozenset()
        self._replaced_at = now - REPLACE_SECONDS
        self._is_to_replace = False
        self._awaited: Mapping[Partition, int] | None = None
        self._reason: str | None = None
        self.ends: Mapping[Partition, int] = {}
        """The ends that the brokers named last."""
        self.replacements = 0
        """How often a client was replaced."""

    @abstractmethod
    def _open_client(self, start: Mapping[Partition, int]) -> Client[ItemT]:
        """A client that reads from there on. Raises LogError."""

    @abstractmethod
    def _ask_ends(self, partitions: Collection[Partition]) -> AskedEnds:
        """Ask how far readers of these partitions can get now, without waiting. Raises LogError."""

    @property
    def stopped(self) -> str | None:
        """Why records may be missing from what ``poll`` returns, None if none are."""
        return self._reason

    def poll(self, records_max: int, timeout_seconds: float) -> list[ItemT]:
        """Up to ``records_max`` items, waiting at most ``timeout_seconds`` for the first. Raises LogError."""
        before = self._monotonic()
        if self._is_to_replace and before - self._replaced_at >= REPLACE_SECONDS:
            self._replace(before)
        if before - self._polled_at > self._look_seconds:
            self._short.clear()  # this process was frozen, not the client
        read: list[ItemT] = []
        try:
            read = self._client.poll(records_max, timeout_seconds)
        except NewerSchemaError:
            raise
        except ReaderStoppedError as error:
            self._stop(str(error))
        except LogError as error:
            self._fail(error, before)
            raise
        finally:
            now = self._polled_at = self._monotonic()
        self._watch(now, self._stall_seconds if len(read) < records_max else BACKLOG_STALL_SECONDS)
        return read

    def positions(self) -> Mapping[Partition, int]:
        """Per partition the offset up to which everything visible has been delivered."""
        return self._client.positions()

    def excuse(self, partitions: Collection[Partition]) -> None:
        """From now on these, and only these, may stay below their ends, because they are not fetched."""
        self._excused = frozenset(partitions)

    def close(self) -> None:
        """Let go. Idempotent."""
        self._client.close()
        self._asked = None

    def _fail(self, error: LogError, now: float) -> None:
        """Keep the reason for the user, until all is read again. Replace a client only if another can do better."""
        if isinstance(error, OffsetGoneError | BrokerUnreachableError):
            self._reason, self._awaited, self._look_at = str(error), None, now
        else:
            self._stop(str(error))

    def _stop(self, reason: str) -> None:
        if reason != self._reason:
            _log.warning("a Kafka client that stopped reading is replaced: %s", reason)
        self._reason = reason
        self._is_to_replace = True
        self._awaited = None

    def _replace(self, now: float) -> None:
        old = self._client
        self._client = self._open_client(old.positions())
        old.close()
        self._is_to_replace = False
        self._replaced_at = self._look_at = now
        self._asked = None
        self._short.clear()
        self.replacements += 1

    def _watch(self, now: float, stall_seconds: float) -> None:
        """Compare the positions with the ends, and ask for the ends from time to time."""
        ends = self._answered(now)
        if ends is None and not self._short and self._awaited is None:
            return
        positions = self._client.positions()
        if ends is not None:
            self.ends = ends
            self._short = {
                partition: self._since(partition, positions[partition], now, end)
                for partition, end in ends.items()
                if partition not in self._excused and positions.get(partition, end) < end
            }
            if self._reason is not None and self._awaited is None and not self._is_to_replace:
                self._awaited = ends
        if self._awaited is not None and all(
            p in self._excused or positions.get(p, end) >= end for p, end in self._awaited.items()
        ):
            self._reason = self._awaited = None
        for partition, (position, since, end) in self._short.items():
            has_stood = positions.get(partition) == position and partition not in self._excused
            if has_stood and now - since >= stall_seconds and not self._is_to_replace:
                self._stop(
                    f"{partition.topic}/{partition.number} has stayed at offset {position} for {now - since:.0f} s, "
                    f"below its end {end}"
                )

    def _since(self, partition: Partition, position: int, now: float, end: int) -> tuple[int, float, int]:
        before = self._short.get(partition)
        return before if before is not None and before[0] == position else (position, now, end)

    def _answered(self, now: float) -> Mapping[Partition, int] | None:
        try:
            if self._asked is None:
                if now < self._look_at:
                    return None
                self._look_at = now + self._look_seconds
                self._asked = self._ask_ends(self._client.positions().keys())
            ends = self._asked.answer()
        except LogError:
            # Brokers that do not answer prove nothing about the client; its own errors report them.
            self._asked = None
            return None
        if ends is not None:
            self._asked = None
        return ends
