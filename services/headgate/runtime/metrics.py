"""Metrics of owner roles, under the names that dashboards use. Other metrics are in observability."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.runtime.role import RoleStatus
from headgate.runtime.settings import RoleCounters

_TURN_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Seconds; an idle turn is under a millisecond, a transaction 3 to 30."""


class RoleMetrics(Collector):
    """What owner roles are and have counted, read from them at each scrape; label ``shard``.

    Role and counters are kept by the loop itself (role.py): counting twice would let the two differ.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watched: dict[int, tuple[Callable[[], RoleStatus], RoleCounters]] = {}
        self.turn_seconds = Histogram(
            "headgate_role_turn_seconds", "time of one turn", ("shard",), buckets=_TURN_BUCKETS, registry=registry
        )
        self.effects = Counter(
            "headgate_effects_total", "effects run, by kind and result", ("kind", "result"), registry=registry
        )
        self.effects_waiting = Gauge("headgate_effects_waiting", "effects not finished yet", registry=registry)
        registry.register(self)

    def watch(self, shard: int, status: Callable[[], RoleStatus], counters: RoleCounters) -> None:
        """Show this role from now on; ``status`` may be called from any thread."""
        self._watched[shard] = (status, counters)

    def collect(self) -> Iterable[Metric]:
        """The metrics of all roles watched, as prometheus-client wants them."""
        owner = GaugeMetricFamily("headgate_role_owner", "1 while this process owns the shard", labels=["shard"])
        term = GaugeMetricFamily("headgate_role_owner_rev", "owner_rev of the term served here", labels=["shard"])
        replayed = GaugeMetricFamily("headgate_role_replayed", "1 once read to the captured end", labels=["shard"])
        counted = {
            name: CounterMetricFamily(f"headgate_role_{name}", meaning, labels=["shard"])
            for name, meaning in _ROLE_COUNTERS.items()
        }
        garbage = CounterMetricFamily(
            "headgate_role_garbage", "records skipped, not understood", labels=["shard", "topic"]
        )
        for shard, (status, counters) in sorted(self._watched.items()):
            now, labels = status(), [str(shard)]
            owner.add_metric(labels, float(now.owner_rev is not None))
            term.add_metric(labels, float(now.owner_rev if now.owner_rev is not None else -1))
            replayed.add_metric(labels, float(now.replayed))
            for name, family in counted.items():
                family.add_metric(labels, getattr(counters, name))
            for topic, count in sorted(counters.garbage.copy().items()):
                garbage.add_metric([*labels, topic], count)
        return [owner, term, replayed, *counted.values(), garbage]


_ROLE_COUNTERS = {
    "records": "records read",
    "commits": "transactions committed",
    "facts": "records written",
    "campaigns": "elections that this process entered",
    "terms": "terms started by this process",
    "sessions_ended": "sessions whose end this process has recorded, including those that left by themselves",
    "failovers": "sessions that this process recorded as lost, and terms that it started after an owner that had "
    "not resigned",
    "falls": "times the state was dropped and replayed",
}
