"""Metrics of ``headgate serve ingest``; label ``topic``."""

from collections.abc import Iterable

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class TopicFigures(msgspec.Struct):
    """Of one input topic, as this process has it. ``behind`` is None while it is not known for each partition."""

    changes: int = 0
    skipped: int = 0
    partitions: int = 0
    waiting: int = 0
    behind: int | None = None


class IngestMetrics(Collector):
    """``topics`` is written by the service's thread and read at each scrape."""

    def __init__(self, registry: CollectorRegistry, topics: Iterable[str]) -> None:
        self.topics = {topic: TopicFigures() for topic in topics}
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Two counters and three gauges."""
        now = sorted(self.topics.items())
        changes = CounterMetricFamily("headgate_ingest_changes", "records taken from the topic", labels=["topic"])
        skipped = CounterMetricFamily("headgate_ingest_skipped", "records skipped because of --skip", labels=["topic"])
        partitions = GaugeMetricFamily(
            "headgate_ingest_partitions", "partitions of the topic that this process writes", labels=["topic"]
        )
        waiting = GaugeMetricFamily(
            "headgate_ingest_waiting_changes", "records taken that are not written yet", labels=["topic"]
        )
        behind = GaugeMetricFamily(
            "headgate_ingest_behind_records",
            "offsets between what is written and the topic's end; none while one of its partitions waits to start",
            labels=["topic"],
        )
        for topic, figures in now:
            changes.add_metric([topic], figures.changes)
            skipped.add_metric([topic], figures.skipped)
            partitions.add_metric([topic], figures.partitions)
            waiting.add_metric([topic], figures.waiting)
            if figures.behind is not None:
                behind.add_metric([topic], figures.behind)
        return [changes, skipped, partitions, waiting, behind]
