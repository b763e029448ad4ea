"""What a feed's spec means in objects: its decoder and its sink."""

from functools import cached_property, lru_cache
from typing import Final

from headgate.config.feed import FeedSpec, parse_feed
from headgate.formats.dealing import Dealer, Look
from headgate.formats.decoding import Decoder
from headgate.formats.registry import DecoderNeeds, FormatPlug, format_of
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
        return self._format.look(self._needs)

    @cached_property
    def shared_name(self) -> str:
        """The table under whose name events of a topic with several are set aside when they do not say their own."""
        return next(iter(source_tables(self.spec)))

    @property
    def target_ts(self) -> int | None:
        """The ts that the feed ends at, if it is to end."""
        return self.spec.source.target_ts

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
