"""The two halves of writing to topics: tasks encode records, and the driver commits them with the positions."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from headgate.config.crash_points import CrashPoint, reach
from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import FencedError, LogError, Partition
from headgate.formats.change import Change, ChangeError
from headgate.sinks.bisection import bisect_batch
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    Claim,
    Events,
    OffsetRange,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
    ValueRefusedError,
)
from headgate.sinks.kafka.avro import AvroRecords, Plans, SchemaRefusedError, UntakenSchemaError, subjects_of
from headgate.sinks.kafka.claims import Claims, check_held
from headgate.sinks.kafka.cloud_events import Attributes, Headers
from headgate.sinks.kafka.errors import as_sink_errors, lost_topic
from headgate.sinks.kafka.names import topic_of
from headgate.sinks.kafka.parts import Made, Transaction, pack, transactions
from headgate.sinks.kafka.progress import ProgressRecord, Row, partition_of, place_of, progress_key
from headgate.sinks.kafka.records import BY_KEY, Encoded, enveloped, flat
from headgate.sinks.kafka.target import TargetCluster
from headgate.sinks.kafka.topics import describe, record_bytes_max
from headgate.sinks.on_driver import Commit, Staged
from headgate.sinks.relational.batches import check_ranges, check_truncates, refused_change

__all__ = ["KafkaCommitter", "KafkaStager"]

_log = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 60.0
"""How long a topic's max.message.bytes is remembered: asking takes milliseconds, and a batch should not pay them."""

CHECK_SECONDS: Final = 10.0
"""How often a topic is checked for not being re-created, empty: by a user, or by brokers that create what is named."""

HEADER_OVERHEAD_BYTES: Final = 4
"""What a header has beside its name and value: two lengths, of one or two bytes."""

ATTEMPTS_MAX: Final = 3
"""Of a commit: its producer was fenced for another table's sake, or holds the rows no more."""


class KafkaStager:
    """Encodes records in a task. Its connection to Kafka only asks how large they may be."""

    def __init__(self, connection: KafkaConnection, options: SinkSpec) -> None:
        self._connection = connection
        self._options = options
        self._limits: dict[str, tuple[float, int]] = {}
        self._subjects = None if options.registry is None else subjects_of(options.registry)
        self._plans = Plans()

    def stage(self, batch: ChangeBatch) -> Staged:
        """See Stager."""
        check_ranges(batch)
        topic = topic_of(batch.claim.table)
        encode = self._encoder(batch, topic)
        attributes = Attributes(batch.claim) if self._options.format == "cloudevents" else None
        by_key = self._options.partitions == "by-key"
        trial = _Trial(batch, self._limit(topic) if batch.changes else 0, encode, attributes, by_key=by_key)
        found = bisect_batch(trial, batch)
        if found.refused and batch.quarantine is not None:
            batch.quarantine.keep(found.refused)
        return Staged(found.ranges, pack(trial.made), trial.upserts, trial.deletes, len(found.refused))

    def _encoder(self, batch: ChangeBatch, topic: str) -> Callable[[Change], list[Encoded]]:
        """What makes records of the batch's changes, in the feed's format."""
        if self._options.writes_events:
            return partial(enveloped, events=_events_of(batch))
        if self._subjects is None:
            return flat
        return AvroRecords(self._subjects, topic, self._plans).encode

    def _limit(self, topic: str) -> int:
        now = time.monotonic()
        asked_at, limit = self._limits.get(topic, (now - LIMIT_SECONDS, 0))
        if now - asked_at >= LIMIT_SECONDS:
            with as_sink_errors(topic):
                limit = record_bytes_max(self._connection, topic)
            self._limits[topic] = now, limit
        return limit

    def close(self) -> None:
        """See Stager."""
        self._connection.close()


def _events_of(batch: ChangeBatch) -> Events:
    if batch.events is None:
        raise SinkRefusedError(f"{batch.claim.table}: no events came with the changes, and sink.format writes events")
    return batch.events


class _TooLargeError(ChangeError):
    """A record that the topic does not take."""


