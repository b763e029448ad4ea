"""The columns that a topic's newest events describe, for tables that are created without the source's catalogue."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from headgate.config.feed import FeedSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import DATA_ERRORS
from headgate.formats.column_schema import EventSchema, avro_schema, json_schema
from headgate.formats.debezium_avro import SchemaById, schema_id_of
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import registry_of
from headgate.records.control import SpanPlan
from headgate.sources.newest import look_at_newest
from headgate.sources.offsets import SourceUnreachableError

__all__ = ["event_schemas"]


def event_schemas(
    connection: KafkaConnection, spec: FeedSpec, plans: Iterable[SpanPlan]
) -> Callable[[str], EventSchema | None]:
    """Topic of one of ``plans`` → its table as the newest events describe it. Asked for when it is called."""
    partitions = {plan.topic: len(plan.start) for plan in plans}
    return lambda topic: _described(connection, spec, topic, partitions[topic])


def _described(connection: KafkaConnection, spec: FeedSpec, topic: str, partitions: int) -> EventSchema | None:
    """None if no event has a schema. Raises SourceUnreachableError."""
    registry = registry_of(spec.source)
    schemas = None if registry is None else registry.schema

    def look(_topic: str, key: bytes | None, value: bytes | None) -> EventSchema | None:
        # A tombstone, a message and an event of another format describe nothing.
        with suppress(*DATA_ERRORS):
            return None if value is None else _schema(schemas, key, value)
        return None

    try:
        return look_at_newest(connection, {topic: partitions}, look).get(topic)
    except SchemasUnavailableError as error:
        raise SourceUnreachableError(str(error)) from error


def _schema(schemas: SchemaById | None, key: bytes | None, value: bytes) -> EventSchema | None:
    if schemas is None:
        return json_schema(key, value)
    of_key = None if key is None else schemas(schema_id_of(key, "key"))
    return avro_schema(of_key, schemas(schema_id_of(value, "value")))
