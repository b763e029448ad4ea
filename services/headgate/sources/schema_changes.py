"""Reads which columns a connector's schema changes have left each table of a MySQL or MariaDB (formats/schema_changes).

The topic is read for what the source's catalogue does not keep: whether a column under a known name is another one. It
has no order with the rows, and needs none for that. A connector that crashed writes its last statements once more:
those do not count twice.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError
from headgate.formats.change import ChangeError
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_changes import SchemaChangeDecoder, TableChange
from headgate.formats.schema_registry import registry_of
from headgate.sources.offsets import SourceUnreachableError, end_offsets, start_offsets
from headgate.sources.records import RecordGoneError, read_stretch
from headgate.sources.table_names import named_like
from headgate.sources.topic_ids import topic_ids
from headgate.sources.topics import present_topics

__all__ = ["SchemaChanges", "TopicRead", "schema_topic_of"]

_FORMATS: Final = frozenset({"debezium-json", "debezium-avro"})

_log = logging.getLogger(__name__)


class TopicRead(msgspec.Struct, frozen=True):
    """A topic of schema changes. ``since``: from where it was read without a gap; ``until``: up to where.

    ``tables``: database and table → (offset, what a statement left of it), in order.
    """

    topic_id: str
    since: int
    until: int
    tables: Mapping[tuple[str, str], Sequence[tuple[int, TableChange]]] = {}


class SchemaChanges:
    """Topics of schema changes, each read once and then further. For several threads."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._read: dict[tuple[str, str], TopicRead] = {}
        """By topic and registry."""

    def read(self, spec: FeedSpec, topic: str) -> TopicRead | None:
        """The topic up to its present end; None if there is none, or several partitions lose its order.

        Raises SourceUnreachableError.
        """
        with self._lock:
            ids = topic_ids(self._connection, [topic])
            if topic not in ids:
                return None
            registry = spec.source.registry
            key = (topic, "" if registry is None else registry.model_dump_json())
            known = self._read.get(key)
            if known is None or known.topic_id != (ids[topic] or topic):
                if present_topics(self._connection).get(topic) != 1:
                    return None
                known = TopicRead(ids[topic] or topic, 0, 0)
            self._read[key] = known = self._read_on(spec, topic, known)
            return known

    def _read_on(self, spec: FeedSpec, topic: str, known: TopicRead) -> TopicRead:
        end = end_offsets(self._connection, {topic: 1})[topic][0]
        first = start_offsets(self._connection, {topic: 1}, "earliest")[topic][0]
        start = max(known.until, first)
        since = known.since if 0 < known.until >= first else first
        if start >= end:
            return msgspec.structs.replace(known, since=since, until=start)
        registry = registry_of(spec.source)
        seen = {change for changes in known.tables.values() for _, change in changes if change.place}
        decoder = SchemaChangeDecoder(None if registry is None else registry.schema)
        tables, reached = {table: list(changes) for table, changes in known.tables.items()}, start
        try:
            for message in read_stretch(self._connection, topic, 0, start, end):
                offset = int(message.offset() or 0)
                for change in _decoded(decoder, topic, offset, message.value()):
                    if change in seen:
                        continue
                    if change.place:
                        seen.add(change)
                    tables.setdefault((change.database, change.table), []).append((offset, change))
                reached = offset + 1
        except RecordGoneError as error:
            raise SourceUnreachableError(f"topic {topic} loses records while it is read: {error}") from error
        except (LogError, SchemasUnavailableError) as error:
            raise SourceUnreachableError(str(error)) from error
        return TopicRead(known.topic_id, since, reached, tables)


def schema_topic_of(spec: FeedSpec, topic: str) -> str | None:
    """Where the connector that writes the table topic ``topic`` writes its schema changes; None for other formats."""
    if spec.source.format not in _FORMATS:
        return None
    prefix = topic.removesuffix(f".{named_like(topic)}")
    return None if prefix == topic else prefix


def _decoded(decoder: SchemaChangeDecoder, topic: str, offset: int, value: bytes | None) -> list[TableChange]:
    try:
        return decoder.decode(value)
    except ChangeError as error:
        _log.warning("offset %d of topic %s was left out: %s", offset, topic, error)
        return []
