"""Counters of an agent's tables, summed by feed, for metrics.

A table's own counts start again with each claim, in this process or another. Here they become counts that only grow
while the process lives, as rates need them. They are read about once a second: what a table did after its last reading
is not in them.
"""

from collections import Counter
from collections.abc import Sequence

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.records.control import Epoch, TaskState


class FeedFigures:
    """Counts by feed: ``rows``, ``bytes``, ``failures``; and as of now ``lag_ms`` (the worst table's), ``tables``.

    A feed without a table that knows how far behind it is has no ``lag_ms``: 0 would mean that all is read.

    One thread records; others may read, because each reading replaces whole dictionaries.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.lag_ms: dict[str, int] = {}
        self.tables: dict[str, int] = {}
        self._before: dict[SpanId, TaskStatus] = {}

    def note(self, statuses: Sequence[TaskStatus]) -> None:
        """Record the current status of all tables of this process."""
        rows, size, failures = Counter(self.rows), Counter(self.bytes), Counter(self.failures)
        lag_ms: dict[str, int] = {}
        tables: Counter[str] = Counter()
        for status in statuses:
            feed, before = status.id.feed, self._before.get(status.id)
            same = before if before is not None and _same_claim(before, status) else None
            rows[feed] += status.rows - (same.rows if same else 0)
            size[feed] += status.bytes - (same.bytes if same else 0)
            failures[feed] += status.error is not None and (same is None or same.error is None)
            tables[feed] += status.state is TaskState.REPLICATING
            if status.has_claimed and status.state is not TaskState.STOPPED:
                lag_ms[feed] = max(lag_ms.get(feed, 0), status.lag_ms)
        self.rows, self.bytes, self.failures = dict(rows), dict(size), dict(failures)
        self.lag_ms, self.tables = lag_ms, dict(tables)
        self._before = {status.id: status for status in statuses}


def _same_claim(before: TaskStatus, now: TaskStatus) -> bool:
    """A count that is less than before has started again, whatever the epoch."""
    whose: tuple[tuple[str, Epoch], ...] = ((before.feed_id, before.epoch), (now.feed_id, now.epoch))
    return whose[0] == whose[1] and before.rows <= now.rows and before.bytes <= now.bytes
