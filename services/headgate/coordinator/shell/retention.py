"""Removes dead letters that are older than their feed's ``deadletter_retention_days``.

Each shard's owner does it for its own shard, beside its role: no decision depends on dead letters, so the machine does
not know of them. Two owners at once, at a take-over, write the same tombstones twice.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.eventlog.dead_letters import DeadLetters, read_dead_letters, remove_dead_letters
from headgate.eventlog.log import Garbage, Log, LogError, Partition
from headgate.eventlog.snapshot import read_snapshot
from headgate.observability.logs import logger
from headgate.records.control import FeedRecorded
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.supervision.threads import BackgroundThread

__all__ = ["DeadLetterRetention", "expired"]

FIRST_SECONDS: Final = 60.0
"""From the start to the first sweep: a process that starts has more urgent work."""

SWEEP_SECONDS: Final = 3_600.0
"""Between two sweeps. A retention is counted in days, and each sweep reads the whole topic of the shard."""

DAY_MS: Final = 86_400_000

DEFAULT_DAYS: Final = FeedSpec.model_fields["deadletter_retention_days"].default
"""For dead letters of feeds that were deleted."""


class DeadLetterRetention:
    """Sweeps the shards that ``owned`` names, until stopped.

    ``why_not`` returns why nothing can be removed, None if it can.
    """

    def __init__(
        self,
        log: Log,
        owned: Callable[[], Sequence[int]],
        why_not: Callable[[], str | None],
        now_ms: Callable[[], int],
    ) -> None:
        """``now_ms``: the time by the broker's clock."""
        self._log = log
        self._owned = owned
        self._why_not = why_not
        self._now_ms = now_ms
        self._stop = threading.Event()
        self._told: str | None = None

    def stop(self) -> None:
        """End before the next sweep. From any thread, and more than once."""
        self._stop.set()

    def run(self) -> None:
        """Sweep until stopped. A sweep that fails or crashes is logged; the other shards and the next sweep follow."""
        pause = FIRST_SECONDS
        while not self._stop.wait(pause):
            pause = SWEEP_SECONDS
            self.sweep_all()

    def sweep_all(self) -> None:
        """Sweep each shard in a thread of its own, so that a crash ends the sweep of one shard only.

        The supervisor logs and counts it. It is not fatal, because tables are replicated without it, and a record that
        crashes each sweep would otherwise end each coordinator.
        """
        for shard in self._owned():
            thread = BackgroundThread(
                self.sweep, shard, name="deadletter-sweep", detail=str(shard), on_crash=lambda _error: None
            )
            thread.start()
            thread.join()

    def sweep(self, shard: int) -> None:
        """Remove what has expired in one shard."""
        log = logger(service="coordinator", shard=shard)
        try:
            problem = self._why_not()
            if problem is None:
                removed = self._removed(shard)
                if removed:
                    log.info("dead_letters_expired", removed=removed)
        except LogError as error:
            problem = str(error)
        if problem is not None and problem != self._told:
            log.warning("dead_letters_not_removed", reason=problem)
        self._told = problem

    def _removed(self, shard: int) -> int:
        found = read_dead_letters(self._log, shard)
        if not found.current and not found.removed:
            return 0
        due = expired(found, _days_by_feed(self._log, shard), self._now_ms())
        if due or found.removed:
            remove_dead_letters(self._log, found, due | found.removed, "deadletter-retention")
        return len(due)


def expired(found: DeadLetters, days: Mapping[str, int | None], now_ms: int) -> set[DeadLetterKey]:
    """Dead letters older than their feed's retention. ``days``: per existing feed; None keeps them without limit."""
    return {
        key
        for key, letter in found.current.items()
        if (kept := days.get(key.feed, DEFAULT_DAYS)) is not None and now_ms - letter.quarantined_ms > kept * DAY_MS
    }


def _days_by_feed(log: Log, shard: int) -> dict[str, int | None]:
    """The retention of each feed of the shard. Raises LogError.

    A feed whose description cannot be read keeps its dead letters.
    """
    snapshot = read_snapshot(log, [Partition("changefeed", shard)])
    days: dict[str, int | None] = {}
    for key, record in snapshot.each(FeedKey, FeedRecorded):
        try:
            days[key.feed] = parse_feed(record.spec).deadletter_retention_days
        except FeedSpecError:
            days[key.feed] = None
    if snapshot.garbage:
        raise LogError(_unreadable(snapshot.garbage[-1]))
    return days


def _unreadable(garbage: Garbage) -> str:
    place = f"{garbage.partition.topic}/{garbage.partition.number} at offset {garbage.offset}"
    return f"a record of {place} cannot be read ({garbage.reason}), so it is not known how long dead letters are kept"
