"""Creates the objects of a feed's spec: decoders and a sink, and others for tables with their own options."""

from collections.abc import Collection
from functools import cached_property, lru_cache, partial
from typing import Final, Self

import msgspec

from headgate.agent.core.executor import SpanTask
from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.plugs import SINKS, Writes
from headgate.config.table_options import TablePattern
from headgate.formats.dealing import Dealer, Look
from headgate.formats.decoding import Decoder
from headgate.formats.registry import DecoderNeeds, FormatPlug, format_of
from headgate.formats.schema_registry import SchemaRegistry, registry_of
from headgate.formats.shaping import Shaping, read_salts
from headgate.records.identifiers import show_identifier
from headgate.replication.catalogue_types import CatalogueTypes
from headgate.replication.sink_columns import SinkColumns
from headgate.sinks.contract import Claim, Sink, SinkRefusedError, SinkWriter
from headgate.sinks.on_driver import Committer, Stager, driver_sink
from headgate.sinks.registry import open_sink, server_of
from headgate.sources.topics import source_tables

__all__ = ["FEEDS_MAX", "FeedIncarnation", "FeedParts", "feed_of", "server_of_feed"]

FEEDS_MAX: Final = 256
"""Descriptions kept parsed: reading one takes a millisecond, and every batch asks."""


@lru_cache(maxsize=FEEDS_MAX)
def feed_of(spec: str) -> FeedSpec:
    """The feed that ``spec`` describes. Raises FeedSpecError."""
    return parse_feed(spec)


def server_of_feed(spec: str) -> str:
    """The sink's server (sinks.registry.server_of); empty if neither the description nor the address contains one."""
    try:
        return _server_of_feed(spec)
    except (FeedSpecError, SinkRefusedError):  # the caller that opens the sink reports what is wrong
        return ""


@lru_cache(maxsize=FEEDS_MAX)
def _server_of_feed(spec: str) -> str:
    return server_of(feed_of(spec).sink)


class FeedIncarnation(msgspec.Struct, frozen=True, order=True):
    """One description of a feed in one incarnation: the key of whatever is remembered about a feed between batches.

    Names do not do: a feed may be re-created, updated or rewound under its name, and its topics re-created.
    """

    feed_id: str
    incarnation: int
    spec: str

    @classmethod
    def of_task(cls, task: SpanTask) -> Self:
        """The one that a span is run for."""
        return cls(task.feed_id, task.incarnation, task.spec)

    @classmethod
    def of_claim(cls, claim: Claim, spec: str) -> Self:
        """The one that a claim was made for."""
        return cls(claim.identity.feed_id, claim.incarnation, spec)


