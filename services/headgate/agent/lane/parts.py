"""What a feed's spec means in objects: its decoder and its sink. The one place where a format is chosen."""

from functools import cached_property

from headgate.changes.debezium_json import Decoder
from headgate.config.feed import FeedSpec, parse_feed
from headgate.sinks.contract import Sink, SinkWriter
from headgate.sinks.open import open_sink

__all__ = ["FeedParts"]


class FeedParts:
    """Decoder, sink and writer of one feed, each opened when first needed. Not for more than one thread."""

    def __init__(self, spec: str) -> None:
        self.spec: FeedSpec = parse_feed(spec)
        self._writer: SinkWriter | None = None

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder of the feed's format; it remembers the schemas it has met."""
        return Decoder(self.spec.source.unavailable_value)

    @cached_property
    def sink(self) -> Sink:
        """The feed's sink; connections are its own affair."""
        return open_sink(self.spec.sink)

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
