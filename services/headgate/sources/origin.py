"""Where the changes of a topic come from, as far as they say it themselves: Debezium's ``source`` block.

It names connector, database, schema and table, and no server: two servers may have databases and tables of the same
names, so this alone proves nothing (the owner asks the sink as well). Only the last records of each partition are
looked at; topics without one, and other formats, say nothing.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.leaders import ask_offsets
from headgate.eventlog.log import LogError
from headgate.formats.change import DATA_ERRORS
from headgate.records.identifiers import parse_identifier, show_identifier
from headgate.sources.offsets import SourceUnreachableError

__all__ = ["Origin", "origin_of", "origins"]

LOOK_SECONDS_MAX: Final = 5.0
"""For a record of each topic. What has not come by then is not known: this look is no proof in either direction."""


LOOK_BACK_RECORDS: Final = 10
"""The last of a partition may be a tombstone, a marker or a message; hardly ever ten in a row."""


class Origin(msgspec.Struct, frozen=True):
    """A source table: "postgresql", its database, "schema.table" (or the table alone, where there are no schemas)."""

    connector: str
    database: str
    table: str

    @property
    def in_full(self) -> str:
        """The table with its schema, or, where there are no schemas, with its database."""
        parts = parse_identifier(self.table)
        return self.table if len(parts) > 1 else show_identifier((self.database, *parts))


class _Source(msgspec.Struct):
    connector: str
    db: str
    table: str
    schema: str | None = None


class _Envelope(msgspec.Struct):
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Envelope


def origins(
    connection: KafkaConnection, topics: Mapping[str, int], look: Callable[[bytes | None], Origin | None] | None = None
) -> dict[str, Origin]:
    """Topic → the table its changes come from, where a last record says so. ``topics``: topic → number of partitions.

    ``look`` is what reads one record, instead of ``origin_of``. Raises SourceUnreachableError, and what ``look`` does.
    """
    latest = {TopicPartition(t, p): OffsetSpec.latest() for t, count in sorted(topics.items()) for p in range(count)}
    try:
        ends = ask_offsets(connection, latest, "looking for the last records")
        begins = ask_offsets(connection, dict.fromkeys(latest, OffsetSpec.earliest()), "looking for the last records")
    except LogError as error:
        raise SourceUnreachableError(str(error)) from error
    places = [
        TopicPartition(at.topic, at.partition, max(begins[at].offset, ends[at].offset - LOOK_BACK_RECORDS))
        for at in latest
        if ends[at].offset > begins[at].offset
    ]
    return _read(connection, places, look or origin_of) if places else {}


def _read(
    connection: KafkaConnection, places: list[TopicPartition], look: Callable[[bytes | None], Origin | None]
) -> dict[str, Origin]:
    found: dict[str, Origin] = {}
    waiting = {(place.topic, place.partition) for place in places}
    consumer = connection.client(
        Consumer, group_id="headgate-look", enable_auto_commit=False, enable_partition_eof=True
    )
    with closing(consumer):
        consumer.assign(places)
        deadline = time.monotonic() + LOOK_SECONDS_MAX
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(num_messages=500, timeout=0.2):
                topic = str(message.topic())
                if message.error() is not None:  # the end of a partition, or a partition that cannot be read
                    waiting.discard((topic, message.partition()))
                elif (origin := look(message.value())) is not None:
                    found[topic] = origin
                    waiting = {place for place in waiting if place[0] != topic}
    return found


def origin_of(value: bytes | None) -> Origin | None:
    """What one record says; None if nothing."""
    source = _source(value or b"")
    if source is None:
        return None
    table = show_identifier([part for part in (source.schema, source.table) if part is not None])
    return Origin(source.connector, source.db, table)


def _source(value: bytes) -> _Source | None:
    try:
        return msgspec.json.decode(value, type=_Envelope).source
    except DATA_ERRORS:
        pass
    try:
        return msgspec.json.decode(value, type=_Wrapped).payload.source
    except DATA_ERRORS:
        return None