class FeedParts:
    """Decoders, sink and writer of one feed, each opened when first needed. Not for more than one thread."""

    def __init__(self, spec: str | FeedSpec) -> None:
        self.spec: FeedSpec = feed_of(spec) if isinstance(spec, str) else spec
        self._by_session: dict[tuple[str, str], FeedParts] = {self.spec.sink.session_options: self}
        self._by_table: dict[tuple[str, str | None], FeedParts] = {}
        self._decoders: dict[tuple[str, str | None], tuple[str | None, Decoder]] = {}
        self._dealers: dict[str, tuple[str | None, Dealer]] = {}
        self._shapings: dict[tuple[str, str | None], Shaping | None] = {}
        self._writer: SinkWriter | None = None
        self._stager: Stager | None = None
        self._committer: Committer | None = None

    def of_table(self, topic: str, table: str | None = None) -> "FeedParts":
        """The parts for one table: these, or others if its options ask for another session. See ``decoder``.

        They are closed with these.
        """
        if not self.spec.tables:
            return self
        found = self._by_table.get((topic, table))
        if found is None:
            spec = self.spec.for_table(topic, table)
            found = self._by_session.get(spec.sink.session_options) or FeedParts(spec)
            self._by_session[spec.sink.session_options] = self._by_table[topic, table] = found
        return found

    def decoder(self, topic: str, table: str | None = None, topic_id: str | None = None) -> Decoder:
        """The topic's decoder, in the feed's format; it remembers what it has met (schemas, watermarks).

        ``table``: of one of several tables of the topic; it is given no other's events. ``topic_id`` is Kafka's: a
        topic that was re-created gets a new decoder, because what the old one has met was met in other records.
        """
        known_id, decoder = self._decoders.get((topic, table), (None, None))
        if decoder is None or known_id != topic_id:
            decoder = self._make_decoder()
            self._decoders[topic, table] = topic_id, decoder
        return decoder

    def shaping(self, topic: str, table: str | None = None, target: str = "") -> Shaping | None:
        """What the feed's options make of a table's changes; None if it takes them as they are. See ``decoder``.

        ``target``: the table at the sink. Asked of the whole feed's parts. Raises SaltUnavailableError.
        """
        if (topic, table) not in self._shapings:
            feed = self.spec.for_table(topic, table)
            self._shapings[topic, table] = self._made_shaping(feed, topic, table, target) if feed.shapes else None
        return self._shapings[topic, table]

    def _made_shaping(self, feed: FeedSpec, topic: str, table: str | None, target: str) -> Shaping:
        declared = None
        if self.spec.source.database is not None:
            declared = self._types.of(topic, target, partial(self._said, topic, table))
        at_sink = SinkColumns(target, partial(self._columns_at_sink, topic, table, target))
        return Shaping(feed.columns, read_salts(feed.columns), feed.where, declared, at_sink)

    def _columns_at_sink(self, topic: str, table: str | None, target: str) -> Collection[str] | None:
        """Of the table at the sink. Where it has none, a list of columns is that of one table if it is only its own.

        Raises SinkError.
        """
        found = self.of_table(topic, table).sink.check([target])[target].columns
        if found:
            return found
        pattern = self.spec.pattern_of(topic, table) if self.spec.tables else None
        if pattern is not None and self.spec.tables[pattern].columns is not None:
            return None if TablePattern.parse(pattern).is_exact else ()
        source = self.spec.source
        return None if source.topic_pattern is None and len(source.tables or source.topics) == 1 else ()

    def _said(self, topic: str, table: str | None) -> str | None:
        """The source's table that the topic's events have named so far, with its schema or database."""
        _, decoder = self._decoders.get((topic, table), (None, None))
        named = None if decoder is None else decoder.table.name
        parts = [part for part in named or () if part][-2:]
        return show_identifier(parts) if parts else None

    @cached_property
    def _types(self) -> CatalogueTypes:
        return CatalogueTypes(self.spec)

    def hides_columns(self, topic: str) -> bool:
        """Whether the sink must not get all that a table of the topic has. Asked of the whole feed's parts."""
        names = self.spec.source.tables or (None,)
        return any(self.spec.for_table(topic, name).hides for name in names)

    def dealer(self, topic: str, topic_id: str | None = None) -> Dealer:
        """Who deals out the events of a topic with several tables. ``topic_id``: see ``decoder``."""
        known_id, dealer = self._dealers.get(topic, (None, None))
        if dealer is None or known_id != topic_id:
            dealer = Dealer(self._look(), self.spec.source.tables)
            self._dealers[topic] = topic_id, dealer
        return dealer

    def _look(self) -> Look:
        return self._format.look(self._needs)

    @cached_property
    def shared_name(self) -> str:
        """The table under whose name events of a topic with several tables are set aside if they name none."""
        return next(iter(source_tables(self.spec)))

    @property
    def target_ts(self) -> int | None:
        """The ts that the feed ends at, if it is to end."""
        return self.spec.source.target_ts

    @property
    def evolves_tables(self) -> bool:
        """Whether Headgate alters the feed's tables where the source's were altered."""
        return self.spec.evolves_tables

    def _make_decoder(self) -> Decoder:
        return self._format.decoder(self._needs)

    @property
    def _format(self) -> FormatPlug:
        return format_of(self.spec.source.format)

    @cached_property
    def _needs(self) -> DecoderNeeds:
        schemas = self._registry.schema if self._format.needs_registry else None
        return DecoderNeeds(self.spec.source, self.spec.sink.keyless == "append", schemas)

    @cached_property
    def _registry(self) -> SchemaRegistry:
        registry = registry_of(self.spec.source)
        assert registry is not None  # noqa: S101 - a format that needs one is refused without
        return registry

    @cached_property
    def sink(self) -> Sink:
        """The feed's sink; connections are its own affair."""
        return open_sink(self.spec.sink, keeps_session=True)

    def writer(self) -> SinkWriter:
        """The writer, opened if there is none."""
        if self._writer is None:
            self._writer = self.sink.writer()
        return self._writer

    @property
    def commits_on_driver(self) -> bool:
        """Whether tasks only stage batches, and the driver commits them."""
        return SINKS[self.spec.sink.type].writes is Writes.ON_DRIVER

    @property
    def writes_events(self) -> bool:
        """Whether the sink needs the events that changes came as."""
        return self.spec.sink.writes_events

    def stager(self) -> Stager:
        """What prepares batches in a task, for a sink that commits on the driver."""
        if self._stager is None:
            self._stager = driver_sink(self.sink).stager()
        return self._stager

    def committer(self) -> Committer:
        """What commits on the driver, for such a sink."""
        if self._committer is None:
            self._committer = driver_sink(self.sink).committer()
        return self._committer

    def drop_writer(self) -> None:
        """Close a writer, stager and committer whose connections are not to be trusted any more."""
        for used in (self._writer, self._stager, self._committer):
            if used is not None:
                used.close()
        self._writer = self._stager = self._committer = None

    def close(self) -> None:
        """Let go of every connection. Idempotent."""
        for parts in self._by_session.values():
            parts.drop_writer()
            if "sink" in parts.__dict__:
                parts.sink.close()
