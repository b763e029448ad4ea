"""How far a connector has come in its database's log, by the newest changes that it has written to a feed's topics.

A connector writes changes in the order of their commits. So a change that was committed after some moment shows that
everything committed before that moment is in the topics as well.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headgate.config.source_spec import SourceSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import Partition
from headgate.formats.change import DATA_ERRORS, source_time
from headgate.formats.debezium_avro import Fields
from headgate.formats.decoding import SchemasUnavailableError
from headgate.sources.newest import read_newest
from headgate.sources.registry import SchemaRegistry

__all__ = ["LastWritten", "last_written"]

_READ: Final = "r"
"""A row that a snapshot has read: its time is that of the reading, and shows nothing about the log."""

_PATHS: Final = (("op",), ("source", "ts_ms"))


class LastWritten(msgspec.Struct, frozen=True):
    """What the newest records of some topics show; times in ms since 1970, None where no record has one.

    ``commit_ms``: when the newest change was committed, by the database's clock. ``append_ms``: when the newest record
    was written, of any kind. ``delay_ms``: how long after its commit the change that was written last was written.
    """

    commit_ms: int | None = None
    append_ms: int | None = None
    delay_ms: int = 0


def last_written(connection: KafkaConnection, source: SourceSpec, topics: Mapping[str, int]) -> LastWritten:
    """Of a feed's topics. ``topics``: topic → number of partitions. Raises SourceUnreachableError."""
    newest = _Newest(source)
    read_newest(connection, topics, newest.take)
    return newest.found


class _Newest:
    """Takes records one by one."""

    def __init__(self, source: SourceSpec) -> None:
        registry = source.registry
        self._fields = None if registry is None else Fields(SchemaRegistry(registry).schema, _PATHS)
        self.found = LastWritten()
        self._change_append_ms = -1

    def take(self, _at: Partition, message: Message) -> None:
        """One more record."""
        kind, append_ms = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            return
        found = self.found
        found = msgspec.structs.replace(found, append_ms=max(append_ms, found.append_ms or 0))
        if (commit_ms := self._committed(message.value())) is not None:
            found = msgspec.structs.replace(found, commit_ms=max(commit_ms, found.commit_ms or 0))
            if append_ms >= self._change_append_ms:
                self._change_append_ms = append_ms
                found = msgspec.structs.replace(found, delay_ms=max(append_ms - commit_ms, 0))
        self.found = found

    def _committed(self, value: bytes | None) -> int | None:
        """When a change was committed; None for a record that does not contain it."""
        if not value:
            return None
        with suppress(SchemasUnavailableError, *DATA_ERRORS):
            op, ms = _in_json(value) if self._fields is None else self._fields(value)
            return None if op == _READ else source_time(ms)
        return None


class _Source(msgspec.Struct):
    ts_ms: int | None = None


class _Envelope(msgspec.Struct):
    op: str
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Envelope


def _in_json(value: bytes) -> tuple[str, int | None]:
    """With or without its schema beside it. Raises msgspec.MsgspecError."""
    try:
        envelope = msgspec.json.decode(value, type=_Wrapped).payload
    except msgspec.ValidationError:
        envelope = msgspec.json.decode(value, type=_Envelope)
    return envelope.op, envelope.source.ts_ms
