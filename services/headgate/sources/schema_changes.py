"""Reads which columns a connector's schema changes have left each table of a MySQL or MariaDB (formats/schema_changes).

The topic is read for what the source's catalogue does not keep: whether a column under a known name is another one. It
has no order with the rows, and needs none for that. A connector that crashed writes its last statements once more:
those do not count twice.
"""

import logging
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError
from headgate.formats.change import ChangeError
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_changes import SchemaChangeDecoder, TableChange, keeps_columns
from headgate.formats.schema_registry import registry_of
from headgate.formats.topic_names import topic_part
from headgate.sources.offsets import SourceUnreachableError, end_offsets, start_offsets
from headgate.sources.records import RecordGoneError, read_stretch
from headgate.sources.table_names import named_like
from headgate.sources.topic_ids import topic_ids
from headgate.sources.topics import present_topics

__all__ = ["CHANGE_BYTES", "SchemaChanges", "TopicRead", "schema_topic_of"]

_FORMATS: Final = frozenset({"debezium-json", "debezium-avro"})

KEPT_BYTES_MAX: Final = 8 * 2**20
"""Of one topic's names and statements, as characters: some 8 000 tables of 20 columns, or 100 000 statements on few.

Of a topic with more, tables are kept that feeds read. A table of another feed has the topic read once more."""

TOPICS_MAX: Final = 32
"""An agent with tables of more connectors forgets the topic that was not asked for longest, and may read it again."""

CHANGE_BYTES: Final = 100
"""About what a change costs besides its texts."""

_log = logging.getLogger(__name__)

Table = tuple[str, str]
"""Database and table."""


class TopicRead(msgspec.Struct, frozen=True):
    """A topic of schema changes. ``since``: from where it was read without a gap; ``until``: up to where.

    ``tables``: (offset, what a statement left of the table), in order. ``lacks_tables``: others than these may have
    changes, too.
    """

    topic_id: str
    since: int
    until: int
    tables: Mapping[Table, Sequence[tuple[int, TableChange]]] = {}
    lacks_tables: bool = False


