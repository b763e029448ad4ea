"""What a service that copies keyed topics into a change log has to know of them: whose writer, and what it refuses.

A partition of an input topic is one source, so it is one writer of the change log, whichever process reads it.
"""

import re
from typing import Final, Self

import msgspec

__all__ = ["Place", "PlaceError", "keyless", "writer_of"]

_PLACE: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>[0-9]+)/(?P<offset>[0-9]+)")


class PlaceError(ValueError):
    """A text that names no record."""


class Place(msgspec.Struct, frozen=True, order=True):
    """One record of an input topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of "topic/partition/offset". Raises PlaceError."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise PlaceError(f"{text!r} names no record: write TOPIC/PARTITION/OFFSET, as in shop.orders/3/1204")
        return cls(found["topic"], int(found["partition"]), int(found["offset"]))


def writer_of(name: str, topic: str, partition: int, topic_id: str | None) -> str:
    """The id of the writer of one input partition. A topic that was deleted and made again is another source."""
    return ".".join((name, topic, str(partition), topic_id or "unknown"))


def keyless(place: Place) -> str:
    """What is said of a record without a key."""
    return (
        f"topic {place.topic}, partition {place.partition}, offset {place.offset}: the record has no key, so no order "
        f"can be kept for it; nothing behind it was written. Let its producer give a key; to leave this record out, "
        f"start with --skip {place}"
    )
