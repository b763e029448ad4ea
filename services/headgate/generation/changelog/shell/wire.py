"""The records on a change log's topics: changes, END markers, and writers' positions.

A change is written as it was given: its key, its value, and two headers of Headgate, its writer and its position at the
source. An END marker has no key, and headers that name the switch and the writer. ``<topic>.positions`` is compacted,
with a record per writer that is written in the same transaction as the changes that it covers.
"""

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from headgate.generation.changelog.core.outbox import Written
from headgate.generation.changelog.core.reading import Marker

WRITER: Final = "headgate-writer"
POSITION: Final = "headgate-position"
END: Final = "headgate-end"

OURS: Final = frozenset({WRITER, POSITION, END})

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest record of a change log, with Kafka's overhead: ``max.message.bytes`` of topics that Headgate creates, and
the limit of every client that writes to one. Kafka's own default, 1 MB, is less than what a source topic may hold."""

POSITIONS_PARTITIONS: Final = 4
"""A writer that starts reads one of them: a killed neighbour's open transaction holds up a quarter of the others."""

_NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")
"""The form of a signed 64-bit number. A longer one would take long to parse, and no writer writes one."""

Headers = Sequence[tuple[str, bytes | None]]


class NotOursError(ValueError):
    """A record without Headgate's headers: another client writes to the change log's topic."""


class ReservedHeaderError(ValueError):
    """A change comes with a header whose name Headgate reserves: it would describe the change wrongly."""


def check_headers(headers: Headers) -> None:
    """Raises ReservedHeaderError unless a change may come with these."""
    reserved = sorted({name for name, _ in headers if name in OURS})
    if reserved:
        raise ReservedHeaderError(
            f"a change must not have the header {', '.join(reserved)}: it is a change log's own. Is its source a "
            "change log?"
        )


def given_headers(headers: Headers | None) -> tuple[tuple[str, bytes | None], ...]:
    """Those that a change came with, in their order."""
    return tuple((name, value) for name, value in headers or () if name not in OURS)


def positions_topic(topic: str) -> str:
    """The topic that holds the positions of a change log's writers."""
    return f"{topic}.positions"


def positions_partition(writer: str) -> int:
    """The partition of that topic that holds a writer's position."""
    return crc32(writer.encode()) % POSITIONS_PARTITIONS


def change_headers(writer: str, position: int) -> list[tuple[str, bytes]]:
    """Of a change."""
    return [(WRITER, writer.encode()), (POSITION, str(position).encode())]


def end_headers(writer: str, epoch: int, position: int) -> list[tuple[str, bytes]]:
    """Of an END marker: the writer has written nothing above ``position`` before it."""
    return [(END, str(epoch).encode()), *change_headers(writer, position)]


def marker_in(headers: Headers | None) -> Marker | None:
    """The END marker that a record is; None for a change. Raises NotOursError."""
    found = dict(headers or ())
    if END not in found:
        return None
    return Marker(_number(END, found[END]), writer_in(headers)[0])


def writer_in(headers: Headers | None) -> tuple[str, int]:
    """The writer of a record, and its position. Raises NotOursError."""
    found = dict(headers or ())
    writer, position = found.get(WRITER), found.get(POSITION)
    if writer is None or position is None:
        raise NotOursError(f"the record does not have the headers {WRITER} and {POSITION}, so no ChangeWriter wrote it")
    try:
        return writer.decode(), _number(POSITION, position)
    except UnicodeDecodeError as error:
        raise NotOursError(f"header {WRITER} is not UTF-8, so no ChangeWriter wrote the record") from error


def _number(name: str, value: bytes | None) -> int:
    if value is None or _NUMBER.fullmatch(value) is None:
        raise NotOursError(f"header {name} is not a decimal number, so no ChangeWriter wrote the record")
    return int(value)


def encode_written(written: Written) -> bytes:
    """A writer's position, as it is stored on the topic of positions."""
    return msgspec.json.encode(written)


def decode_written(value: bytes | None) -> Written:
    """And back. Raises NotOursError."""
    if value is None:
        return Written()
    try:
        return msgspec.json.decode(value, type=Written)
    except msgspec.DecodeError as error:
        raise NotOursError(f"a writer's position cannot be read: {error}") from error
