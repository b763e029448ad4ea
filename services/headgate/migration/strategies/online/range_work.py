"""One range of a table as a task of Spark's gets it: which copy is filled, and what must still hold when it is written.

A range is written in one transaction, which first checks, under the rows' locks, whether the copy may still be filled
by this migration (``core/copy_steps.py``).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.databases.address import Target
from headgate.databases.progress import FeedRow
from headgate.migration.core.copy_steps import Position, may_write
from headgate.migration.strategies.contract import CopyPlan, RefusedError, SupersededError
from headgate.migration.strategies.target import target_of

__all__ = ["WRITE_LOCK_SECONDS", "RangeWork", "check_may_write", "position_of"]

WRITE_LOCK_SECONDS: Final = 10
"""For the two rows that are asked whether the range may be written; they are held for no longer than a request."""


class RangeWork(msgspec.Struct, frozen=True):
    """Which copy is filled, and what must still hold when a range of it is written."""

    migration: str
    database: str
    password_file: str | None
    plan: CopyPlan
    owner_rev: int
    attempt: int
    held: Position

    @property
    def target(self) -> Target:
        """Where both tables are."""
        return target_of(self.database, self.password_file)

    @property
    def table_name(self) -> str:
        """What the feed's sink calls the copy."""
        return f"{self.plan.before.schema}.{self.plan.shadow}"


def position_of(feed_id: str, rows: Sequence[FeedRow]) -> Position | None:
    """From a feed's rows of progress for one table; None if there are none."""
    if not rows:
        return None
    offsets = {row.partition: row.next_offset for row in rows}
    return Position(feed_id, offsets, all(row.closed for row in rows), rows[0].topic_id)


def check_may_write(work: RangeWork, memory: tuple[Any, ...] | None, progress: Sequence[FeedRow]) -> None:
    """Both as read under locks: the migration's (owner, attempt, stage), and the rows of the feed into the copy.

    Raises SupersededError, RefusedError.
    """
    if memory != (work.owner_rev, work.attempt, "paused"):
        raise SupersededError(f"the copy is not this owner's to fill any more: {memory}")
    seen = position_of(work.held.feed_id, progress)
    if not may_write(work.held, seen):
        raise RefusedError(
            f"the feed into the copy should be paused at offsets {work.held.offsets} and is not ({seen}): it "
            "was resumed, and rows that it has deleted might come back. Submit the change again"
        )
