"""The current record of every key on the control topics, for commands that only read.

A command joins nothing and owns nothing: it reads each partition to the end captured at its start, and shows what it
found. What follows from several keys together (who is primary, what is alive) is derived here as the machines do it.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from headgate.eventlog.log import Delivery, Garbage, Log, Partition
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.sharding import ANNOUNCE, DEADLETTER, SHARDED_TOPICS
from headgate.records.base import Key
from headgate.records.control import (
    AgentAnnounced,
    Announced,
    Assignment,
    OwnerAnnounced,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    TaskReported,
)
from headgate.records.keys import (
    AgentKey,
    AnswerKey,
    OwnerKey,
    ProgressKey,
    RequestKey,
    SessionKey,
    SpanKey,
    TaskKey,
)

RecordT = TypeVar("RecordT")
KeyT = TypeVar("KeyT", bound=Key)

GARBAGE_KEPT_MAX: Final = 1_000
"""Enough to see what another client writes to a control topic. Only place and reason are kept, a few hundred bytes."""


def _is_over(record: Announced) -> bool:
    """An owner that has resigned."""
    return isinstance(record, OwnerAnnounced) and record.lease_seconds <= 0


def all_partitions(log: Log, topics: Iterable[str] = (ANNOUNCE.topic, *SHARDED_TOPICS)) -> list[Partition]:
    """Every partition of these control topics, sorted."""
    sharded = {*SHARDED_TOPICS, DEADLETTER, "generation"}
    return sorted(
        Partition(topic, number) for topic in topics for number in range(log.shards if topic in sharded else 1)
    )


class Snapshot:
    """Current records by partition and key, and what could not be understood.

    The owner of each shard declares a session dead for itself, so one key can be in several partitions. What is kept is
    bounded by the keys that exist: views take records for months.
    """

    def __init__(self) -> None:
        self.current: dict[Key, dict[Partition, Delivery]] = {}
        self._by_kind: dict[type[Key], set[Key]] = {}
        self.garbage: deque[Garbage] = deque(maxlen=GARBAGE_KEPT_MAX)
        """The newest records that could not be understood; ``garbage_counts`` has how many there were, by topic."""
        self.garbage_counts: Counter[str] = Counter()

    @property
    def garbage_left_out(self) -> int:
        """How many records that could not be understood are not in ``garbage`` any more."""
        return self.garbage_counts.total() - len(self.garbage)

    def take(self, read: Delivery | Garbage) -> None:
        """One record more, in the order of its partition."""
        if isinstance(read, Garbage):
            self.garbage.append(read)
            self.garbage_counts[read.partition.topic] += 1
        elif read.value is None:
            self._drop(read.key, read.partition)
        else:
            self.current.setdefault(read.key, {})[read.partition] = read
            self._by_kind.setdefault(type(read.key), set()).add(read.key)

    def _drop(self, key: Key, partition: Partition) -> None:
        places = self.current.get(key)
        if places is None:
            return
        places.pop(partition, None)
        if not places:
            del self.current[key]
            self._by_kind[type(key)].discard(key)

    def keys(self, kind: type[KeyT]) -> Iterator[KeyT]:
        """The keys of one kind that have a record, in no order; other kinds are not looked through."""
        return (key for key in self._by_kind.get(kind, ()) if isinstance(key, kind))

    def get(self, key: Key, kind: type[RecordT]) -> RecordT | None:
        """The record under ``key``, if there is one (in the lowest partition that has it)."""
        for _, read in sorted(self.current.get(key, {}).items()):
            if isinstance(read.value, kind):
                return read.value
        return None

    def each(self, key_kind: type[KeyT], kind: type[RecordT]) -> Iterator[tuple[KeyT, RecordT]]:
        """All keys of one kind with their records, sorted by key."""
        for key in sorted(self.keys(key_kind), key=lambda key: key.text()):
            record = self.get(key, kind)
            if record is not None:
                yield key, record

    def is_requested(self, request: str) -> bool:
        """Whether a request of that id exists; its outcome may be there."""
        return RequestKey(request) in self.current

    def owner(self, shard: int) -> OwnerAnnounced | None:
        """The owner of a shard as last announced; None if there is none or it has resigned."""
        record = self.get(OwnerKey(shard), OwnerAnnounced)
        return record if record is not None and record.lease_seconds > 0 else None

    def reading_less_than(self, level: int) -> list[str]:
        """Announced processes of every service that cannot read this schema level: keys as on the topic, sorted."""
        found = set()
        for key, places in self.current.items():
            for read in places.values():
                record = read.value
                if isinstance(record, Announced) and record.schema_version < level and not _is_over(record):
                    found.add(key.text())
        return sorted(found)

    def ended(self, agent: str, session: str) -> SessionEnded | None:
        """Why a session is dead, None if it is not."""
        return self.get(SessionKey(agent, session), SessionEnded)

    def starting(self) -> list[AgentKey]:
        """Live sessions that have answered no owner, so run nothing (coordinator/core/sessions/membership.py)."""
        heard = {(key.agent, key.session) for key in self.keys(AnswerKey)}
        announced = [key for key, _ in self.each(AgentKey, AgentAnnounced)]
        return [k for k in announced if (k.agent, k.session) not in heard and self.ended(k.agent, k.session) is None]

    def dispatched(self, feed: str, span: str) -> SpanDispatched | None:
        """The span's ReplicationSet, None before anything was decided about it."""
        return self.get(SpanKey(feed, span), SpanDispatched)

    def reported(self, feed: str, span: str, role: Assignment) -> TaskReported | None:
        """The report of the holder of ``role`` on its task; a report of another epoch does not count."""
        record = self.get(TaskKey(feed, span, role.agent, role.session), TaskReported)
        return record if record is not None and record.epoch == role.epoch else None

    def progressed(self, feed: str, span: str, role: Assignment) -> SpanProgressed | None:
        """What the holder of ``role`` has applied; another epoch's word does not count."""
        record = self.get(ProgressKey(feed, span, role.agent, role.session), SpanProgressed)
        return record if record is not None and record.epoch == role.epoch else None

    def standing(self) -> list[Delivery]:
        """The current record of every key in every partition, sorted by topic, key and partition."""
        found = [read for reads in self.current.values() for read in reads.values()]
        return sorted(found, key=lambda read: (read.partition.topic, read.key.text(), read.partition.number))


def read_snapshot(log: Log, partitions: Iterable[Partition] | None = None) -> Snapshot:
    """The state now. Raises LogError."""
    snapshot = Snapshot()
    for read in read_to_end(log, sorted(partitions) if partitions is not None else all_partitions(log)):
        snapshot.take(read)
    return snapshot
