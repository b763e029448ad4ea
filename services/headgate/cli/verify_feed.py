"""How far a feed is in one table, for a comparison while it runs: the topic's end, and the sink's own positions."""

from collections.abc import Mapping

from headgate.config.feed import parse_feed
from headgate.config.plugs import FORMATS
from headgate.eventlog.kafka import KafkaLog
from headgate.records.control import FeedRecorded, FeedState, Positions, SpanPlan, WantedState
from headgate.records.spans import paused_table, wholes
from headgate.records.stored_names import table_today
from headgate.sources.heartbeats import Pulse
from headgate.sources.last_written import LastWritten, last_written
from headgate.sources.offsets import end_offsets
from headgate.sources.table_options import spec_of
from headgate.verify.contract import Side

__all__ = ["FeedSource", "TableFeed"]


class FeedSource:
    """The topics of a feed, and their connectors. A change log has none: the clients that change rows write it."""

    def __init__(self, record: FeedRecorded, log: KafkaLog) -> None:
        self._log = log
        self._spec = parse_feed(record.spec).source
        self._topics = {plan.topic: max(plan.start) + 1 for plan in wholes(record.spans)}
        self.is_connectors = self._spec.change_log is None
        self._has_snapshot = _has_snapshot(record)
        self.is_given_up = False
        self._pulse = Pulse(log.connection, self._topics)

    def last_written(self) -> LastWritten:
        """See settling.Feed. Raises SourceError."""
        if not self.is_connectors:
            return LastWritten()
        return last_written(self._log.connection, self._spec, self._topics, has_snapshot=self._has_snapshot)

    def beats(self, within_seconds: float) -> tuple[int, ...]:
        """See settling.Feed. Raises SourceError."""
        return self._pulse.beats(within_seconds) if self.is_connectors else ()

    def ends(self, topic: str) -> Positions:
        """Where a topic ends. Raises SourceError."""
        return end_offsets(self._log.connection, {topic: self._topics[topic]})[topic]


class TableFeed:
    """See settling.Feed. ``plan`` is of the whole table; ``here``: the database it comes from, ``there``: the sink."""

    def __init__(self, record: FeedRecorded, plan: SpanPlan, source: FeedSource, here: Side, there: Side) -> None:
        self._record = record
        self._plan = plan
        self._source = source
        self._here, self._there = here, there
        self._stopped = _why_stopped(record, plan.table)

    def source_ms(self) -> int:
        """See Feed. Raises SideError."""
        return self._here.clock_ms()

    def last_written(self) -> LastWritten:
        """See Feed. Raises SourceError."""
        return self._source.last_written()

    def beats(self, within_seconds: float) -> tuple[int, ...]:
        """See Feed. Raises SourceError."""
        return self._source.beats(within_seconds)

    def why_unread(self) -> str:
        """See Feed. Raises SideError."""
        return self._here.why_log_unread() if self._source.is_connectors else ""

    @property
    def is_given_up(self) -> bool:
        """See Feed."""
        return self._source.is_given_up

    def give_up(self) -> None:
        """See Feed. A connector that has stopped would cost each table the whole wait."""
        self._source.is_given_up = True

    @property
    def is_running(self) -> bool:
        """As it was when the command began."""
        return not self._stopped

    def ends(self) -> Mapping[int, int]:
        """See Feed. Raises SourceError."""
        ends = self._source.ends(self._plan.topic)
        return {partition: ends[partition] for partition in self._plan.start}

    def why_behind(self, ends: Mapping[int, int]) -> str:
        """See Feed. Raises SideError."""
        applied = self._there.applied(self._record.feed_id, table_today(self._record.spec, self._plan.table))
        for partition, end in sorted(ends.items()):
            at = applied.get(partition, self._plan.start[partition])
            if at < end:
                return f"{self._stopped}has applied {self._plan.topic}/{partition} to offset {at} of {end}"
        return ""


def _has_snapshot(record: FeedRecorded) -> bool:
    """Whether some topic begins with rows that its connector copies: the feed reads it whole, and copies no rows."""
    spec = parse_feed(record.spec)
    source = spec.source
    if not FORMATS[source.format].has_envelopes:
        return False  # only Debezium's connectors begin with the rows that a table has
    is_from_start = source.start == "earliest" and source.start_ts is None and not source.start_offsets
    return is_from_start and any(not spec_of(spec, plan).snapshot.is_initial for plan in wholes(record.spans))


def _why_stopped(record: FeedRecorded, table: str) -> str:
    """Why changes of the table are not waited for, as the beginning of a clause; empty if they are applied."""
    if record.wanted is not WantedState.RUNNING or record.state is FeedState.FAILED:
        return f"is {record.state.value} and "
    paused = paused_table(record, table)
    return "" if paused is None else f"does not write the table, which {paused.by} has paused, and "
