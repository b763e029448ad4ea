"""Metrics and log lines of the owner of migrations, both from the records that it commits."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.eventlog.clock import wall_ms
from headgate.migration.core.events import STALE, events_between, result_of
from headgate.migration.core.state import PENDING, TERMINAL, MigrationsState
from headgate.observability.logs import logger
from headgate.records.base import Fact
from headgate.records.migration import MigrationKey, MigrationRecorded, MigrationState
from headgate.records.migration_standing import cutover_waiting_ms
from headgate.runtime.service import OwnerObserver

FIGURES_SECONDS: Final = 5.0
"""How often the numbers are taken, by the thread that decides; scrapes are usually 15 s apart."""

RESULTS: Final = ("cancelled", "complete", "failed", STALE)


class MigrationFigures(msgspec.Struct, frozen=True):
    """One pending migration. Times are milliseconds of the owner's clock, 0 where there is none."""

    rows_copied: int = 0
    rows_estimated: int = 0
    stage: str = ""
    stage_percent: int = -1
    eta_seconds: int = -1
    silent_seconds: float = 0.0
    stage_ms: int = 0
    throttled_ms: int = 0
    cutover_ms: int = 0
    awaiting_ms: int = 0


class MigrationMetrics(OwnerObserver[MigrationsState], Collector):
    """Metrics of the one owner. Migrations that have ended are counted by state; each pending one is shown."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.figures: Mapping[str, MigrationFigures] = {}
        self.states: Mapping[str, int] = {}
        self._ended = Counter(dict.fromkeys(RESULTS, 0))
        self._last: dict[str, MigrationRecorded] = {}
        self._taken_at = 0.0
        self._log = logger(service="migration")
        registry.register(self)

    def committed(self, shard: int, facts: Sequence[Fact]) -> None:
        """Log and count what a commit has changed."""
        del shard  # there is one
        for fact in facts:
            if isinstance(fact.key, MigrationKey) and isinstance(fact.value, MigrationRecorded):
                self._changed(fact.key.migration, fact.value)

    def _changed(self, name: str, record: MigrationRecorded) -> None:
        before = self._last.get(name)
        self._last[name] = record
        for event in events_between(before, record):
            tell = self._log.warning if event.is_failure else self._log.info
            tell(event.name, migration=name, **event.facts)
        if before is not None and before.state is not record.state and record.state in TERMINAL:
            self._ended[result_of(record)] += 1

    def stands(self, shard: int, state: MigrationsState | None) -> None:
        """Take the numbers now and then; none while another process owns the migrations."""
        del shard
        if state is None or state.term is None:
            self.figures, self.states, self._last = {}, {}, {}
            return
        if not self._last:
            self._last = dict(state.migrations)
        if (now := time.monotonic()) >= self._taken_at:
            self._taken_at = now + FIGURES_SECONDS
            self.states = Counter(record.state.value for record in state.migrations.values())
            live_at = state.term.live_at
            self.figures = {
                name: figures_of(record, now - live_at.get(name, now))
                for name, record in state.migrations.items()
                if record.state in PENDING
            }

    def collect(self) -> Iterable[Metric]:
        """A counter, and the gauges of pending migrations."""
        ended = CounterMetricFamily(
            "headgate_migration_ended",
            "migrations that have ended under this owner, by result; stale ones failed because they made no progress",
            labels=["result"],
        )
        for result, count in sorted(self._ended.items()):
            ended.add_metric([result], count)
        yield ended
        states = GaugeMetricFamily("headgate_migrations", "all known migrations, by state", labels=["state"])
        counts = self.states
        for each in MigrationState if counts else ():
            states.add_metric([each.value], counts.get(each.value, 0))
        yield states
        yield from _families(self.figures, wall_ms())


def figures_of(record: MigrationRecorded, silent_seconds: float) -> MigrationFigures:
    """The numbers of a pending migration; ``silent_seconds``: since it was seen to make progress."""
    return MigrationFigures(
        rows_copied=record.rows_copied,
        rows_estimated=record.table_rows,
        stage=record.stage,
        stage_percent=record.stage_percent,
        eta_seconds=record.eta_seconds,
        silent_seconds=silent_seconds if record.state is MigrationState.RUNNING else 0.0,
        stage_ms=record.stage_ms,
        throttled_ms=record.throttled_ms,
        cutover_ms=cutover_waiting_ms(record),
        awaiting_ms=record.added_ms if record.state is MigrationState.AWAITING_APPROVAL else 0,
    )


def _families(figures: Mapping[str, MigrationFigures], now_ms: int) -> Iterable[Metric]:
    def seconds(since_ms: int) -> float:
        return max(0, now_ms - since_ms) / 1_000 if since_ms else 0.0

    of_each = (
        ("rows_copied", "rows that a pending migration has copied", lambda each: each.rows_copied),
        ("rows_estimated", "rows of its table, as the server estimates them", lambda each: each.rows_estimated),
        ("eta_seconds", "estimated time to the end of its stage; -1 if unknown", lambda each: each.eta_seconds),
        (
            "silent_seconds",
            "time without progress although it should make some; it is ended as stale after 600",
            lambda each: each.silent_seconds,
        ),
        (
            "throttled_seconds",
            "time since which it is blocked, 0 if it is not; `headgate migration list` has the reason",
            lambda each: seconds(each.throttled_ms),
        ),
        (
            "cutover_waiting_seconds",
            "time since which only its cut-over is missing; 0 if anything else is missing",
            lambda each: seconds(each.cutover_ms),
        ),
        (
            "approval_waiting_seconds",
            "time since the submission of a migration that another user must approve; 0 if it needs no approval",
            lambda each: seconds(each.awaiting_ms),
        ),
    )
    for name, meaning, value in of_each:
        family = GaugeMetricFamily(f"headgate_migration_{name}", meaning, labels=["migration"])
        for migration, each in sorted(figures.items()):
            family.add_metric([migration], value(each))
        yield family
    percent = GaugeMetricFamily(
        "headgate_migration_stage_percent",
        "percentage of its stage that is done; -1 if nothing can be counted",
        labels=["migration", "stage"],
    )
    spent = GaugeMetricFamily(
        "headgate_migration_stage_seconds", "time spent in its current stage", labels=["migration", "stage"]
    )
    for migration, each in sorted(figures.items()):
        if each.stage:
            percent.add_metric([migration, each.stage], each.stage_percent)
            spent.add_metric([migration, each.stage], seconds(each.stage_ms))
    yield percent
    yield spent
