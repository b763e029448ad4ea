"""Metrics of the owner of generations: its switches, and the state of its change logs; label ``set``.

Switches are counted from the facts that the owner commits. The role's own thread reads the condition of a log from its
state, at intervals, and keeps it for scrapes.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.eventlog.clock import wall_ms
from headgate.generation.changelog.core.reported_loads import ages_of, sum_loads
from headgate.generation.core.ranges import MapError
from headgate.generation.core.state import GenerationState, current_of
from headgate.generation.core.timestamp_records import TimestampRecords
from headgate.records.base import Fact
from headgate.records.generation import GenerationPhase, GenerationRecorded, SetKey, SetRecorded
from headgate.runtime.service import OwnerObserver

FIGURES_SECONDS: Final = 5.0
"""How often figures are made: sums over all writers, by the thread that decides; scrapes are usually 15 s apart."""

_SWITCH_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0)
"""Seconds; the silent are fenced after 2, a switch that cannot be is aborted after 20."""


class LogFigures(msgspec.Struct, frozen=True):
    """One change log, as its owner has it."""

    epoch: int = 0
    streams: int = 0
    free_partitions: int = 0
    writers: int = 0
    unread_generations: int = 0
    automatic: int = 0
    unknown_writers: int = 0
    refused_reports: int = 0
    changes_per_second: float = 0.0
    hottest_stream_changes_per_second: float = 0.0


class TimestampFigures(msgspec.Struct, frozen=True):
    """One timestamp set, as its owner has it."""

    generations: int = 0
    unpublished: int = 0


_TIMESTAMP_GAUGES: Final[dict[str, str]] = {
    "generations": "generations of a timestamp set that are not removed",
    "unpublished": "generations of a timestamp set whose rows are not all written; their writes are refused until "
    "they are",
}

_GAUGES: Final[dict[str, str]] = {
    "epoch": "number of the generation in force",
    "streams": "streams of the generation in force",
    "free_partitions": "partitions without a stream that is written or not read yet",
    "writers": "writers that may write",
    "unread_generations": "generations that a reader has not read yet",
    "automatic": "1 while autoscaling is on and not suspended",
    "unknown_writers": "writers whose load is unknown; nothing is merged automatically while there are any",
    "refused_reports": "writers whose report of load cannot be true",
    "changes_per_second": "reported load of all streams together",
    "hottest_stream_changes_per_second": "reported load of the busiest stream",
}


class GenerationMetrics(OwnerObserver[GenerationState], Collector):
    """Of all shards of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.switches = Counter(
            "headgate_generation_switches_total",
            "switches by result (committed, aborted) and by origin (operator, automatic)",
            ("set", "asked_by", "result"),
            registry=registry,
        )
        self.switch_seconds = Histogram(
            "headgate_generation_switch_seconds",
            "time from PREPARED to COMMITTED, for switches that one owner executed completely",
            ("set",),
            buckets=_SWITCH_BUCKETS,
            registry=registry,
        )
        self.figures: dict[int, Mapping[str, LogFigures]] = {}
        self.timestamps: dict[int, Mapping[str, TimestampFigures]] = {}
        self._figures_at: dict[int, float] = {}
        # A phase that is older was the doing of the owner before: it has counted it.
        self._stood_by_ms: dict[int, int] = {}
        self._prepared: dict[str, tuple[int, float]] = {}
        self._last: dict[str, tuple[int, GenerationPhase]] = {}
        registry.register(self)

    def committed(self, shard: int, facts: Sequence[Fact]) -> None:
        """Count what a commit has ended or started."""
        for fact in facts:
            if isinstance(fact.key, SetKey) and isinstance(fact.value, SetRecorded) and fact.value.generations:
                last = fact.value.generations[-1]
                if last.follows and last.changed_ms >= self._stood_by_ms.get(shard, 0):
                    self._switched(fact.key.set, last, time.monotonic())

    def stands(self, shard: int, state: GenerationState | None) -> None:
        """Make figures now and then; none of a shard that others own."""
        if state is None:
            self.figures.pop(shard, None)
            self.timestamps.pop(shard, None)
            self._stood_by_ms[shard] = wall_ms()
        elif (now := time.monotonic()) >= self._figures_at.get(shard, 0.0):
            self._figures_at[shard] = now + FIGURES_SECONDS
            self.figures[shard] = {name: _figures(state, name) for name in sorted(state.sets)}
            self.timestamps[shard] = {
                name: _timestamp_figures(state.timestamps, name) for name in sorted(state.timestamps.sets)
            }

    def collect(self) -> Iterable[Metric]:
        """One family for each figure."""
        yield from _families("headgate_generation_", _GAUGES, self.figures)
        yield from _families("headgate_timestamps_", _TIMESTAMP_GAUGES, self.timestamps)

    def _switched(self, name: str, generation: GenerationRecorded, now: float) -> None:
        """The last generation of a set: each is the last one when its switch ends."""
        seen = (generation.epoch, generation.phase)
        if self._last.get(name) == seen or generation.phase not in _RESULTS:
            return
        self._last[name] = seen
        result = _RESULTS[generation.phase]
        if result is None:
            self._prepared[name] = (generation.epoch, now)
            return
        asked_by = "operator" if generation.requests else "automatic"
        self.switches.labels(set=name, asked_by=asked_by, result=result).inc()
        epoch, since = self._prepared.pop(name, (0, now))
        if epoch == generation.epoch and result == "committed":
            self.switch_seconds.labels(set=name).observe(now - since)


