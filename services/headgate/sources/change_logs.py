"""Change logs as feeds see them: a topic whose partitions are given to streams that follow each other.

generation/changelog (core/bounds.py) decides what a change log is, and how far its partitions may be read. This module
asks what a feed's source needs to know, and reports what is wrong with it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from headgate.records.control import Positions
from headgate.sources.offsets import SourceError


class ChangeLogMissingError(SourceError):
    """The change log named in ``source.change_log`` does not exist."""

    code = "change_log_missing"


class ChangeLogUnavailableError(SourceError):
    """The topic generation cannot be read now, or does not contain yet what a feed needs."""

    code = "change_log_unavailable"
    retryable = True


class ChangeLogGapError(SourceError):
    """A stream was retired before the feed had read it: the order of what is left of it is not known any more."""

    code = "change_log_gap"


class NotAChangeLogError(SourceError):
    """A topic whose keys move between its partitions, named as if they did not."""

    code = "source_is_change_log"


class ChangeLogSeen(msgspec.Struct, frozen=True):
    """A change log's topic, and where the oldest stream begins on each partition that has one."""

    topic: str
    partitions: int
    starts: Positions


class ChangeLogs(Protocol):
    """What the coordinator asks of generations. Each raises ChangeLogMissingError, ChangeLogUnavailableError."""

    def look(self, name: str) -> ChangeLogSeen:
        """The change log ``name`` as it is now."""
        ...

    def names_by_topic(self) -> Mapping[str, str]:
        """Topic → name of each change log; empty where there is none."""
        ...

    def report(self, name: str, reader: str, positions: Positions) -> None:
        """Let nothing be retired that ``reader``, at ``positions`` by partition, has yet to read."""
        ...

    def forget(self, name: str, reader: str) -> None:
        """Nothing has to wait for ``reader`` any more."""
        ...


def reader_of_feed(feed: str) -> str:
    """As whom a feed is registered."""
    return f"feed.{feed}"
