"""Metrics of a shard's owner about its feeds: tables without progress, the age of their oldest change, and copies.

Agents export what they see themselves. A table that no agent runs, or whose agent is silent, shows here only. So does a
table whose copy waits for its turn.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.coordinator.core.state import CoordinatorState
from headgate.eventlog.clock import wall_ms
from headgate.records.control import FeedRecorded, FeedState, OperationKind, WantedState
from headgate.records.copy_states import copy_state
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.keys import SpanKey
from headgate.records.row_copies import is_by_ranges
from headgate.records.spans import paused_table
from headgate.runtime.service import OwnerObserver

FIGURES_SECONDS: Final = 5.0
"""How often the numbers are taken, by the thread that decides; scrapes are usually 15 s apart."""


class FeedFigures(msgspec.Struct, frozen=True):
    """One feed: tables (or parts) that make no progress; append time (ms) of the oldest change that is not applied.

    ``uncopied``: tables whose rows are not all copied from the source. One that is copied without an error is not held.
    """

    held: int = 0
    unapplied_ms: int | None = None
    uncopied: int = 0


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
            self.figures[shard] = figures_of(state)

    def collect(self) -> Iterable[Metric]:
        """Three gauges."""
        held = GaugeMetricFamily(
            "headgate_feed_held_tables",
            "tables (or parts) of a feed that make no progress: failed, not assigned, with an error that "
            "the agent retries, paused individually, or silent although changes wait; without tables whose rows are "
            "copied without an error; measured by the shard's owner",
            labels=["feed"],
        )
        uncopied = GaugeMetricFamily(
            "headgate_feed_uncopied_tables",
            "tables whose rows are not all copied from the source: copied now, waiting for their turn, held by an "
            "error, or of a stopped feed (copies of single keys are left out); measured by the shard's owner",
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
                uncopied.add_metric([feed], figures.uncopied)
                age_ms = 0 if figures.unapplied_ms is None else max(0, now_ms - figures.unapplied_ms)
                oldest.add_metric([feed], age_ms / 1000)
        return [held, uncopied, oldest]


def figures_of(state: CoordinatorState) -> dict[str, FeedFigures]:
    """All feeds' numbers, from the records. The cost is proportional to requests and to tables without progress."""
    uncopied = _uncopied(state)
    return {
        name: FeedFigures(_held(state, name, uncopied[name]), _oldest(state, name), len(uncopied[name]))
        for name in sorted(state.feeds)
    }


def _uncopied(state: CoordinatorState) -> Mapping[str, AbstractSet[str]]:
    """Feed → tables whose rows are not all copied. Each is named by a request, and none of them is divided."""
    found: dict[str, set[str]] = defaultdict(set)
    for placed in state.requests.values():
        asked = placed.request
        feed, table = state.feeds.get(asked.feed), asked.table
        if (
            asked.kind is not OperationKind.RESYNC_TABLE
            or not is_by_ranges(asked.spec)
            or feed is None
            or table is None
        ):
            continue
        record = state.spans.get(SpanKey(asked.feed, table))
        if copy_state(feed, table, record, state.requests.__contains__) is not None:
            found[asked.feed].add(table)
    return found


def _held(state: CoordinatorState, name: str, uncopied: AbstractSet[str]) -> int:
    feed, index = state.feeds[name], state.index.feed(name)
    if _is_given_up(feed):
        return max(1, len(index.waiting)) if feed.wanted is WantedState.RUNNING else max(1, len(feed.spans))
    if feed.wanted is not WantedState.RUNNING:
        return 0
    held = {key.span for ranking in (index.waiting, index.erring) for key in ranking.in_order()}
    if feed.paused:
        held.update(span for span in index.plans if paused_table(feed, span) is not None)
    held.update(index.unapplied.in_order())
    return len(held) - sum(_is_copied_now(state, SpanKey(name, table)) for table in uncopied & held)


def _is_copied_now(state: CoordinatorState, key: SpanKey) -> bool:
    """Whether the copy of the table's rows gets on: an agent has it, or had it until it was sealed for the copy."""
    record = state.spans.get(key)
    if record is None or record.failures or key in state.index.feed(key.feed).erring:
        return False
    return record.primary is not None or paused_table(state.feeds[key.feed], key.span) is not None


def _is_given_up(feed: FeedRecorded) -> bool:
    return feed.state is FeedState.FAILED or feed.error_code == PARTITIONS_GROWN


def _oldest(state: CoordinatorState, name: str) -> int | None:
    feed, unapplied = state.feeds[name], state.index.feed(name).unapplied
    first = unapplied.first()
    if first is None or not (_is_given_up(feed) or feed.wanted is WantedState.RUNNING):
        return None
    return int(unapplied.rank(first))
