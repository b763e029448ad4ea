"""How far a feed is in one table, for a comparison while it runs: the topic's end, and the sink's own positions."""

from collections.abc import Mapping

from headgate.config.feed import parse_feed
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import FeedRecorded, FeedState, SpanPlan, WantedState
from headgate.records.spans import paused_table, wholes
from headgate.sources.last_written import LastWritten, last_written
from headgate.sources.offsets import end_offsets
from headgate.verify.contract import Side

__all__ = ["TableFeed"]


class TableFeed:
    """See settling.Feed. ``plan`` is of the whole table; ``source``, ``target``: where it comes from and goes to."""

    def __init__(self, record: FeedRecorded, plan: SpanPlan, log: KafkaLog, source: Side, target: Side) -> None:
        self._record = record
        self._spec = parse_feed(record.spec).source
        self._plan = plan
        self._log = log
        self._source, self._target = source, target
        self._stopped = _why_stopped(record, plan.table)

    def source_ms(self) -> int:
        """See Feed. Raises SideError."""
        return self._source.clock_ms()

    def last_written(self) -> LastWritten:
        """See Feed. A change log's records are written with the changes, not by a connector. Raises SourceError."""
        if self._spec.change_log is not None:
            return LastWritten()
        topics = {plan.topic: max(plan.start) + 1 for plan in wholes(self._record.spans)}
        return last_written(self._log.connection, self._spec, topics)

    def why_unread(self) -> str:
        """See Feed. Raises SideError."""
        return "" if self._spec.change_log is not None else self._source.why_log_unread()

    @property
    def is_running(self) -> bool:
        """As it was when the command began."""
        return not self._stopped

    def ends(self) -> Mapping[int, int]:
        """See Feed. Raises SourceError."""
        topic = self._plan.topic
        ends = end_offsets(self._log.connection, {topic: max(self._plan.start) + 1})[topic]
        return {partition: ends[partition] for partition in self._plan.start}

    def why_behind(self, ends: Mapping[int, int]) -> str:
        """See Feed. Raises SideError."""
        applied = self._target.applied(self._record.feed_id, self._plan.table)
        for partition, end in sorted(ends.items()):
            at = applied.get(partition, self._plan.start[partition])
            if at < end:
                return f"{self._stopped}has applied {self._plan.topic}/{partition} to offset {at} of {end}"
        return ""


def _why_stopped(record: FeedRecorded, table: str) -> str:
    """Why changes of the table are not waited for, as the beginning of a clause; empty if they are applied."""
    if record.wanted is not WantedState.RUNNING or record.state is FeedState.FAILED:
        return f"is {record.state.value} and "
    paused = paused_table(record, table)
    return "" if paused is None else f"does not write the table, which {paused.by} has paused, and "
