"""Send again a change that was set aside, and decide whether that is safe.

The record goes to the end of its own source partition and takes the normal way from there: lane, fence, sink. So it
becomes the newest change of its row. That is right only if it already *is* the newest. So the log is searched from
behind the record to the end, and must not contain a record of the same key there (docs/adr/0009). A record without a
key (a TRUNCATE, for example) may concern any row, and an expired stretch may hold anything: both count as a no.

All of this compares offsets, so the topic must still be the one that the record's offset belongs to. A topic that was
re-created has another id, and nothing is sent to it (docs/adr/0067). Nothing is sent to a change log either: only its
ChangeWriters may write there.

Between the search and the send another client may have written the key. The same search afterwards finds that out, and
the newer record is sent again behind ours until nothing newer is between them: the source has the last word.
"""

import json
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError
from headgate.formats.decoding import Decoder, SchemasUnavailableError, UndecodableError
from headgate.sources.offsets import end_offsets
from headgate.sources.records import RecordGoneError, read_stretch
from headgate.sources.topic_ids import TopicReplacedError, topic_id_of, topic_ids

RESENT_HEADER: Final = "headgate.resent"
"""On a record that was sent again: ``<partition>/<offset>`` of the first one, in its own topic."""

REPAIRS_MAX: Final = 5
"""A key that is written in each of five gaps of milliseconds is not to be replayed now."""

ROWS_SHOWN_MAX: Final = 4
"""Keys of rows in a message: a key change has two."""

SEND_SECONDS_MAX: Final = 10.0
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""What fitted on the deadletter topic; the source topic's own limit is asked by the broker."""

_FRAME_BYTES: Final = 5
"""Confluent framing: a zero byte and a schema id, which a new version of a key's schema changes."""


class KeyBusyError(LogError):
    """The source continues to write the key while it is replayed."""


class Verdict(StrEnum):
    """Whether a change may be sent again."""

    FREE = "free"
    RESENT = "resent"
    TOUCHED = "touched"
    UNKNOWN = "unknown"


class SearchResult(msgspec.Struct, frozen=True):
    """The result of searching the log: the verdict, why, and up to which offset it was read."""

    verdict: Verdict
    detail: str
    end: int


class Original(msgspec.Struct, frozen=True):
    """A source record as it was. ``topic_id`` is Kafka's id of the topic that ``offset`` is of, None if not known."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic_id: str | None = None

    @property
    def place(self) -> bytes:
        """The value of RESENT_HEADER for it."""
        return f"{self.partition}/{self.offset}".encode()


def row_key(key: bytes) -> bytes:
    """What of a record's key names the row: JSON without its schema part and in one form, Avro without its frame."""
    if key[:1] == b"\x00" and len(key) > _FRAME_BYTES:
        return key[_FRAME_BYTES:]
    try:
        parsed = json.loads(key, parse_float=str)  # with every digit: a double would make two rows one
    except (ValueError, RecursionError):
        return key
    if isinstance(parsed, dict) and parsed.keys() == {"schema", "payload"}:
        parsed = parsed["payload"]
    return json.dumps(parsed, sort_keys=True).encode()


def look(connection: KafkaConnection, original: Original, change_logs: Mapping[str, str]) -> SearchResult:
    """Whether the row was touched after ``original``. ``change_logs``: topic → name of each change log.

    Raises LogError, SourceError.
    """
    reason = _why_not_there(connection, original, change_logs)
    if reason is not None:
        return _unknown(reason)
    topic = original.topic
    end = end_offsets(connection, {topic: original.partition + 1})[topic][original.partition]
    if original.key is None:
        return _unknown("it has no key, so it is not known which later changes belong to the same row", end)
    try:
        newer = _newer(connection, original, original.offset + 1, end)
    except RecordGoneError as error:
        return _unknown(f"it is not known whether the row was changed since: {error}", end)
    if newer is None:
        return SearchResult(Verdict.FREE, "its row has not been changed since", end)
    if dict(newer.headers() or []).get(RESENT_HEADER) == original.place:
        return SearchResult(Verdict.RESENT, f"it was already sent again, as offset {newer.offset()}", end)
    what = "changed its row" if newer.key() is not None else "has no key and may have changed its row"
    return SearchResult(Verdict.TOUCHED, f"offset {newer.offset()} {what}, which a replay would undo", end)


def _why_not_there(connection: KafkaConnection, original: Original, change_logs: Mapping[str, str]) -> str | None:
    """Why nothing may be sent to the topic, or why its offsets do not apply to the record. None if all is well."""
    topic = original.topic
    if topic in change_logs:
        return (
            f"topic {topic} belongs to change log {change_logs[topic]}, which only a ChangeWriter may write, "
            "because a row may have moved to another partition. Write the row at the source again"
        )
    if original.topic_id is None:
        return (
            f"the record does not have the id of the topic {topic} that its offset belongs to, because an "
            "older Headgate or an older broker wrote it. Write the row at the source again"
        )
    ids = topic_ids(connection, [topic])  # asked for before offsets, see there
    if topic not in ids:
        return f"topic {topic} no longer exists"
    return None if ids[topic] == original.topic_id else _replaced(original, ids[topic])


