"""Maintains the tables of lakes between two batches, when it is due or requested.

The span is claimed, and on no lane: its changes wait in the topic. What goes wrong is reported and retried later; it
never fails the table, which can be written all the same. Only a claim that was overtaken concerns the span itself.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.agent.core.executor import MaintenanceReport
from headgate.agent.core.span.states import Span
from headgate.replication.feed_parts import feed_of
from headgate.sinks.contract import Claim, Sink, SinkError, SinkFencedError, SinkMovedError
from headgate.sinks.maintaining import MaintainsTables, upkeep_of

__all__ = ["RETRY_SECONDS", "TableUpkeep"]

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 3_600.0
"""After a scheduled maintenance that failed: the table pauses for each attempt."""


class TableUpkeep:
    """Of the spans of one agent. Keeps nothing: the tables remember when they were maintained."""

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._monotonic = monotonic

    def due_at(self, sink: Sink, span: Span, claim: Claim, last: MaintenanceReport | None) -> float | None:
        """When the table must be maintained next, in monotonic seconds; None if it is not scheduled.

        ``last``: what came of it just now. Raises SinkError.
        """
        options = feed_of(span.task.spec).sink.maintenance
        if not isinstance(sink, MaintainsTables) or not options.scheduled:
            return None
        if last is not None and last.has_failed:
            return self._monotonic() + RETRY_SECONDS
        at = sink.maintained_at(claim)
        if at is None:
            return None
        return self._monotonic() + (at + timedelta(hours=options.every_hours) - self._now()).total_seconds()

    def maintain(self, sink: Sink, span: Span, claim: Claim) -> MaintenanceReport:
        """Maintain the span's table. Raises SinkError only if the claim is not the sink's any more."""
        number = 1 if span.maintained is None else span.maintained.number + 1
        feed, table = span.id.feed, claim.table
        if not isinstance(sink, MaintainsTables):
            text = f"table {table} has no files to maintain: its sink is not a lake"
            return MaintenanceReport(span.maintain_for, text, True, number)
        begun = self._monotonic()
        try:
            done = sink.maintain(claim, upkeep_of(feed_of(span.task.spec).sink.maintenance), self._now())
        except (SinkFencedError, SinkMovedError):
            raise
        except SinkError as error:
            _log.warning("feed %s, table %s was not maintained: %s (%s)", feed, table, error, error.code)
            return MaintenanceReport(span.maintain_for, f"{error.code}: {error}", True, number)
        seconds = self._monotonic() - begun
        _log.info("feed %s, table %s was maintained in %.1f s: %s", feed, table, seconds, done)
        return MaintenanceReport(span.maintain_for, f"{done}, in {seconds:.1f} s", False, number)
