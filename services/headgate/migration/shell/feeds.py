"""The feed into a copy, as its migration's owner deals with it: by requests and records, like any other program.

Whatever is asked is asked again by the next owner, so each request is made only if the feed's record says that it is
still to be made.
"""

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from confluent_kafka import Consumer, TopicPartition

from headgate.config.feed import FeedSpec, SinkSpec, SourceSpec
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Delivery, LogError, Partition
from headgate.eventlog.sharding import place, shard_of
from headgate.eventlog.snapshot import read_snapshot
from headgate.formats.change import DATA_ERRORS
from headgate.migration.core.copy_steps import FeedSeen
from headgate.migration.shell.feed_lags import FeedLags
from headgate.migration.strategies.contract import DatabaseUnavailableError, RefusedError
from headgate.migration.strategies.online.lane import LastChange, Place, Target
from headgate.records.base import Fact
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    RequestSettled,
    WantedState,
)
from headgate.records.keys import FeedKey, OutcomeKey, RequestKey
from headgate.sources.offsets import (
    OffsetExpiredError,
    SourceError,
    TopicMissingError,
    check_retention,
    end_offsets,
)
from headgate.sources.origin import Origin, origins
from headgate.sources.topics import present_topics

__all__ = ["ChangeFeeds", "Events", "FeedsUnavailableError"]

REQUEST_SECONDS_MAX: Final = 60.0
"""For a request to be answered for good: a take-over of a lost coordinator and draining a batch fit in."""

WRITE_SECONDS_MAX: Final = 10.0
POLL_SECONDS: Final = 0.2
POLL_RECORDS_MAX: Final = 500

TAIL_POLL_SECONDS: Final = 0.02
"""Clients wait for the answer."""

PARTITIONS_MAX: Final = 64
"""A mark takes some milliseconds in each of them, while clients wait."""

EVENTS_MAX: Final = 500_000
"""Changes that a tail remembers: far more than come during one try of a cut-over. The oldest are forgotten first; a try
that misses them is made again."""


_FOR_GOOD: Final = frozenset({"value_refused", "change_undecodable", "source_offset_expired", "source_topic_replaced"})
"""Errors that hold the feed's only table until somebody does something: the feed is not called failed for that."""


class FeedsUnavailableError(DatabaseUnavailableError):
    """No coordinator or broker answers: what became of a request is not known, it is found out."""


class _Source(msgspec.Struct):
    lsn: int | None = None
    txId: int | None = None  # noqa: N815 - Debezium's name
    gtid: str | None = None
    pos: int = 0


class _Event(msgspec.Struct):
    op: str
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Event


