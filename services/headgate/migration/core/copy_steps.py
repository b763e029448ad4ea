"""The next step of an online change, from the state of the database, the feed and the log.

The copy of the table gets its rows in two ways, one after the other, never both at once:

    1. the feed into the copy is started, seen to deliver this table's changes, and paused: it has a position
    2. every row of the table is read, later than that position, and written to the copy
    3. the feed resumes from its position: every change since is applied again, in the log's order
    4. once it is past everything that was read, it is paused again, and unique keys beside the primary one are added

Step 3 makes up for everything that happened during step 2. A row that was read is at least as new as the position;
whatever happened to it since is in the log after the position and is applied afterwards, so its last change decides.
Three things must hold, and each is checked where it matters:

- The feed stays sealed at one position from before the first read until after the last write. Otherwise a delete may be
  applied before the row that it deletes is written. Each write checks this (``may_write``).
- What is in the log before the position is visible to every read. PostgreSQL may write a transaction to its log before
  other sessions see it, so the owner waits for those that have written the table when the feed has stopped.
- No range is written late, by a task that no owner waits for any more. Each write checks the migration's owner, its
  attempt, and whether rows are still being copied.

Until step 3 is past everything that was read, rows of the copy are of different moments: a unique key over other
columns than the primary one could be violated on the way. So the copy has none of these before step 4. From then on the
copy is the table as it was at one position of the log, and what the table's unique keys allow, the copy's allow too.

A topic of several partitions has one position for each. All changes of a row are in one of them, in order, so the above
holds for every single row. Rows of different partitions are of different moments even then. If one partition is ahead,
a row may get a value that another row had before it, by a change that is not applied yet: that change can never be
applied. So a table has either several partitions or unique keys beside the primary one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

CopyStage = Literal["begun", "paused", "copied", "level", "keyed", "returning"]
"""As the database remembers it: the copy was made; the feed's position is known; every row was written; the feed has
come past all that was read; the unique keys were added (both only where there are such).

``returning``: the copy is the table that an earlier change has replaced. It has every row, as of the moment in which it
was replaced; a feed that begins with the first change after that moment makes up for the rest.
"""


class FeedSeen(StrEnum):
    """The state of the feed into the copy.

    ``going``: it runs, starts or stops. ``failed``: it has given up, or is held by an error that does not pass by
    itself (a value that the copy cannot hold).
    """

    ABSENT = "absent"
    GOING = "going"
    STOPPED = "stopped"
    FAILED = "failed"


class CopyStep(StrEnum):
    """What is done next."""

    CREATE = "create"
    PROVE = "prove"
    """See a change of the table arrive in the copy, then pause the feed."""
    HOLD = "hold"
    """Wait for the transactions that write the table now, and remember the position."""
    COPY = "copy"
    RESUME = "resume"
    CATCH_UP = "catch up"
    PAUSE = "pause"
    ADD_KEYS = "add keys"
    END = "end"
    """The migration cannot continue: the feed has failed, or another client has moved it."""


class Position(msgspec.Struct, frozen=True):
    """A feed's position in the topic, as the sink has it: partition → next offset. ``is_closed``: all of them are.

    ``topic_id`` is Kafka's id of the topic that the offsets belong to, None if it is not known.
    """

    feed_id: str
    offsets: dict[int, int]
    is_closed: bool
    topic_id: str | None = None

    def is_behind(self, reached: Mapping[int, int], topic_id: str | None) -> bool:
        """Whether something below ``reached`` (partition → next offset of topic ``topic_id``) is still to be applied.

        Offsets of a topic that was deleted and re-created cannot be compared, so a position in the other one is behind.
        """
        if None not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            return True
        return any(self.offsets.get(partition, -1) < offset for partition, offset in reached.items())


_STEPS: Final[dict[tuple[CopyStage, FeedSeen], CopyStep]] = {
    ("begun", FeedSeen.ABSENT): CopyStep.CREATE,
    ("begun", FeedSeen.GOING): CopyStep.PROVE,
    ("begun", FeedSeen.STOPPED): CopyStep.HOLD,
    ("paused", FeedSeen.STOPPED): CopyStep.COPY,
    ("copied", FeedSeen.STOPPED): CopyStep.RESUME,
    ("copied", FeedSeen.GOING): CopyStep.CATCH_UP,
    ("returning", FeedSeen.ABSENT): CopyStep.CREATE,
    ("returning", FeedSeen.STOPPED): CopyStep.RESUME,
    ("returning", FeedSeen.GOING): CopyStep.CATCH_UP,
    ("level", FeedSeen.GOING): CopyStep.PAUSE,
    ("level", FeedSeen.STOPPED): CopyStep.ADD_KEYS,
    ("keyed", FeedSeen.STOPPED): CopyStep.RESUME,
    ("keyed", FeedSeen.GOING): CopyStep.CATCH_UP,
}
"""Any other pair cannot continue: the feed has failed, is gone, or runs while it must be stopped."""


def next_step(stage: CopyStage, feed: FeedSeen) -> CopyStep:
    """The next step; it is the same for the owner that started the migration and for one that takes over."""
    return _STEPS.get((stage, feed), CopyStep.END)


def may_write(held: Position, seen: Position | None) -> bool:
    """Whether a range may be written now: the feed is sealed, where it was when the first row was read."""
    return seen is not None and seen.is_closed and (seen.feed_id, seen.offsets) == (held.feed_id, held.offsets)
