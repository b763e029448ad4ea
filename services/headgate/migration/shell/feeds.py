"""The feed into a copy, which the migration's owner controls by requests and records like any other client.

The next owner repeats every request, so each one is made only if the feed's record shows that it is still missing.
A request whose answer was lost is repeated, too, possibly while the coordinator still executes it.
"""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from headgate.config.feed import FeedSpec
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceSpec
from headgate.config.start_offsets import StartOffsets
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import read_snapshot
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.registry import DecoderNeeds, format_of
from headgate.migration.core.copy_steps import FeedSeen
from headgate.migration.shell.feed_lags import FeedLags
from headgate.migration.shell.topic_changes import TopicChanges
from headgate.migration.shell.topic_tail import FeedsUnavailableError, Looked, Schemas, Tail, registry_spec
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane import CopySink
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.records.control import (
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    WantedState,
)
from headgate.records.keys import FeedKey
from headgate.runtime.requests import (
    RequestError,
    RequestRefusedError,
    RequestTimedOutError,
    ask,
    feed_request,
)
from headgate.sources.offsets import (
    OffsetExpiredError,
    SourceError,
    TopicMissingError,
    check_retention,
    end_offsets,
)
from headgate.sources.origin import Origin, origins
from headgate.sources.topic_ids import TopicReplacedError, check_given_id
from headgate.sources.topics import present_topic_id, present_with

REQUEST_SECONDS_MAX: Final = 60.0
"""For the final outcome of a request. Taking over from a lost coordinator and draining a batch fit in."""

PARTITIONS_MAX: Final = 64
"""A mark takes some milliseconds in each of them, while clients wait."""


_FOR_GOOD: Final = frozenset(
    {
        "value_refused",
        "change_undecodable",
        "source_offset_expired",
        "source_partitions_grown",
        "source_topic_replaced",
    }
)
"""Errors that hold the feed's only table until a user acts; the feed is not reported as failed because of them."""


