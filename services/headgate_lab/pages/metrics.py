"""docs/metrics.md, made from the metrics themselves: each is registered once, with one example of every label."""

from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from headgate.coordinator.shell.metrics import CoordinatorMetrics, FeedFigures
from headgate.generation.changelog.shell.ingest_metrics import IngestMetrics
from headgate.generation.owner.shell.metrics import GenerationMetrics, LogFigures, TimestampFigures
from headgate.migration.shell.metrics import MigrationFigures, MigrationMetrics
from headgate.observability.metrics import (
    AgentFeeds,
    AgentMemory,
    AgentMetrics,
    AgentRestraint,
    AgentStream,
    new_registry,
)
from headgate.runtime.metrics import RoleMetrics
from headgate.runtime.role import RoleState, RoleStatus
from headgate.runtime.settings import RoleCounters
from headgate.views.metrics import ViewsMetrics

_PAGE_HEAD: Final = (
    "# Metrics",
    "",
    "Every service answers `/metrics` on `HEADGATE_HTTP__PORT` in Prometheus's text format. The usual `process_…` and",
    "`python_…` metrics exist too. Counters start at 0 with each process. A metric with labels has no value before its",
    "first count. This page is made from",
    "`observability/metrics.py`, `runtime/metrics.py` and those of single services by `make docs`.",
    "",
    "| name | type | labels | meaning |",
    "|---|---|---|---|",
)


class _Rebuilt:
    """Views that have read everything."""

    records = 0
    behind: Final[list[str]] = []


class _Example:
    """One feed, so that every label shows."""

    rows = bytes = failures = lag_ms = tables = {"shop": 0}  # noqa: RUF012 - never changed
    copying = rows_copied = rows_to_copy = copy_seconds_left = {"shop": 0}  # noqa: RUF012 - never changed
    maintaining = maintenances = maintenance_failures = {"shop": 0}  # noqa: RUF012 - never changed


def page() -> str:
    """docs/metrics.md."""
    registry = _registry()
    named = sorted((family for family in registry.collect() if family.name.startswith("headgate_")), key=_name)
    rows = [f"| `{_name(each)}` | {each.type} | {_labels(each)} | {each.documentation} |" for each in named]
    return "\n".join([*_PAGE_HEAD, *rows, ""])


def _registry() -> CollectorRegistry:
    """All metrics of every kind of service, each with a value."""
    registry = new_registry()
    roles = RoleMetrics(registry)
    status = RoleStatus(RoleState.REPLAYING, None, False, None, None, None)
    roles.watch(0, lambda: status, RoleCounters(garbage={"announce": 0}))
    roles.turn_seconds.labels(shard="0")
    roles.effects.labels(kind="DiscoverTables", result="TablesDiscovered")
    AgentMetrics(registry, lambda _name: 0.0)
    AgentFeeds(registry, _Example())
    AgentMemory(registry, lambda: {"driver": 0})
    AgentRestraint(registry, lambda: {"memory_failures": 0, "poll_records": 0, "silent_sinks": {"": 0}})
    AgentStream(registry, lambda: {"rows": 0, "batches": 0, "behind_rows": 0, "step_ms": {"addBatch": 0}})
    CoordinatorMetrics(registry).figures[0] = {"shop": FeedFigures()}
    generations = GenerationMetrics(registry)
    generations.figures[0] = {"orders": LogFigures()}
    generations.timestamps[0] = {"orders": TimestampFigures()}
    generations.switches.labels(set="orders", asked_by="operator", result="committed")
    generations.switch_seconds.labels(set="orders")
    migrations = MigrationMetrics(registry)
    migrations.states, migrations.figures = {"running": 1}, {"m1": MigrationFigures(stage="copying")}
    IngestMetrics(registry, ["shop.orders"])
    ViewsMetrics(registry).watch(_Rebuilt())
    return registry


def _name(family: Metric) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _labels(family: Metric) -> str:
    names = {label for sample in family.samples for label in sample.labels} - {"le"}
    return ", ".join(f"`{name}`" for name in sorted(names))
