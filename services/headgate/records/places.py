"""The name of one record of a topic, as people write it: ``topic/partition/offset``."""

import re
from typing import Final, Self

import msgspec

_PLACE: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>[0-9]{1,10})/(?P<offset>[0-9]{1,19})")


class PlaceError(ValueError):
    """A text that does not name a record."""


class LogPosition(msgspec.Struct, frozen=True, order=True):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The record that "topic/partition/offset" names. Raises PlaceError."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise PlaceError(
                f"{text!r} does not name a record. Write TOPIC/PARTITION/OFFSET, for example shop.orders/3/1204"
            )
        return cls(found["topic"], int(found["partition"]), int(found["offset"]))