_RESULTS: Final[dict[GenerationPhase, str | None]] = {
    GenerationPhase.PREPARED: None,
    GenerationPhase.COMMITTED: "committed",
    GenerationPhase.ABORTED: "aborted",
}


def _families(
    prefix: str, gauges: Mapping[str, str], figures: Mapping[int, Mapping[str, Any]]
) -> Iterable[GaugeMetricFamily]:
    known = {name: each for of_shard in dict(figures).values() for name, each in of_shard.items()}
    for field, meaning in gauges.items():
        family = GaugeMetricFamily(f"{prefix}{field}", meaning, labels=["set"])
        for name, each in sorted(known.items()):
            family.add_metric([name], getattr(each, field))
        yield family


def _timestamp_figures(records: TimestampRecords, name: str) -> TimestampFigures:
    generations = records.sets[name].generations
    unpublished = sum((name, each.timestamp_ms) not in records.published for each in generations)
    return TimestampFigures(len(generations), unpublished)


def _figures(state: GenerationState, name: str) -> LogFigures:
    record = state.sets[name]
    current = current_of(record)
    if current is None:
        return LogFigures()
    automatic = state.automatic.get(name)
    known = LogFigures(
        epoch=current.epoch,
        writers=sum(not each.is_over for each in record.writers),
        unread_generations=sum(
            each.phase in (GenerationPhase.CLOSING, GenerationPhase.SUPERSEDED) for each in record.generations
        ),
        automatic=int(automatic is not None and not automatic.suspended),
    )
    try:
        log = state.map_of(name, current.epoch)
        taken = {stream.partition for stream in log.streams} | _unread_partitions(state, name)
    except MapError:
        return known  # A corrupt chunk: `generation repair` reports which.
    ages = ages_of(state.writers.get(name, {}), wall_ms())
    loads = sum_loads(record, log, state.writers.get(name, {}), ages, {})
    rates = [load.per_second for load in loads.streams.values()]
    return msgspec.structs.replace(
        known,
        streams=len(log.streams),
        free_partitions=record.partitions - len(taken),
        unknown_writers=len(loads.unknown),
        refused_reports=len(loads.refused),
        changes_per_second=sum(rates),
        hottest_stream_changes_per_second=max(rates, default=0.0),
    )


def _unread_partitions(state: GenerationState, name: str) -> set[int]:
    return {
        stream.partition
        for each in state.sets[name].generations
        if each.phase in (GenerationPhase.CLOSING, GenerationPhase.SUPERSEDED)
        for stream in state.map_of(name, each.epoch).streams
    }
