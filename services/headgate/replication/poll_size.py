"""The number of records per poll of a Kafka consumer: fewer after the JVM ran out of memory, more again later.

A fetch is bounded by bytes on the wire and a poll by this number alone: compressed, two thousand rows of 10 MB fit into
a fetch. So each time that the JVM runs out of memory a poll becomes a hundredth. Small polls cost time (at one record
an agent is 13 times slower), so after a stretch without such an end it grows tenfold, step by step.
"""

import logging
from typing import Final

_log = logging.getLogger(__name__)

POLL_RECORDS_MAX: Final = 2_000
"""Polled records stay referenced until the batch is read, so large polls are copied by the garbage collector: with
10 000 rows of 2 kB that took two thirds of the CPU time of reading them (docs/benchmarks.md). After each poll Spark
asks for the partition's first and last offset, so Kafka's default of 500 would cost four times as many requests."""

SHRINKS: Final = 100
GROWS: Final = 10

CALM_SECONDS: Final = 600.0
"""Without running out of memory for so long a poll grows. The large rows may come every night, so each further time
doubles it, which bounds what trying costs; at full size for the longest of these times it is forgotten."""

CALM_SECONDS_MAX: Final = 4 * 3600.0


class PollSize:
    """The present size, from the times (monotonic seconds) at which the JVM ran out of memory. Not thread-safe."""

    def __init__(self) -> None:
        self.records = POLL_RECORDS_MAX
        self.failures = 0
        """How often the JVM ran out of memory in this process."""
        self.calm_seconds = CALM_SECONDS
        """How long it must not happen before a poll grows."""
        self._changed_at = 0.0

    @property
    def is_reduced(self) -> bool:
        """Whether a poll is smaller than it need be."""
        return self.records < POLL_RECORDS_MAX

    def ran_out_of_memory(self, now: float) -> None:
        """The JVM has ended for want of memory."""
        self.failures += 1
        if self.failures > 1:
            self.calm_seconds = min(2 * self.calm_seconds, CALM_SECONDS_MAX)
        before, self.records = self.records, max(self.records // SHRINKS, 1)
        self._changed_at = now
        _log.warning(
            "the Spark JVM ran out of memory (%d times in this process). Kafka is polled for %d records at a time "
            "instead of %d, which is slower, and for more again after %g s without running out of memory. Give the JVM "
            "more memory (HEADGATE_SPARK__MEMORY)",
            self.failures,
            self.records,
            before,
            self.calm_seconds,
        )

    def turn(self, now: float) -> bool:
        """Let the size grow if it is time; whether it has."""
        if not self.is_reduced:
            if self.calm_seconds > CALM_SECONDS and now - self._changed_at >= CALM_SECONDS_MAX:
                self.calm_seconds = CALM_SECONDS
            return False
        if now - self._changed_at < self.calm_seconds:
            return False
        self.records, self._changed_at = min(self.records * GROWS, POLL_RECORDS_MAX), now
        _log.info(
            "the Spark JVM has not run out of memory for %g s: Kafka is polled for %d records at a time (at most %d)",
            self.calm_seconds,
            self.records,
            POLL_RECORDS_MAX,
        )
        return True
