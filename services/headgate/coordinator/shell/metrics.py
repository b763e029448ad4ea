"""Metrics of a shard's owner about its feeds: tables without progress, and the age of their oldest change.

Agents export what they see themselves. A table that no agent runs, or whose agent is silent, shows here only.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.coordinator.core.state import CoordinatorState
from headgate.eventlog.clock import wall_ms
from headgate.records.control import FeedState, WantedState
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.spans import paused_table
from headgate.runtime.service import OwnerObserver

FIGURES_SECONDS: Final = 5.0
"""How often the numbers are taken, by the thread that decides; scrapes are usually 15 s apart."""


class FeedFigures(msgspec.Struct, frozen=True):
    """One feed: tables (or parts) that make no progress; append time (ms) of the oldest change that is not applied."""

    held: int = 0
    unapplied_ms: int | None = None


class CoordinatorMetrics(OwnerObserver[CoordinatorState], Collector):
    """The metrics of all shards of one process."""

    def __init__(self, registry: CollectorRegistry, now_ms: Callable[[], int] = wall_ms) -> None:
        """``now_ms``: the time by the broker's clock."""
        self.figures: dict[int, Mapping[str, FeedFigures]] = {}
        self._taken_at: dict[int, float] = {}
        self._now_ms = now_ms
        registry.register(self)

    def stands(self, shard: int, state: CoordinatorState | None) -> None:
        """Take the numbers at intervals; none for a shard that another process owns."""
        if state is None:
            self.figures.pop(shard, None)
        elif (now := time.monotonic()) >= self._taken_at.get(shard, 0.0):
            self._taken_at[shard] = now + FIGURES_SECONDS
            self.figures[shard] = {name: figures_of(state, name) for name in sorted(state.feeds)}

    def collect(self) -> Iterable[Metric]:
        """Two gauges."""
        held = GaugeMetricFamily(
            "headgate_feed_held_tables",
            "tables (or parts) of a feed that make no progress: failed, not assigned, with an error that "
            "the agent retries, paused individually, or silent although changes wait; measured by the "
            "shard's owner",
            labels=["feed"],
        )
        oldest = GaugeMetricFamily(
            "headgate_feed_oldest_unapplied_seconds",
            "age of the oldest change of a table that makes no progress, measured at the source by the "
            "shard's owner; 0 when all tables make progress",
            labels=["feed"],
        )
        now_ms = self._now_ms()
        for by_feed in dict(self.figures).values():
            for feed, figures in by_feed.items():
                held.add_metric([feed], figures.held)
                age_ms = 0 if figures.unapplied_ms is None else max(0, now_ms - figures.unapplied_ms)
                oldest.add_metric([feed], age_ms / 1000)
        return [held, oldest]


def figures_of(state: CoordinatorState, name: str) -> FeedFigures:
    """The feed's numbers, from its records. The cost is proportional to the tables that make no progress."""
    feed, index = state.feeds[name], state.index.feed(name)
    if feed.state is FeedState.FAILED or feed.error_code == PARTITIONS_GROWN:
        given_up = max(1, len(index.waiting)) if feed.wanted is WantedState.RUNNING else max(1, len(feed.spans))
        return FeedFigures(given_up, _oldest(state, name))
    if feed.wanted is not WantedState.RUNNING:
        return FeedFigures()
    held = {key.span for ranking in (index.waiting, index.erring) for key in ranking.in_order()}
    if feed.paused:
        held.update(span for span in index.plans if paused_table(feed, span) is not None)
    return FeedFigures(len(held.union(index.unapplied.in_order())), _oldest(state, name))


def _oldest(state: CoordinatorState, name: str) -> int | None:
    unapplied = state.index.feed(name).unapplied
    first = unapplied.first()
    return None if first is None else int(unapplied.rank(first))
