"""Refuses a feed that would write into the tables that its own changes come from."""

from msgspec.structs import replace

from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, split_table
from headgate.records.slices import whole_table
from headgate.sinks.contract import SelfAware, SinkRefusedError
from headgate.sinks.registry import plug_of
from headgate.sources.origin import origins
from headgate.sources.topics import source_tables


class CircleError(SinkRefusedError):
    """The feed would write into the tables that its own changes come from."""


def check_circle(connection: KafkaConnection, spec: FeedSpec, spans: tuple[SpanPlan, ...], sink: SelfAware) -> None:
    """Raise CircleError where the feed would write into the tables that its own changes come from.

    Detected: Debezium's events name the very database and table that the sink has, and the sink publishes that
    table to a logical replication slot. Not detected: other formats, a source without recent events, a circle over
    several feeds, a source that is not read by logical replication (a connector that polls).
    """
    if spec.sink.not_the_source or not FORMATS[spec.source.format].tells_origin:
        return
    by_topic = origins(connection, {plan.topic: len(plan.start) for plan in spans})
    names = source_tables(spec)
    found = {
        plan.table: replace(origin, table=names.get(normal_table(plan.table), origin.table))
        for plan in spans
        if (origin := by_topic.get(plan.topic)) is not None
    }
    named: dict[str, list[SpanPlan]] = {}
    for plan in spans:
        origin = found.get(plan.table)
        is_alike = origin is not None and origin.connector in plug_of(spec.sink.type).connectors
        if origin is not None and is_alike and _last_part(origin.table) == _last_part(plan.table):
            named.setdefault(origin.database, []).append(plan)
    for database, plans in sorted(named.items()):
        published = sink.published(database, [whole_table(plan.table) for plan in plans])
        for plan in plans:
            if found[plan.table].table in published:
                raise CircleError(
                    f"table {plan.table} is the source of topic {plan.topic}: its events come from database "
                    f"{database}, table {found[plan.table].table}, which the sink has and publishes; every change "
                    "would come back as a new one. Name another database or table, or set sink.not_the_source: "
                    "true if the sink is a copy with the same names"
                )


def _last_part(table: str) -> str:
    return split_table(table)[1]