class _Trial:
    """See bisection: what was tried and taken are records."""

    def __init__(
        self,
        batch: ChangeBatch,
        bytes_max: int,
        encode: Callable[[Change], list[Encoded]],
        attributes: Attributes | None,
        *,
        by_key: bool,
    ) -> None:
        """``attributes``: of events that records are, if they are events of CloudEvents."""
        self._batch = batch
        self._bytes_max = bytes_max
        self._encode = encode
        self._attributes = attributes
        self._by_key = by_key
        self.made: list[Made] = []
        self.upserts = self.deletes = 0

    def attempt(self, parts: Sequence[Sequence[Change]]) -> Exception | None:
        """See Trial."""
        made: list[Made] = []
        upserts = deletes = number = 0
        last: Change | None = None
        try:
            for changes in parts:
                check_truncates(self._batch.claim, changes)
                for change in changes:
                    to = BY_KEY if self._by_key else change.partition
                    if self._attributes is not None:
                        number, last = number + 1 if _is_beside(change, last) else 0, change
                    for key, value, head in self._encode(change):
                        headers = None if self._attributes is None else self._attributes.of(change, key or b"", number)
                        size = _size(key, value, head, headers)
                        if size > self._bytes_max:
                            raise _too_large(size, self._bytes_max)
                        made.append((change.partition, change.offset, size, head, (to, key, value), headers))
                mine = sum(change.row is None for change in changes)
                deletes += mine
                upserts += len(changes) - mine
        except (ChangeError, msgspec.MsgspecError) as error:
            return error
        self.made += made
        self.upserts, self.deletes = self.upserts + upserts, self.deletes + deletes
        return None

    def refusal(self, change: Change, error: Exception) -> ChangeRefusedError:
        """See Trial."""
        claim = self._batch.claim
        kind = SchemaRefusedError if isinstance(error, UntakenSchemaError) else ValueRefusedError
        return refused_change(kind, claim.table, claim.topic, change, error, column=None, reason=str(error))


def _is_beside(change: Change, last: Change | None) -> bool:
    """Whether both are of one event. Its changes follow each other, and are tried together (bisection.py)."""
    return last is not None and (change.partition, change.offset) == (last.partition, last.offset)


def _size(key: bytes | None, value: bytes | None, head: bytes | None, headers: Headers | None) -> int:
    """Bytes that the topic takes a record for."""
    size = len(key or b"") + len(value or b"") + len(head or b"")
    if headers is not None:
        size += sum(len(name) + len(text) + HEADER_OVERHEAD_BYTES for name, text in headers.items())
    return size


def _too_large(size: int, bytes_max: int) -> _TooLargeError:
    return _TooLargeError(
        f"the record has {size} bytes, and the target topic takes {bytes_max} (max.message.bytes, less what Kafka "
        "adds). Raise it there, or exclude a column"
    )


