"""What a feed's spec means in objects: its decoder and its sink. The one place where a format is chosen."""

from functools import cached_property, lru_cache
from typing import Final

from headgate.config.feed import FeedSpec, SourceFormat, parse_feed
from headgate.formats import canal_json, debezium_avro, debezium_json, maxwell_json
from headgate.formats.dealing import Dealer, Look
from headgate.formats.decoding import Decoder
from headgate.sinks.contract import Sink, SinkWriter
from headgate.sinks.registry import open_sink
from headgate.sources.registry import SchemaRegistry
from headgate.sources.topics import source_tables

__all__ = ["FEEDS_MAX", "FeedParts", "feed_of"]

FEEDS_MAX: Final = 256
"""Descriptions kept parsed: reading one takes a millisecond, and every batch asks."""


@lru_cache(maxsize=FEEDS_MAX)
def feed_of(spec: str) -> FeedSpec:
    """The feed that ``spec`` describes. Raises FeedSpecError."""
    return parse_feed(spec)


class FeedParts:
    """Decoders, sink and writer of one feed, each opened when first needed. Not for more than one thread."""

    def __init__(self, spec: str) -> None:
        self.spec: FeedSpec = feed_of(spec)
        self._decoders: dict[tuple[str, str | None], Decoder] = {}
        self._dealers: dict[str, Dealer] = {}
        self._writer: SinkWriter | None = None

    def decoder(self, topic: str, table: str | None = None) -> Decoder:
        """The topic's decoder, in the feed's format; it remembers what it has met (schemas, watermarks).

        ``table``: of one of several tables of the topic; it is given no other's events.
        """
        decoder = self._decoders.get((topic, table))
        if decoder is None:
            decoder = self._decoders[topic, table] = self._make_decoder()
        return decoder

    def dealer(self, topic: str) -> Dealer:
        """Who deals out the events of a topic with several tables."""
        dealer = self._dealers.get(topic)
        if dealer is None:
            dealer = self._dealers[topic] = Dealer(self._look(), self.spec.source.tables)
        return dealer

    def _look(self) -> Look:
        match self.spec.source.format:
            case SourceFormat.DEBEZIUM_JSON:
                return debezium_json.Look()
            case SourceFormat.DEBEZIUM_AVRO:
                return debezium_avro.Look(self._registry.schema)
            case SourceFormat.MAXWELL_JSON:
                return maxwell_json.look
            case SourceFormat.CANAL_JSON | SourceFormat.TICDC_CANAL_JSON:
                return canal_json.look

    @cached_property
    def shared_name(self) -> str:
        """The table under whose name events of a topic with several are set aside when they do not say their own."""
        return next(iter(source_tables(self.spec)))

    @property
    def target_ts(self) -> int | None:
        """The ts that the feed ends at, if it is to end."""
        return self.spec.source.target_ts

    def _make_decoder(self) -> Decoder:
        source, keyless = self.spec.source, self.spec.sink.keyless == "append"
        match source.format:
            case SourceFormat.DEBEZIUM_JSON:
                return debezium_json.Decoder(
                    source.unavailable_value,
                    keyless=keyless,
                    transactions=source.transaction_topic is not None,
                    binary=source.binary_handling_mode,
                )
            case SourceFormat.DEBEZIUM_AVRO:
                return debezium_avro.Decoder(
                    self._registry.schema,
                    source.unavailable_value,
                    keyless=keyless,
                    binary=source.binary_handling_mode,
                )
            case SourceFormat.MAXWELL_JSON:
                return maxwell_json.Decoder(keyless=keyless)
            case SourceFormat.CANAL_JSON | SourceFormat.TICDC_CANAL_JSON:
                tidb = source.format is SourceFormat.TICDC_CANAL_JSON
                return canal_json.Decoder(tidb=tidb, target_ts=source.target_ts)

    @cached_property
    def _registry(self) -> SchemaRegistry:
        assert self.spec.source.registry is not None  # noqa: S101 - a format that needs one is refused without
        return SchemaRegistry(self.spec.source.registry)

    @cached_property
    def sink(self) -> Sink:
        """The feed's sink; connections are its own affair."""
        return open_sink(self.spec.sink, keeps_session=True)

    def writer(self) -> SinkWriter:
        """The writer, opened if there is none."""
        if self._writer is None:
            self._writer = self.sink.writer()
        return self._writer

    def drop_writer(self) -> None:
        """Close a writer whose connection is not to be trusted any more."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        """Let go of every connection. Idempotent."""
        self.drop_writer()
        if "sink" in self.__dict__:
            self.sink.close()