class ChangeFeeds:
    """Feeds of the cluster whose log this is."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self._schemas: dict[str, Schemas] = {}

    # --- the topic ---

    def check_topic(self, source: ChangeTopic, table: Sequence[Origin]) -> None:
        """Raise RefusedError unless the topic can be of that table (one of these origins), and is in the named form."""
        topic, schemas = source.name, self._schemas_of(source.registry)
        looked = Looked(schemas)
        try:
            if schemas is not None:
                schemas.check()
            present = present_with(self._log.connection, {topic})
            if topic not in present:
                raise RefusedError(
                    f"--topic {topic} does not exist: name the one that has the changes of {table[0].in_full} (a "
                    "connector makes it with the table's first change)"
                )
            if present[topic] > PARTITIONS_MAX:
                raise RefusedError(
                    f"topic {topic} has {present[topic]} partitions: strategy online sets a mark in each, under the "
                    f"table's lock, in at most {PARTITIONS_MAX}"
                )
            found = origins(self._log.connection, {topic: present[topic]}, looked).get(topic)
        except SchemasUnavailableError as error:
            raise RefusedError(str(error)) from error
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error
        if looked.is_other:
            raise RefusedError(
                f"topic {topic} is in Avro (a record begins with a zero byte): name its schemas' --registry"
                if schemas is None
                else f"topic {topic} is not in Avro (a record does not begin with a zero byte): leave --registry out"
            )
        if found is not None and found not in table:
            raise RefusedError(
                f"topic {topic} has changes of {found.connector} {found.database}, table {found.in_full}, not of "
                f"database {table[0].database}, table {table[0].in_full}"
            )

    def tail(self, source: ChangeTopic) -> Tail:
        """The topic's end, from now on. Raises FeedsUnavailableError, RefusedError."""
        topic_id = self._id_of(source.name)  # asked first, see sources/topic_ids.py
        schemas = self._schemas_of(source.registry)
        return Tail(self._log.connection, source.name, self.ends(source.name), schemas, topic_id)

    def changes(self, source: ChangeTopic, start: Mapping[int, int]) -> TopicChanges:
        """The changes from ``start`` (partition → offset) on, decoded as the feed into the copy decodes them.

        Raises FeedsUnavailableError, RefusedError.
        """
        spec = SourceSpec.model_validate({"topics": (source.name,), **_form(source), "start": "latest"})
        needs = DecoderNeeds(source=spec, keyless=False, schemas=self._schemas_of(source.registry))
        return TopicChanges(self._log.connection, source.name, start, format_of(spec.format).decoder(needs))

    def _id_of(self, topic: str) -> str | None:
        try:
            return present_topic_id(self._log.connection, topic)
        except TopicMissingError as error:
            raise _gone(topic) from error
        except SourceError as error:
            raise FeedsUnavailableError(str(error)) from error

    def _partitions_of(self, topic: str) -> int:
        try:
            count = present_with(self._log.connection, {topic}).get(topic)
        except SourceError as error:
            raise FeedsUnavailableError(str(error)) from error
        if count is None:
            raise _gone(topic)
        return count

    def _schemas_of(self, registry: str | None) -> Schemas | None:
        """One instance for all callers: what it has fetched once it need not fetch while clients wait."""
        if registry is None:
            return None
        return self._schemas.setdefault(registry, Schemas(registry))

    def ends(self, topic: str) -> dict[int, int]:
        """Partition → offset behind its last record. Raises FeedsUnavailableError, RefusedError."""
        count = self._partitions_of(topic)
        try:
            return dict(end_offsets(self._log.connection, {topic: count})[topic])
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error

    # --- feeds beside it ---

    def check_known(self, names: Iterable[str]) -> None:
        """Raise RefusedError for a feed that does not exist."""
        for name in names:
            found = self.record(name)
            if found is None or found.state is FeedState.REMOVED:
                raise RefusedError(f"--max-feed-lag: feed {name} does not exist. See `headgate feed list`")

    def lags(self) -> FeedLags:
        """A reader of the lags of feeds."""
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
        """The state in a feed's record, as the steps of a copy need it."""
        if record is None or record.state is FeedState.REMOVED or record.wanted is WantedState.REMOVED:
            return FeedSeen.ABSENT
        if record.state is FeedState.FAILED or record.error_code in _FOR_GOOD:
            return FeedSeen.FAILED
        is_stopped = record.state is FeedState.STOPPED and record.wanted is WantedState.STOPPED
        return FeedSeen.STOPPED if is_stopped else FeedSeen.GOING

    def check_start(self, topic: str, start: StartOffsets) -> None:
        """Raise RefusedError unless a feed of the topic can begin there."""
        not_there = "changes that are needed are not on the topic any more"
        topic_id, count = self._id_of(topic), self._partitions_of(topic)
        try:
            check_given_id(topic, start.topic_id, topic_id)
            if max(start.offsets, default=0) >= count:
                raise RefusedError(f"{not_there}: it has only {count} partitions, so it was deleted and re-created")
            check_retention(self._log.connection, topic, start.offsets)
        except (OffsetExpiredError, TopicReplacedError) as error:
            raise RefusedError(f"{not_there}: {error}") from error
        except (SourceError, LogError) as error:
            raise FeedsUnavailableError(str(error)) from error

    def create(
        self,
        feed: str,
        source: ChangeTopic,
        sink: CopySink,
        *,
        start: StartOffsets | None = None,
    ) -> None:
        """Create the feed unless it exists. It begins with the topic's next change, or at ``start``.

        Raises RefusedError, FeedsUnavailableError.
        """
        if self.seen(found := self.record(feed)) is not FeedSeen.ABSENT:
            return
        begin = {"start": "latest"} if start is None else {"start_offsets": {source.name: start}}
        spec = FeedSpec.model_validate(
            {
                "feed": feed,
                "source": SourceSpec.model_validate({"topics": (source.name,), **_form(source), **begin}),
                "sink": SinkSpec.model_validate(
                    {
                        "type": sink.kind,
                        "connection": sink.connection,
                        "table": sink.table,
                        "rounding": "allow" if sink.rounds else "refuse",
                        "not_the_source": True,
                    }
                ),
                "split": "manual",
            }
        )
        self._ask(OperationKind.CREATE_FEED, feed, found, spec.to_json())

    def pause(self, feed: str) -> None:
        """Have the feed sealed where it is."""
        if (found := self.record(feed)) is not None and found.wanted is WantedState.RUNNING:
            self._ask(OperationKind.PAUSE_FEED, feed, found)

    def resume(self, feed: str) -> None:
        """Have the feed resume from there."""
        if (found := self.record(feed)) is not None and found.wanted is WantedState.STOPPED:
            self._ask(OperationKind.RESUME_FEED, feed, found)

    def remove(self, feed: str) -> None:
        """Have the feed removed; returns at once if it is gone."""
        found = self.record(feed)
        if found is None or found.state is FeedState.REMOVED:
            return
        if found.wanted is not WantedState.REMOVED:
            self._ask(OperationKind.REMOVE_FEED, feed, found)
            return
        raise FeedsUnavailableError(f"feed {feed} is still being removed: see `headgate why {feed}`")

    def _ask(self, kind: OperationKind, feed: str, found: FeedRecorded | None, spec: str | None = None) -> None:
        """Ask the feed's owner for what ``found``, the feed's record, lacks.

        Raises RefusedError; FeedsUnavailableError if the owner did not finish it, or refused it because of another
        record than ``found``.
        """
        request = OperationRequested(
            kind=kind,
            feed=feed,
            spec=spec,
            table=None,
            agent=None,
            requested_by=f"migrations@{socket.gethostname()} (pid {os.getpid()})",
            requested_ms=wall_ms(),
        )
        asked = feed_request(request, shard_of(feed, self._log.shards), uuid4().hex)
        try:
            ask(self._log, asked, REQUEST_SECONDS_MAX, client="headgate-migration")
        except (LogError, RequestTimedOutError) as error:
            raise FeedsUnavailableError(f"{kind.value} of feed {feed}: {error}") from error
        except RequestRefusedError as error:
            if self.record(feed) != found:
                # Most likely this request, sent before, whose answer was lost. The next step reads the record again.
                raise FeedsUnavailableError(f"{error}. The feed has changed since it was read") from error
            raise RefusedError(str(error)) from error
        except RequestError as error:
            raise RefusedError(str(error)) from error


def _gone(topic: str) -> RefusedError:
    return RefusedError(f"topic {topic} is gone. Submit the change again, with the topic that has the table's changes")


def _form(source: ChangeTopic) -> dict[str, Any]:
    """A feed's ``source``, as far as it describes how to read the topic's records."""
    if source.registry is None:
        # Digits that may be bytes, too, are not refused: whatever they are, rows are compared before the cut-over.
        return {"format": "debezium-json", "decimal_handling_mode": "string", "binary_handling_mode": "bytes"}
    return {"format": "debezium-avro", "registry": registry_spec(source.registry)}
