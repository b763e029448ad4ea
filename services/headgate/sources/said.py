"""Which table the newest events of a topic name."""

from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS
from headgate.eventlog.connection import KafkaConnection
from headgate.sources.origin import origins

__all__ = ["table_said"]


def table_said(connection: KafkaConnection, spec: FeedSpec, topic: str, partitions: int) -> str | None:
    """The source's table with its schema or database, None if no event says it. Raises SourceUnreachableError."""
    if not FORMATS[spec.source.format].tells_origin:
        return None
    found = origins(connection, {topic: partitions}).get(topic)
    return None if found is None else found.in_full