class SchemaChanges:
    """Topics of schema changes, each read once and then further. For several threads."""

    def __init__(self, connection: KafkaConnection, *, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._connection, self._bytes_max = connection, bytes_max
        self._lock = threading.Lock()
        self._read: OrderedDict[tuple[str, str], tuple[TopicRead, frozenset[Table]]] = OrderedDict()
        """By topic and registry, with the tables that were asked for."""

    def read(self, spec: FeedSpec, topic: str, wanted: Collection[Table]) -> TopicRead | None:
        """The topic up to its present end; None if there is none, or several partitions lose its order.

        ``wanted``: the tables that are asked for. Others are left out if there are too many. Raises
        SourceUnreachableError.
        """
        with self._lock:
            ids = topic_ids(self._connection, [topic])
            if topic not in ids:
                return None
            registry = spec.source.registry
            key = (topic, "" if registry is None else registry.model_dump_json())
            known, asked = self._read.get(key, (None, frozenset[Table]()))
            if known is None or known.topic_id != (ids[topic] or topic):
                if present_topics(self._connection).get(topic) != 1:
                    return None
                known = TopicRead(ids[topic] or topic, 0, 0)
            asked |= frozenset(wanted)
            if known.lacks_tables and not asked <= known.tables.keys():
                known = TopicRead(known.topic_id, 0, 0)
            known = self._read_on(spec, topic, known, asked)
            self._read[key] = known, asked
            self._read.move_to_end(key)
            while len(self._read) > TOPICS_MAX:
                self._read.popitem(last=False)
            return known

    def _read_on(self, spec: FeedSpec, topic: str, known: TopicRead, asked: frozenset[Table]) -> TopicRead:
        end = end_offsets(self._connection, {topic: 1})[topic][0]
        first = start_offsets(self._connection, {topic: 1}, "earliest")[topic][0]
        start = max(known.until, first)
        since = known.since if 0 < known.until >= first else first
        if start >= end:
            return msgspec.structs.replace(known, since=since, until=start)
        registry = registry_of(spec.source)
        decoder = SchemaChangeDecoder(None if registry is None else registry.schema)
        kept, reached = _Kept(known, asked, lambda table: _is_of(spec, topic, table), self._bytes_max), start
        try:
            for message in read_stretch(self._connection, topic, 0, start, end):
                offset = int(message.offset() or 0)
                for change in _decoded(decoder, topic, offset, message.value()):
                    kept.add(offset, change)
                reached = offset + 1
        except RecordGoneError as error:
            raise SourceUnreachableError(f"topic {topic} loses records while it is read: {error}") from error
        except (LogError, SchemasUnavailableError) as error:
            raise SourceUnreachableError(str(error)) from error
        except _TooManyError as error:
            raise SourceUnreachableError(
                f"topic {topic} has more than {self._bytes_max} bytes of statements on {len(asked)} tables that this "
                "agent has. Have other agents take some of them, or set the topic's retention so that old statements go"
            ) from error
        return TopicRead(known.topic_id, since, reached, kept.tables, kept.lacks_tables)


class _TooManyError(Exception):
    """The tables that were asked for alone have too many changes."""


class _Kept:
    """The changes of a topic's tables, as many as may be kept."""

    def __init__(
        self, known: TopicRead, asked: Collection[Table], is_likely: Callable[[Table], bool], bytes_max: int
    ) -> None:
        self.tables: dict[Table, list[tuple[int, TableChange]]] = {t: list(found) for t, found in known.tables.items()}
        self.lacks_tables = known.lacks_tables
        self._asked, self._is_likely, self._bytes_max = asked, is_likely, bytes_max
        self._seen = {change for changes in self.tables.values() for _, change in changes if change.place}
        self._bytes = sum(_bytes_of(change) for changes in self.tables.values() for _, change in changes)

    def add(self, offset: int, change: TableChange) -> None:
        """Keep a change, unless it is known, or its table is one of those that are left out. Raises _TooManyError."""
        table = (change.database, change.table)
        if change in self._seen or (self.lacks_tables and table not in self.tables):
            return
        if change.place:
            self._seen.add(change)
        self.tables.setdefault(table, []).append((offset, change))
        self._bytes += _bytes_of(change)
        if self._bytes > self._bytes_max:
            self._leave_out(lambda each: each in self._asked or self._is_likely(each))
        if self._bytes > self._bytes_max:
            self._leave_out(self._asked.__contains__)
        if self._bytes > self._bytes_max:
            raise _TooManyError

    def _leave_out(self, stays: Callable[[Table], bool]) -> None:
        """All tables but some; those that are asked for and have no change so far are known to have none."""
        found = {table: changes for table, changes in self.tables.items() if stays(table)}
        self.tables = {**{table: [] for table in self._asked}, **found}
        self.lacks_tables = True
        self._seen = {change for changes in found.values() for _, change in changes if change.place}
        self._bytes = sum(_bytes_of(change) for changes in found.values() for _, change in changes)


def _bytes_of(change: TableChange) -> int:
    return CHANGE_BYTES + len(change.statement) + sum(map(len, change.columns))


def _is_of(spec: FeedSpec, topic: str, table: Table) -> bool:
    """Whether the feed seems to read the table: its topic has the name that Debezium gives it by default."""
    name = topic_part(".".join((topic, *table)))
    pattern = spec.source.topic_pattern
    return name in spec.source.topics if pattern is None else re.fullmatch(pattern, name) is not None


def schema_topic_of(spec: FeedSpec, topic: str) -> str | None:
    """Where the connector that writes the table topic ``topic`` writes its schema changes; None for other formats."""
    if spec.source.format not in _FORMATS:
        return None
    prefix = topic.removesuffix(f".{named_like(topic)}")
    return None if prefix == topic else prefix


def _decoded(decoder: SchemaChangeDecoder, topic: str, offset: int, value: bytes | None) -> list[TableChange]:
    """Without the statements that do not count: those of a connector's snapshot are most of a topic."""
    try:
        found = decoder.decode(value)
    except ChangeError as error:
        _log.warning("offset %d of topic %s was left out: %s", offset, topic, error)
        return []
    return [
        msgspec.structs.replace(
            each,
            columns=tuple(map(sys.intern, each.columns)),
            statement="" if keeps_columns(each.statement) else each.statement,
        )
        for each in found
    ]