def _unknown(detail: str, end: int = 0) -> SearchResult:
    return SearchResult(Verdict.UNKNOWN, detail, end)


def _replaced(original: Original, seen: str | None) -> str:
    return (
        f"topic {original.topic} was deleted and created again: its id is {seen}, offset {original.offset} is of "
        f"{original.topic_id}, so later changes of its row are not known. Write the row at the source again"
    )


def why_not_alone(decoder: Decoder, original: Original) -> str | None:
    """Why a record cannot be sent again whatever the log contains for its key; None if it can.

    It must be readable now, else it would be set aside again. And all its changes must be of one row: its key names
    one, and only that one is searched for in the log. (Maxwell's change of a key deletes the row of the old key, which
    may have been created again since; a statement of Canal's may be of many rows.)
    """
    columns = [original.key], [original.value], [original.partition], [original.offset], [0]
    try:
        changes = decoder.decode_batch(*columns)
    except UndecodableError as error:
        return f"it cannot be read, so it would be set aside again: {error}. Write the row at the source again"
    except SchemasUnavailableError as error:
        return f"it is not known whether it can be read: {error}"
    rows = {msgspec.json.encode(change.key, enc_hook=str, order="deterministic").decode() for change in changes}
    if len(rows) > 1:
        return (
            f"it changes {len(rows)} rows, {' and '.join(sorted(rows)[:ROWS_SHOWN_MAX])}: so its key does not show "
            "whether each row was changed since, and it might delete a row that was re-created. Write those rows "
            "at the source again, delete the rows at the sink that the source does not have, and compare with "
            "`headgate verify`"
        )
    return None


def resend(connection: KafkaConnection, original: Original, end: int) -> int:
    """Send a change that ``look`` found free up to ``end``. Return the offset it now has.

    Raises KeyBusyError if its key is being written all the time, TopicReplacedError, TopicMissingError, LogError.
    """
    _check_topic(connection, original, "nothing was sent")
    producer = connection.client(
        Producer,
        client_id="headgate-resend",
        acks="all",
        enable_idempotence=True,
        message_max_bytes=MESSAGE_BYTES_MAX,
    )
    sent = first = _send(connection, producer, original, original)
    for _ in range(REPAIRS_MAX):
        _check_topic(
            connection, original, f"it was sent nevertheless, as offset {sent}. Compare the row with its source"
        )
        newer = _newer(connection, original, end, sent)
        if newer is None:
            return first
        end = sent + 1
        headers = tuple(newer.headers() or [])
        copy = Original(original.topic, original.partition, newer.offset(), newer.key(), newer.value(), headers)
        sent = _send(connection, producer, copy, copy)
    raise KeyBusyError(
        f"{original.topic}[{original.partition}]: the row of offset {original.offset} is being written "
        "continuously. Replay it when the row is quiet, or compare it with the source (`headgate verify`)"
    )


def _check_topic(connection: KafkaConnection, original: Original, so_far: str) -> None:
    """Raise TopicReplacedError unless the topic is still the one of the offset, TopicMissingError if it does not exist.

    Kafka cannot check the id when it takes a record, so a topic may be replaced between a check and the send. The check
    after the send reports it.
    """
    seen = topic_id_of(connection, original.topic)
    if seen != original.topic_id:
        raise TopicReplacedError(f"{_replaced(original, seen)} ({so_far})")


def _newer(connection: KafkaConnection, original: Original, start: int, end: int) -> Message | None:
    """The last record of [start, end) that is, or may be, of the same row; a tombstone only if there is nothing else.

    (Debezium's repeats the delete before it, which counts; compaction leaves the tombstone alone. One directly behind a
    delete is part of that.)
    """
    assert original.key is not None  # noqa: S101 - look() refuses those
    mine, found, tombstone = row_key(original.key), None, None
    for message in read_stretch(connection, original.topic, original.partition, start, end):
        if message.key() is not None and row_key(message.key()) != mine:
            continue
        if message.value() is not None or message.key() is None:
            found = message
        elif message.offset() != original.offset + 1:
            tombstone = message
    return found or tombstone


def _send(connection: KafkaConnection, producer: Producer, record: Original, of: Original) -> int:
    headers = [(name, value) for name, value in record.headers if name != RESENT_HEADER]
    reports: list[tuple[KafkaError | None, int | None]] = []
    producer.produce(
        record.topic,
        record.value,
        record.key,
        record.partition,
        headers=[*headers, (RESENT_HEADER, of.place)],
        on_delivery=lambda error, message: reports.append((error, message.offset())),
    )
    deadline = time.monotonic() + SEND_SECONDS_MAX
    while not reports and time.monotonic() < deadline:
        producer.poll(deadline - time.monotonic())
    if not reports:
        raise connection.unreachable(f"sending to {record.topic}[{record.partition}] was not acknowledged")
    error, offset = reports[0]
    if error is not None or offset is None:
        raise connection.failed(f"sending to {record.topic}", KafkaException(error))
    return offset