class ChangeFeeds:
    """Feeds of the cluster whose log this is."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log

    # --- the topic ---

    def check_topic(self, topic: str, table: Sequence[Origin]) -> None:
        """Raise RefusedError unless the topic can be of that table (any of these)."""
        try:
            present = present_topics(self._log.connection)
            if topic not in present:
                raise RefusedError(
                    f"--topic {topic} does not exist: name the one that has the changes of {table[0].in_full} (a "
                    "connector makes it with the table's first change)"
                )
            if present[topic] > PARTITIONS_MAX:
                raise RefusedError(
                    f"topic {topic} has {present[topic]} partitions: strategy online sets a mark in each, under the "
                    f"table's lock, in at most {PARTITIONS_MAX}; use strategy triggers"
                )
            found = origins(self._log.connection, {topic: present[topic]}).get(topic)
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error
        if found is not None and found not in table:
            raise RefusedError(
                f"topic {topic} has changes of {found.connector} {found.database}, table {found.in_full}, not of "
                f"database {table[0].database}, table {table[0].in_full}"
            )

    def tail(self, topic: str) -> "_Tail":
        """The topic's end, from now on. Raises FeedsUnavailableError."""
        return _Tail(self._log.connection, topic, self.ends(topic))

    def ends(self, topic: str) -> dict[int, int]:
        """Partition → offset behind its last record. Raises FeedsUnavailableError, RefusedError."""
        try:
            count = present_topics(self._log.connection).get(topic)
            if count is None:
                raise RefusedError(f"topic {topic} is gone")
            return dict(end_offsets(self._log.connection, {topic: count})[topic])
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error

    # --- feeds beside it ---

    def check_known(self, names: Iterable[str]) -> None:
        """Raise RefusedError for a feed that there is not."""
        for name in names:
            found = self.record(name)
            if found is None or found.state is FeedState.REMOVED:
                raise RefusedError(f"--max-feed-lag: there is no feed {name}: see `headgate feed list`")

    def lags(self) -> FeedLags:
        """To ask how far feeds are behind."""
        return FeedLags(self._log)

    # --- the feed into the copy ---

    def record(self, feed: str) -> FeedRecorded | None:
        """The feed as its owner knows it; None if there is none. Raises FeedsUnavailableError."""
        shard = shard_of(feed, self._log.shards)
        try:
            return read_snapshot(self._log, [Partition("changefeed", shard)]).get(FeedKey(feed), FeedRecorded)
        except LogError as error:
            raise FeedsUnavailableError(str(error)) from error

    @staticmethod
    def seen(record: FeedRecorded | None) -> FeedSeen:
        """What a feed's record says, as the steps of a copy ask."""
        if record is None or record.state is FeedState.REMOVED or record.wanted is WantedState.REMOVED:
            return FeedSeen.ABSENT
        if record.state is FeedState.FAILED or record.error_code in _FOR_GOOD:
            return FeedSeen.FAILED
        is_stopped = record.state is FeedState.STOPPED and record.wanted is WantedState.STOPPED
        return FeedSeen.STOPPED if is_stopped else FeedSeen.GOING

    def check_start(self, topic: str, offsets: dict[int, int]) -> None:
        """Raise RefusedError unless a feed of the topic can begin there."""
        try:
            check_retention(self._log.connection, topic, offsets)
        except (OffsetExpiredError, TopicMissingError) as error:
            raise RefusedError(f"changes that are needed are not on the topic any more: {error}") from error
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error

    def create(
        self,
        feed: str,
        topic: str,
        target: Target,
        password_file: str | None,
        table: str,
        *,
        offsets: dict[int, int] | None = None,
    ) -> None:
        """Have the feed begin with the topic's next change, or at ``offsets`` (by partition).

        Raises RefusedError, FeedsUnavailableError.
        """
        start = {"start": "latest"} if offsets is None else {"start_offsets": {topic: offsets}}
        spec = FeedSpec.model_validate(
            {
                "feed": feed,
                "source": SourceSpec.model_validate({"topics": (topic,), "format": "debezium-json", **start}),
                "sink": SinkSpec.model_validate(
                    {"type": target.sink, "dsn": target.dsn, "table": table, "not_the_source": True}
                    | ({} if password_file is None else {"password_file": password_file})
                ),
                "split": "manual",
            }
        )
        self._ask(OperationKind.CREATE_FEED, feed, spec.to_json())

    def pause(self, feed: str) -> None:
        """Have it sealed where it is."""
        if (found := self.record(feed)) is not None and found.wanted is WantedState.RUNNING:
            self._ask(OperationKind.PAUSE_FEED, feed)

    def resume(self, feed: str) -> None:
        """Have it go on from there."""
        if (found := self.record(feed)) is not None and found.wanted is WantedState.STOPPED:
            self._ask(OperationKind.RESUME_FEED, feed)

    def remove(self, feed: str) -> None:
        """Have it gone; at once if it is."""
        found = self.record(feed)
        if found is None or found.state is FeedState.REMOVED:
            return
        if found.wanted is not WantedState.REMOVED:
            self._ask(OperationKind.REMOVE_FEED, feed)
            return
        raise FeedsUnavailableError(f"feed {feed} is still being removed: see `headgate why {feed}`")

    def _ask(self, kind: OperationKind, feed: str, spec: str | None = None) -> None:
        request = OperationRequested(
            kind=kind,
            feed=feed,
            spec=spec,
            table=None,
            agent=None,
            requested_by=f"migrations@{socket.gethostname()} (pid {os.getpid()})",
            requested_ms=time.time_ns() // 1_000_000,
        )
        shard, key = shard_of(feed, self._log.shards), RequestKey(uuid4().hex)
        at = Partition("changefeed", shard)
        try:
            with (
                closing(self._log.reader(self._log.end_offsets([at]))) as reader,
                closing(self._log.writer("headgate-migration")) as writer,
            ):
                writer.write([place(Fact(key, request), shard)], WRITE_SECONDS_MAX)
                try:
                    outcome = _outcome(reader, OutcomeKey(key.request))
                finally:
                    writer.write([place(Fact(key, None), shard)], WRITE_SECONDS_MAX)
        except LogError as error:
            raise FeedsUnavailableError(f"{kind.value} of feed {feed}: {error}") from error
        if outcome is None or outcome.status is OutcomeStatus.ACCEPTED:
            raise FeedsUnavailableError(
                f"{kind.value} of feed {feed} is not done after {REQUEST_SECONDS_MAX:g} s: is there a `headgate serve "
                "coordinator`, and an agent?"
            )
        if outcome.status is not OutcomeStatus.DONE:
            raise RefusedError(f"{kind.value} of feed {feed}: {outcome.reason}")


