"""What the views count."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Viewed(Protocol):
    """What the views have read (views/model.py); read from any thread."""

    records: int

    @property
    def behind(self) -> list[str]:
        """Partitions that are not rebuilt yet."""
        ...


class ViewsMetrics(Collector):
    """How far the views are; empty before they have started to read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._model: Viewed | None = None
        registry.register(self)

    def watch(self, model: Viewed) -> None:
        """Show this model from now on."""
        self._model = model

    def collect(self) -> Iterable[Metric]:
        """A counter and a gauge."""
        if self._model is None:
            return
        yield CounterMetricFamily("headgate_views_records", "records read by the views", value=self._model.records)
        yield GaugeMetricFamily(
            "headgate_views_behind_partitions", "partitions not rebuilt yet", value=len(self._model.behind)
        )
