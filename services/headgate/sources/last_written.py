"""How far a connector has come in its database's log, by the newest changes that it has written to a feed's topics.

A connector writes changes in the order of their commits. So a change that was committed after some moment shows that
everything committed before that moment is in the topics as well.

While a connector copies tables (its snapshot), it does not read the log. However long it writes nothing then, it is not
done: only the snapshot's last row, a change from the log, or a heartbeat shows that the snapshot is over.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Final

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headgate.config.source_spec import SourceSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import Partition
from headgate.formats.change import DATA_ERRORS, source_time
from headgate.formats.debezium_avro import Fields
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import registry_of
from headgate.formats.snapshot_markers import IN_THE_STREAM, LAST
from headgate.sources.newest import LOOK_SECONDS_MAX, read_newest
from headgate.sources.offsets import end_offsets, start_offsets

__all__ = ["LastWritten", "last_written"]

_READ: Final = "r"
"""A row that a snapshot has read: its time is that of the reading, and shows nothing about the log."""

_PATHS: Final = (("op",), ("source", "ts_ms"), ("source", "snapshot"))

_COPYING: Final = (
    "the newest record of the feed's topics is a row of the connector's snapshot, and not its last one. The connector "
    "may still be copying rows, and its heartbeats (heartbeat.interval.ms) show nothing yet"
)
_NOTHING_WRITTEN: Final = "the connector has not written anything to the feed's topics yet"


class _Phase(IntEnum):
    """What a connector was doing when it wrote a record, in the order in which it does that."""

    COPYING = 0
    COPIED = 1
    STREAMING = 2


class LastWritten(msgspec.Struct, frozen=True):
    """What the newest records of some topics show; times in ms since 1970, None where no record has one.

    ``commit_ms``: when the newest change was committed, by the database's clock. ``append_ms``: when the newest record
    was written, of any kind. ``delay_ms``: how long after its commit the change that was written last was written;
    None if a snapshot's row was written after it, which shows no delay.

    ``unread``: why these are not the newest records, as a clause; empty if they are. ``copying``: why the connector may
    be in its snapshot, or before it, unless it sends heartbeats, as a clause; empty if it is not.
    """

    commit_ms: int | None = None
    append_ms: int | None = None
    delay_ms: int | None = 0
    unread: str = ""
    copying: str = ""


def last_written(
    connection: KafkaConnection, source: SourceSpec, topics: Mapping[str, int], *, has_snapshot: bool
) -> LastWritten:
    """Of a feed's topics. ``topics``: topic → number of partitions. Raises SourceError.

    ``has_snapshot``: the topics begin with the connector's snapshot, so that it must write to them.
    """
    newest = _Newest(source)
    unread = read_newest(connection, topics, newest.take)
    if unread:
        why = f"{len(unread)} partitions of the feed's topics were not read to their ends in {LOOK_SECONDS_MAX:g} s"
        return msgspec.structs.replace(newest.found, unread=why)
    if has_snapshot and newest.found.append_ms is None and not _is_emptied(connection, topics):
        return msgspec.structs.replace(newest.found, copying=_NOTHING_WRITTEN)
    return newest.found


def _is_emptied(connection: KafkaConnection, topics: Mapping[str, int]) -> bool:
    """Whether the topics had records, all of which have been deleted since. Raises SourceError."""
    begins, ends = start_offsets(connection, topics, "earliest"), end_offsets(connection, topics)
    return begins == ends and any(any(ends[topic].values()) for topic in topics)


class _Newest:
    """Takes records one by one."""

    def __init__(self, source: SourceSpec) -> None:
        registry = registry_of(source)
        self._fields = None if registry is None else Fields(registry.schema, _PATHS)
        self.found = LastWritten()
        self._change_append_ms = -1
        self._delay_ms = 0
        self._phase = (-1, _Phase.STREAMING)
        """When the newest event was written, and what its connector was doing then."""

    def take(self, _at: Partition, message: Message) -> None:
        """One more record."""
        kind, append_ms = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            return
        found = self.found
        found = msgspec.structs.replace(found, append_ms=max(append_ms, found.append_ms or 0))
        commit_ms, phase = self._event(message.value())
        if phase is not None:
            self._phase = max(self._phase, (append_ms, phase))
        if commit_ms is not None:
            found = msgspec.structs.replace(found, commit_ms=max(commit_ms, found.commit_ms or 0))
            if append_ms >= self._change_append_ms:
                self._change_append_ms = append_ms
                self._delay_ms = max(append_ms - commit_ms, 0)
        phase = self._phase[1]
        self.found = msgspec.structs.replace(
            found,
            delay_ms=self._delay_ms if phase is _Phase.STREAMING else None,
            copying=_COPYING if phase is _Phase.COPYING else "",
        )

    def _event(self, value: bytes | None) -> tuple[int | None, _Phase | None]:
        """When a change was committed, None for a record that does not contain it; None if it is not an event."""
        if not value:
            return None, None
        with suppress(SchemasUnavailableError, *DATA_ERRORS):
            op, ms, snapshot = _in_json(value) if self._fields is None else self._fields(value)
            if op != _READ:
                return source_time(ms), _Phase.STREAMING
            if snapshot in IN_THE_STREAM:
                return None, _Phase.STREAMING
            return None, _Phase.COPIED if snapshot == LAST else _Phase.COPYING
        return None, None


class _Source(msgspec.Struct):
    ts_ms: int | None = None
    snapshot: str | bool | None = None


class _Envelope(msgspec.Struct):
    op: str
    source: _Source


class _Wrapped(msgspec.Struct):
    payload: _Envelope


def _in_json(value: bytes) -> tuple[str, int | None, str | bool | None]:
    """With or without its schema beside it. Raises msgspec.MsgspecError."""
    try:
        envelope = msgspec.json.decode(value, type=_Wrapped).payload
    except msgspec.ValidationError:
        envelope = msgspec.json.decode(value, type=_Envelope)
    return envelope.op, envelope.source.ts_ms, envelope.source.snapshot
