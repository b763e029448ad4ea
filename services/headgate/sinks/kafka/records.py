"""Changes as records of a target topic, in two formats. Avro is in avro.py.

- ``flat``: JSON, one object with the row's columns, and a tombstone for a delete.
- ``debezium``: the event as it came, key and value byte for byte, with its schema if it has one. A delete is followed
  by a tombstone, as Debezium's connectors write it. Where the feed's options shape rows, the envelope is written again
  and has no schema: ``after``, ``op`` and the key are the shaped change's, ``source`` and ``ts_ms`` are the event's.
  ``before``, which may hold what must not go to the sink, is the key of a delete and else null.
"""

import math
from decimal import Decimal
from typing import Final

import msgspec

from headgate.formats.change import ABSENT, Absent, Change, ChangeError, Operation, Row
from headgate.formats.debezium_schema import OPENING
from headgate.sinks.contract import Events

__all__ = ["BY_KEY", "Encoded", "Record", "check_expressible", "check_whole", "enveloped", "flat"]

BY_KEY: Final = -1
"""In place of a partition: the producer chooses it, by the key."""

Record = tuple[int, bytes | None, bytes | None]
"""Partition (or BY_KEY), key and value; no value is a tombstone."""

Encoded = tuple[bytes | None, bytes | None, bytes | None]
"""Key, value, and the value's head if it was cut off (formats/debezium_schema.with_head)."""

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class _Envelope(msgspec.Struct, gc=False):
    op: str
    source: msgspec.Raw = msgspec.Raw(b"null")
    ts_ms: msgspec.Raw = msgspec.Raw(b"null")


class _Wrapped(msgspec.Struct, gc=False):
    payload: _Envelope


_envelope: Final = msgspec.json.Decoder(_Envelope)
_wrapped: Final = msgspec.json.Decoder(_Wrapped)


def flat(change: Change) -> list[Encoded]:
    """The records of a change. Raises ChangeError for what they cannot express."""
    check_expressible(change)
    return [(_json(change.key), None if change.row is None else _json(change.row), None)]


def enveloped(change: Change, events: Events) -> list[Encoded]:
    """The same with Debezium's envelopes."""
    check_expressible(change)
    key, value, head = events.of(change.partition, change.offset)
    if events.are_shaped:
        key = _json(change.key)
        value, head = None if value is None else _shaped(change, value), None
    if value is None:
        return [(key, None, None)]
    return [(key, value, head), (key, None, None)] if change.row is None else [(key, value, head)]


def _shaped(change: Change, value: bytes) -> bytes:
    event = _wrapped.decode(value).payload if value.startswith(OPENING) else _envelope.decode(value)
    if change.row is None:
        before, after, op = _json(change.key), b"null", "d"
    else:
        before, after, op = b"null", _json(change.row), event.op
    return b'{"before":%b,"after":%b,"source":%b,"op":"%b","ts_ms":%b,"transaction":null}' % (
        before,
        after,
        bytes(event.source),
        op.encode(),
        bytes(event.ts_ms),
    )


def check_expressible(change: Change) -> None:
    """Raise ChangeError for what no topic of rows can express."""
    if change.operation is Operation.TRUNCATE:
        raise ChangeError(
            "TRUNCATE cannot be written to a topic, whose readers know rows only. Keep it out of the source topic "
            "(Debezium: skipped.operations=t)"
        )
    if not change.key:
        raise ChangeError("the event has no key, and without one readers cannot find the row that a record replaces")


def _json(row: Row) -> bytes:
    """As Kafka Connect's JSON converter writes values: decimals as numbers, bytes in base64, NaN as a text.

    Raises ChangeError for a row that is not whole.
    """
    if not _UNUSUAL.isdisjoint(map(type, row.values())):
        check_whole(row)
        row = {column: _plain(value) for column, value in row.items()}
    try:
        return _encode(row)
    except OverflowError:  # an integer beyond 64 bits, which the encoder takes as a decimal only
        return _encode(_plain(row))


def check_whole(row: Row) -> None:
    """Raise ChangeError for a row that lacks columns which have not changed."""
    absent = [column for column, value in row.items() if value is ABSENT]
    if absent:
        raise ChangeError(
            f"the event leaves out column {absent[0]}, which has not changed, and a topic has no row to take it from. "
            "Let the source send whole rows (PostgreSQL: REPLICA IDENTITY FULL), or exclude the column"
        )


_UNUSUAL: Final = frozenset({float, list, dict, Absent})
"""Types of values that may contain a number that JSON does not have, and the one of a value that is not known."""

_INT64_MIN: Final = -(1 << 63)
_UINT64_MAX: Final = (1 << 64) - 1


def _plain(value: object) -> object:
    if type(value) is int and not _INT64_MIN <= value <= _UINT64_MAX:
        return Decimal(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value