def _outcome(reader: Any, key: OutcomeKey) -> RequestSettled | None:
    latest: RequestSettled | None = None
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    while (left := deadline - time.monotonic()) > 0:
        for read in reader.poll(POLL_RECORDS_MAX, min(POLL_SECONDS, left)):
            if isinstance(read, Delivery) and read.key == key and isinstance(read.value, RequestSettled):
                latest = read.value
        if latest is not None and latest.status is not OutcomeStatus.ACCEPTED:
            break
    return latest


class _Tail:
    """See lane.TopicTail. Reading begins with the first question."""

    def __init__(self, connection: Any, topic: str, start: Mapping[int, int]) -> None:
        self._consumer = connection.client(Consumer, group_id="headgate-migration", enable_auto_commit=False)
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in start.items()])
        self._consumer.poll(0)
        self._events = Events()

    def find(self, changes: Sequence[LastChange], seconds: float) -> list[tuple[Place, ...]]:
        """See TopicTail."""
        deadline, events = time.monotonic() + seconds, self._events
        found = [events.places(change) for change in changes]
        while not all(found) and (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(num_messages=POLL_RECORDS_MAX, timeout=min(TAIL_POLL_SECONDS, left)):
                if message.error() is None:
                    events.add(message.value(), Place(message.partition(), message.offset()))
            found = [places or events.places(change) for change, places in zip(changes, found, strict=True)]
        return found

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


class Events:
    """What was seen of a topic, by what names a change."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int | str], dict[tuple[str, int], Place]] = {}

    def add(self, value: bytes | None, place: Place) -> None:
        """One record. A connector that was started again may send an event twice: the later one counts."""
        event = _event(value or b"")
        if event is None:
            return
        source = event.source
        for name in (("lsn", source.lsn), ("txid", source.txId), ("gtid", source.gtid)):
            if name[1] is not None:
                self._places.setdefault((name[0], name[1]), {})[event.op, source.pos] = place
        while len(self._places) > EVENTS_MAX:
            del self._places[next(iter(self._places))]

    def places(self, change: LastChange) -> tuple[Place, ...]:
        """Where the change's events are, if they were all seen: of those that fit, the ones that stand last."""
        names = (("lsn", change.lsn), ("txid", change.txid), ("gtid", change.gtid))
        name, value = next((name, value) for name, value in names if value is not None)
        seen = self._places.get((name, value), {})
        for form in change.forms:
            fitting = [{pos: place for (op, pos), place in seen.items() if op == wanted} for wanted in form]
            if all(len(places) >= change.places for places in fitting):
                return tuple(places[max(places)] for places in fitting)
        return ()


def _event(value: bytes) -> _Event | None:
    """With or without its schema beside it."""
    with suppress(*DATA_ERRORS):
        return msgspec.json.decode(value, type=_Wrapped).payload
    with suppress(*DATA_ERRORS):
        return msgspec.json.decode(value, type=_Event)
    return None
