"""Changes as records of a target topic: flat JSON, one object with the row's columns, and a tombstone for a delete."""

import math
from decimal import Decimal
from typing import Final

import msgspec

from headgate.formats.change import ABSENT, Change, ChangeError, Operation

__all__ = ["BY_KEY", "Record", "encoded", "pack", "unpack"]

BY_KEY: Final = -1
"""In place of a partition: the producer chooses it, by the key."""

Record = tuple[int, bytes, bytes | None]
"""Partition (or BY_KEY), key and value; no value is a tombstone."""

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encoded(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of a change. Raises ChangeError for what a flat record cannot express."""
    if change.operation is Operation.TRUNCATE:
        raise ChangeError(
            "TRUNCATE cannot be written to a topic as flat JSON. Keep it out of the source topic (Debezium: "
            "skipped.operations=t)"
        )
    if not change.key:
        raise ChangeError("the event has no key, and without one readers cannot find the row that a record replaces")
    key = _json(change.key)
    if change.row is None:
        return key, None
    absent = [column for column, value in change.row.items() if value is ABSENT]
    if absent:
        raise ChangeError(
            f"the event leaves out column {absent[0]}, which has not changed, and a topic has no row to take it from. "
            "Let the source send whole rows (PostgreSQL: REPLICA IDENTITY FULL), or exclude the column"
        )
    return key, _json(change.row)


def _json(row: dict[str, object]) -> bytes:
    """As Kafka Connect's JSON converter writes values: decimals as numbers, bytes in base64, NaN as a text."""
    if any(type(value) in _UNUSUAL for value in row.values()):
        row = {column: _plain(value) for column, value in row.items()}
    try:
        return _encode(row)
    except OverflowError:  # an integer beyond 64 bits, which the encoder takes as a decimal only
        return _encode(_plain(row))


_UNUSUAL: Final = frozenset({float, list, dict})
"""Types of values that may contain a number that JSON does not have."""

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


def pack(records: list[Record]) -> bytes:
    """As it travels from task to driver."""
    return msgspec.msgpack.encode(records)


def unpack(payload: bytes) -> list[Record]:
    """What ``pack`` packed."""
    return _decoder.decode(payload)
