"""One range of a table as a task of Spark's gets it: which copy is filled, and what must still hold when it is written.

A range is written in one transaction, which first looks, under the rows' locks, whether the copy is still this one's
to fill (``core/copy_steps.py``).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.databases.address import Target
from headgate.migration.core.copy_steps import Position, may_write
from headgate.migration.strategies.contract import Plan, RefusedError, SupersededError
from headgate.migration.strategies.target import target_of

__all__ = ["WRITE_LOCK_SECONDS", "RangeWork", "check_may_write", "position_of"]

WRITE_LOCK_SECONDS: Final = 10
"""For the two rows that are asked whether the range may be written; nobody holds them for longer than a request."""


class RangeWork(msgspec.Struct, frozen=True):
    """Which copy is filled, and what must still hold when a range of it is written."""

    migration: str
    database: str
    password_file: str | None
    plan: Plan
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


def position_of(rows: Sequence[tuple[Any, ...]]) -> Position | None:
    """From a feed's rows of progress for one table: (feed id, partition, next offset, closed, topic id).

    None: there are no rows.
    """
    if not rows:
        return None
    feed_id, _, _, _, topic_id = rows[0]
    return Position(feed_id, {row[1]: row[2] for row in rows}, all(row[3] for row in rows), topic_id)


def check_may_write(work: RangeWork, memory: tuple[Any, ...] | None, progress: Sequence[tuple[Any, ...]]) -> None:
    """Both as read under locks: the migration's (owner, attempt, stage); the feed's rows (see ``position_of``).

    Raises SupersededError, RefusedError.
    """
    if memory != (work.owner_rev, work.attempt, "paused"):
        raise SupersededError(f"the copy is not this owner's to fill any more: {memory}")
    seen = position_of(progress)
    if not may_write(work.held, seen):
        raise RefusedError(
            f"the feed into the copy was to stand still at offsets {work.held.offsets} and does not ({seen}): "
            "somebody has resumed it, and what it has deleted might come back; submit the change again"
        )
