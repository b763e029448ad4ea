"""The database that a topic's changes come from, according to Debezium's ``source`` block.

It names connector, database, schema and table, but no server: two servers may have databases and tables of the same
names, so this alone proves nothing (the owner asks the sink as well). Only the last records of each partition are read.
Topics without a ``source`` block, and other formats, show no origin.
"""

from collections.abc import Callable, Mapping

import msgspec

from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import DATA_ERRORS
from headgate.records.identifiers import parse_identifier, show_identifier
from headgate.sources.newest import look_at_newest


class Origin(msgspec.Struct, frozen=True):
    """A source table: "postgresql", its database, "schema.table" (or the table alone, if schemas do not exist)."""

    connector: str
    database: str
    table: str

    @property
    def in_full(self) -> str:
        """The table with its schema, or with its database if that has no schemas."""
        parts = parse_identifier(self.table)
        return self.table if len(parts) > 1 else show_identifier((self.database, *parts))


class _Source(msgspec.Struct):
    connector: str
    db: str
    table: str
    schema: str | None = None


class _Envelope(msgspec.Struct):
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Envelope


def origins(
    connection: KafkaConnection, topics: Mapping[str, int], look: Callable[[bytes | None], Origin | None] | None = None
) -> dict[str, Origin]:
    """Topic → the table its changes come from, if a last record names it. ``topics``: topic → number of partitions.

    ``look`` reads one record, instead of ``origin_of``. Raises SourceUnreachableError, and what ``look`` does.
    """
    read = look or origin_of
    return look_at_newest(connection, topics, lambda _topic, _key, value: read(value))


def origin_of(value: bytes | None) -> Origin | None:
    """The origin that one record names; None if it names none."""
    source = _source(value or b"")
    if source is None:
        return None
    table = show_identifier([part for part in (source.schema, source.table) if part is not None])
    return Origin(source.connector, source.db, table)


def _source(value: bytes) -> _Source | None:
    try:
        return msgspec.json.decode(value, type=_Envelope).source
    except DATA_ERRORS:
        pass
    try:
        return msgspec.json.decode(value, type=_Wrapped).payload.source
    except DATA_ERRORS:
        return None
