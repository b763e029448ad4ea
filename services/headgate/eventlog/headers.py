"""Headers of control records: the writer and, optionally, CloudEvents.

CloudEvents' Kafka binding in its binary mode: attributes are headers ``ce_…``, the content type is the header that
every record of Headgate has, and the value stays as it is. A tombstone marks a key as deleted: it has no event type. No
part of Headgate reads a header.
"""

import datetime
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from uuid import UUID

from confluent_kafka import Message

from headgate.eventlog.codec import CONTENT_TYPE
from headgate.eventlog.log import Placed

Header = tuple[str, bytes]

SPEC_VERSION: Final = "1.0"

TYPE_PREFIX: Final = "headgate."

TIMES_MAX: Final = 256
"""Texts of times that are remembered: changes of one source transaction have the same."""

WRITER: Final = "writer"
"""The header that names who wrote a record."""


def plain(writer: str, placed: Placed) -> list[Header]:
    """Who wrote it, and what the value is."""
    named = [(WRITER, writer.encode())]
    return named if placed.fact.value is None else [*named, ("content-type", CONTENT_TYPE.encode())]


def is_of(writer: str, message: Message) -> bool:
    """Whether a record is the writer's."""
    return dict(message.headers() or ()).get(WRITER) == writer.encode()


def cloud_event(writer: str, cluster: str, placed: Placed, *, event: UUID, now_ms: int) -> list[Header]:
    """The attributes of CloudEvents 1.0: source and id name the event, type the record, subject its key."""
    if placed.fact.value is None:
        return []
    attributes = {
        "id": str(event),
        "source": f"/headgate/{cluster}/{writer}",
        "type": f"{TYPE_PREFIX}{type(placed.fact.value).__name__}",
        "subject": placed.fact.key.text(),
    }
    return binary_headers(attributes, now_ms)


def binary_headers(attributes: Mapping[str, str], time_ms: int | None) -> list[Header]:
    """Attributes as headers, with the version of CloudEvents, and the time (ms since 1970) unless it is unknown."""
    given = {"specversion": SPEC_VERSION, **attributes}
    if time_ms is not None:
        given["time"] = time_text(time_ms)
    return [(f"ce_{name}", value.encode()) for name, value in sorted(given.items())]


@lru_cache(TIMES_MAX)
def time_text(time_ms: int) -> str:
    """A time as CloudEvents has it."""
    when = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    return when.replace("+00:00", "Z")
