"""Changes to set aside, as a task knows them and as they travel to the driver."""

from typing import NamedTuple

import msgspec

__all__ = ["BadChange", "Original", "SetAside"]


class BadChange(msgspec.Struct, frozen=True):
    """One change to set aside, and why; ``unreadable``: it does not name its table, which is one of several."""

    partition: int
    offset: int
    code: str
    reason: str
    unreadable: bool = False


class Original(NamedTuple):
    """A record as it came from the log; ``headers`` in the order in which they were written."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    append_ms: int


class SetAside(msgspec.Struct, frozen=True):
    """A bad change with the record it came as, and the name of the table under which it is kept."""

    table: str
    bad: BadChange
    original: Original
