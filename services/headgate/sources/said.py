"""The table that the newest events of a topic name."""

from collections.abc import Callable, Iterable

from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.sources.origin import origins

__all__ = ["tables_said"]


def tables_said(connection: KafkaConnection, spec: FeedSpec, plans: Iterable[SpanPlan]) -> Callable[[str], str | None]:
    """Topic of one of ``plans`` → the source's table that its events name. Asked for when it is called."""
    partitions = {plan.topic: len(plan.start) for plan in plans}
    return lambda topic: _said(connection, spec, topic, partitions[topic])


def _said(connection: KafkaConnection, spec: FeedSpec, topic: str, partitions: int) -> str | None:
    """The source's table with its schema or database, None if no event names it. Raises SourceUnreachableError."""
    if not FORMATS[spec.source.format].tells_origin:
        return None
    found = origins(connection, {topic: partitions}).get(topic)
    return None if found is None else found.in_full
