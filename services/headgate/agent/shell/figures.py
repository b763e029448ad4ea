"""Counters of an agent's tables, summed by feed, for metrics.

A table's own counts start again with each claim, in this process or another. Here they become counts that only grow
while the process lives, as rates need them. They are read about once a second: what a table did after its last reading
is not in them.
"""

from collections import Counter
from collections.abc import Sequence

from headgate.agent.core.executor import SpanId, TaskStatus
from headgate.records.control import Epoch, TaskState
from headgate.records.copy_progress import read_copy_progress
from headgate.records.error_codes import COPYING_CODES, MAINTAINING, NO_ERRORS


class FeedFigures:
    """Counts by feed: ``rows``, ``bytes``, ``failures``; and as of now ``lag_ms`` (the worst table's), ``tables``.

    A feed without a table that knows how far behind it is has no ``lag_ms``: 0 would mean that all is read.

    ``copying``: tables that are copied as a whole now; of these, together, ``rows_copied``, ``rows_to_copy`` (the
    source's estimate), and the longest ``copy_seconds_left``.

    ``maintaining``: tables of the sink that are maintained now; ``maintenances`` and ``maintenance_failures`` count
    those that have ended.

    One thread records; others may read, because each reading replaces whole dictionaries.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.lag_ms: dict[str, int] = {}
        self.tables: dict[str, int] = {}
        self.copying: dict[str, int] = {}
        self.rows_copied: dict[str, int] = {}
        self.rows_to_copy: dict[str, int] = {}
        self.copy_seconds_left: dict[str, int] = {}
        self.maintaining: dict[str, int] = {}
        self.maintenances: dict[str, int] = {}
        self.maintenance_failures: dict[str, int] = {}
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
            failures[feed] += _has_failed(status) and (same is None or not _has_failed(same))
            tables[feed] += status.state is TaskState.REPLICATING
            if status.has_claimed and status.state is not TaskState.STOPPED:
                lag_ms[feed] = max(lag_ms.get(feed, 0), status.lag_ms)
        self.rows, self.bytes, self.failures = dict(rows), dict(size), dict(failures)
        self.lag_ms, self.tables = lag_ms, dict(tables)
        self._note_maintenance(statuses)
        self._before = {status.id: status for status in statuses}
        self._note_copies(statuses)

    def _note_maintenance(self, statuses: Sequence[TaskStatus]) -> None:
        now = Counter[str](status.id.feed for status in statuses if status.error_code == MAINTAINING)
        done, failed = Counter(self.maintenances), Counter(self.maintenance_failures)
        for status in statuses:
            before, ended = self._before.get(status.id), status.maintained
            if ended is None or (before is not None and before.maintained == ended):
                continue
            done[status.id.feed] += not ended.has_failed
            failed[status.id.feed] += ended.has_failed
        self.maintaining, self.maintenances, self.maintenance_failures = dict(now), dict(done), dict(failed)

    def _note_copies(self, statuses: Sequence[TaskStatus]) -> None:
        copying, rows, about = Counter[str](), Counter[str](), Counter[str]()
        left: dict[str, int] = {}
        for status in statuses:
            if status.error_code not in COPYING_CODES:
                continue
            feed, progress = status.id.feed, read_copy_progress(status.error or "")
            copying[feed] += 1
            if progress is not None:
                rows[feed] += progress.rows
                about[feed] += progress.rows_about or progress.rows
                left[feed] = max(left.get(feed, 0), progress.seconds_left or 0)
        self.copying, self.rows_copied, self.rows_to_copy = dict(copying), dict(rows), dict(about)
        self.copy_seconds_left = left


def _has_failed(status: TaskStatus) -> bool:
    """Whether it reports an error. What it does that holds nothing up is none."""
    return status.error_code is not None and status.error_code not in NO_ERRORS


def _same_claim(before: TaskStatus, now: TaskStatus) -> bool:
    """A count that is less than before has started again, whatever the epoch."""
    whose: tuple[tuple[str, Epoch], ...] = ((before.feed_id, before.epoch), (now.feed_id, now.epoch))
    return whose[0] == whose[1] and before.rows <= now.rows and before.bytes <= now.bytes
