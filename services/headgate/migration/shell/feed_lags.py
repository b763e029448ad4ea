"""The lag of feeds that a copy must not slow down, from the control topics and the source topics.

A feed's lag is the age of its oldest change that is not applied. Positions are those that its agents have written to
the checkpoint topic, as for `headgate why`; the age of a change follows from the timestamps in the source topic and
the broker's clock.
"""

from collections.abc import Mapping

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, LogReader, Partition
from headgate.eventlog.replay import read_on_to
from headgate.eventlog.sharding import shard_of
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded, FeedState, SpanPlan
from headgate.records.keys import FeedKey
from headgate.records.throttle_reasons import FEED
from headgate.sources.offsets import SourceError, offsets_since

_TOPICS = ("changefeed", "dispatch", "checkpoint")


class FeedLags:
    """Follows the control topics of the feeds that it is asked about, until ``close``; for one thread."""

    def __init__(self, log: KafkaLog) -> None:
        """Nothing is read yet."""
        self._log = log
        self._shards: dict[int, tuple[LogReader, Snapshot]] = {}

    def why(self, limits: Mapping[str, float]) -> str:
        """Which feed is behind by more than its limit (seconds), as a reason; empty if none is.

        A lag that cannot be known is a reason, too; a feed that is gone has none.
        """
        for feed, seconds in sorted(limits.items()):
            try:
                found = self._why(feed, seconds)
            except (LogError, SourceError) as error:
                found = f"{FEED}{feed}: how far it is behind cannot be asked: {error}"
            if found:
                return found
        return ""

    def _why(self, feed: str, seconds: float) -> str:
        snapshot = self._now(shard_of(feed, self._log.shards))
        record = snapshot.get(FeedKey(feed), FeedRecorded)
        if record is None or record.state is FeedState.REMOVED:
            return ""
        topics = {plan.topic: max(plan.start, default=0) + 1 for plan in record.spans}
        since = offsets_since(self._log.connection, topics, self._log.clock.now_ms() - round(seconds * 1000))
        for plan in record.spans:
            applied = {**plan.start, **_applied(snapshot, feed, plan)}
            if any(applied[partition] < since[plan.topic][partition] for partition in plan.start):
                return f"{FEED}{feed}: {plan.table} is more than {seconds:g} s behind (--max-feed-lag)"
        return ""

    def _now(self, shard: int) -> Snapshot:
        partitions = [Partition(topic, shard) for topic in _TOPICS]
        ends = self._log.end_offsets(partitions)
        if shard not in self._shards:
            self._shards[shard] = (self._log.reader(dict.fromkeys(partitions, 0)), Snapshot())
        reader, snapshot = self._shards[shard]
        for read in read_on_to(reader, ends):
            snapshot.take(read)
        return snapshot

    def close(self) -> None:
        """Let go."""
        for reader, _ in self._shards.values():
            reader.close()
        self._shards = {}


def _applied(snapshot: Snapshot, feed: str, plan: SpanPlan) -> Mapping[int, int]:
    dispatched = snapshot.dispatched(feed, plan.span)
    role = None if dispatched is None else dispatched.primary
    progress = None if role is None else snapshot.progressed(feed, plan.span, role)
    return {} if progress is None else progress.positions
