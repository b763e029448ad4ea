"""Staged records in parts, so that the driver can divide a batch into several transactions.

A transaction must end before the broker ends it, however slow the target is. Each part therefore states up to where it
goes in the source, and a transaction of some parts moves the positions that far.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headgate.sinks.contract import OffsetRange
from headgate.sinks.kafka.cloud_events import Headers
from headgate.sinks.kafka.records import Record

__all__ = ["PART_BYTES", "Made", "Part", "Transaction", "pack", "transactions", "unpack"]

PART_BYTES: Final = 1 << 20
"""A part is closed at this size: what a transaction has at least, unless its records are larger."""


Made = tuple[int, int, int, bytes | None, Record, Headers | None]
"""Partition and offset of the event that a record was made of, the record's size in bytes, its head, the record, and
its headers. Each change has one, and a named tuple takes five times as long to make."""


class Part(NamedTuple):
    """Records in the order of the log per partition, of whole events. ``reached``: partition → the last offset + 1.

    ``head`` belongs in front of every value. ``headers``: of each record, none at all if records have none.
    """

    head: bytes | None
    reached: dict[int, int]
    size: int
    records: list[Record]
    headers: Sequence[Headers] = ()


class Transaction(NamedTuple):
    """What one transaction writes, and how it moves the positions."""

    ranges: dict[int, OffsetRange]
    parts: list[Part]

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return sum(part.size for part in self.parts)


_decoder: Final = msgspec.msgpack.Decoder(list[Part])


def pack(made: Iterable[Made]) -> bytes:
    """As it travels from task to driver. Never divides the records of one event."""
    return msgspec.msgpack.encode(list(_parts(made)))


def unpack(payload: bytes) -> list[Part]:
    """What ``pack`` packed."""
    return _decoder.decode(payload)


def _parts(made: Iterable[Made]) -> Iterator[Part]:
    head: bytes | None = None
    reached: dict[int, int] = {}
    records: list[Record] = []
    all_headers: list[Headers] = []
    size = 0
    last = (-1, -1)
    for partition, offset, bytes_, own, record, headers in made:
        is_next = last != (partition, offset)
        if records and is_next and (size >= PART_BYTES or (own is not head and own != head)):
            yield Part(head, reached, size, records, all_headers)
            reached, records, all_headers, size = {}, [], [], 0
        if not records:
            head = own
        records.append(record)
        if headers is not None:
            all_headers.append(headers)
        size += bytes_
        reached[partition] = offset + 1
        last = partition, offset
    if records:
        yield Part(head, reached, size, records, all_headers)


def transactions(
    payloads: Sequence[bytes], ranges: Mapping[int, OffsetRange], bytes_max: Callable[[], int]
) -> Iterator[Transaction]:
    """The transactions of a commit: one at least, which may only move positions.

    ``bytes_max``: of the next one, asked for after each part.
    """
    at = {partition: span.expected for partition, span in ranges.items()}
    parts: list[Part] = []
    size = 0
    is_first = True
    for payload in payloads:
        for part in unpack(payload):
            parts.append(part)
            size += part.size
            if size >= bytes_max():
                moved = _moved(at, parts)
                yield Transaction(moved, parts)
                at |= {partition: span.next for partition, span in moved.items()}
                parts, size, is_first = [], 0, False
    rest = {p: OffsetRange(at[p], span.next) for p, span in ranges.items() if is_first or at[p] != span.next}
    if rest:
        yield Transaction(rest, parts)


def _moved(at: Mapping[int, int], parts: Iterable[Part]) -> dict[int, OffsetRange]:
    reached: dict[int, int] = {}
    for part in parts:
        reached |= part.reached
    return {partition: OffsetRange(at[partition], offset) for partition, offset in sorted(reached.items())}
