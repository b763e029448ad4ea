"""Records as bytes and back, with this installation's schemas."""

from headgate.eventlog.codec import Codec
from headgate.eventlog.schema_files import schemas
from headgate.records.base import Fact, Key, Record


def encode(fact: Fact) -> tuple[bytes, bytes | None]:
    """Key and value as they are written to Kafka."""
    return Codec(schemas()).encode(fact)


def decode(topic: str, key: bytes | None, value: bytes | None) -> tuple[Key, Record | None]:
    """A key and a record read from ``topic``. Raises CodecGarbage."""
    return Codec(schemas()).decode(topic, key, value)