class KafkaCommitter:
    """Commits records and positions in one transaction of the process's only producer for the target cluster."""

    def __init__(self, target: TargetCluster, claims: Claims, *, by_key: bool) -> None:
        """``by_key``: the client chooses the partition of each record."""
        self._target = target
        self._claims = claims
        self._by_key = by_key
        self._partitions: dict[str, int] = {}
        """Topic → how many it has."""
        self._checked: dict[str, float] = {}
        """Topic → when it was last seen to be the one that was claimed."""

    def commit(self, commit: Commit) -> None:
        """See Committer."""
        claim, topic = commit.claim, topic_of(commit.claim.table)
        if commit.source_table is not None:
            self._claims.record_source(claim, topic, commit.ranges, commit.source_table)
        if commit.keep is not None:
            self._claims.take_over(claim, topic, commit.ranges)  # a process that was overtaken keeps nothing
        keep = commit.keep
        for transaction in transactions(commit.payloads, commit.ranges, lambda: self._target.pace.bytes_max):
            self._commit(claim, topic, transaction, keep)
            keep = None

    def _commit(self, claim: Claim, topic: str, transaction: Transaction, keep: Callable[[], None] | None) -> None:
        for _ in range(ATTEMPTS_MAX):
            with as_sink_errors(f"{topic} under epoch {claim.epoch}"):
                if self._committed(claim, topic, transaction, keep):
                    return
            self._claims.take_over(claim, topic, transaction.ranges)
        raise SinkUnavailableError(
            f"{topic} under epoch {claim.epoch}: {ATTEMPTS_MAX} transactions were ended by other processes' claims. "
            "The batch is read again"
        )

    def _committed(self, claim: Claim, topic: str, transaction: Transaction, keep: Callable[[], None] | None) -> bool:
        """False if this process's producer does not hold the rows, or was fenced."""
        target, place, ranges = self._target, place_of(claim, topic), transaction.ranges
        with target.mutex:
            holder = target.holder
            rows = holder.held(place, ranges)
            if rows.keys() != ranges.keys():
                return False
            try:
                check_held(claim, topic, ranges, rows)
            except SinkError:
                return False  # by what this process remembers, which may be outdated: taking it over reads why
            is_due = self._check_topic(claim, topic, rows)
            if not (self._may_write(topic, ranges) and (not is_due or self._may_write_on(topic))):
                target.retire()
                return False
            if keep is not None:
                keep()
            moved = _moved(rows, ranges)
            facts = [
                ProgressRecord(partition_of(topic), progress_key(place, partition), msgspec.json.encode(row))
                for partition, row in sorted(moved.items())
            ]
            began = time.monotonic()
            try:
                holder.producer.commit(topic, transaction.parts, facts)
            except FencedError:
                target.retire()
                return False
            except BaseException:
                target.pace.failed()
                target.retire()  # what became of it is found out by the next claim
                raise
            target.pace.took(transaction.size, time.monotonic() - began)
            reach(CrashPoint.COMMITTED)
            holder.keep(place, moved)
            holder.proofs.committed(dict.fromkeys(self._places(topic, ranges)))
            return True

    def _places(self, topic: str, partitions: Iterable[int]) -> set[Partition]:
        """Where a transaction may write: with ``by-key`` to every partition of the topic."""
        numbers = range(self._partitions.get(topic, 0)) if self._by_key else partitions
        progress = Partition(self._target.progress, partition_of(topic))
        return {progress, *(Partition(topic, number) for number in numbers)}

    def _may_write(self, topic: str, ranges: Iterable[int]) -> bool:
        """Whether the present holder may write this transaction. Raises LogError if that is not known."""
        try:
            return self._target.may_write(self._places(topic, ranges))
        except LogError:
            self._checked.pop(topic, None)  # it may be gone, and brokers could create it again for what is produced
            raise

    def _may_write_on(self, topic: str) -> bool:
        """The same for all that it has written to the topic, whose readers may be held up elsewhere.

        A partition that does not answer is asked again after CHECK_SECONDS: this transaction does not need it.
        """
        try:
            return self._target.may_write(self._target.holder.proofs.of_topic(topic))
        except LogError as error:
            _log.warning("whether readers of topic %s are held up cannot be read: %s", topic, error)
            return True

    def _check_topic(self, claim: Claim, topic: str, rows: Mapping[int, Row]) -> bool:
        """Check now and then that the topic is the one that was claimed; whether it was time to.

        Raises SinkRefusedError if it was re-created, LogError.
        """
        now = time.monotonic()
        if now - self._checked.get(topic, now - CHECK_SECONDS) < CHECK_SECONDS:
            return False
        found = describe(self._target.connection, topic)
        ids = {row.target_id for row in rows.values()} - {None}
        if ids and (found is None or (found.id is not None and found.id not in ids)):
            raise lost_topic(topic, self._target.bootstrap, claim.identity.feed, exists=found is not None)
        self._checked[topic] = now
        self._partitions[topic] = 0 if found is None else found.partitions
        return True

    def close(self) -> None:
        """See Committer. The producer is the process's."""


def _moved(rows: Mapping[int, Row], ranges: Mapping[int, OffsetRange]) -> dict[int, Row]:
    return {partition: msgspec.structs.replace(row, next=ranges[partition].next) for partition, row in rows.items()}
