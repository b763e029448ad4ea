"""What a service counts, under the names that dashboards use: ``headgate_…``, base units, few label values.

Each process has a registry of its own that is passed to every part that counts, so that two services in one process
(``serve node``, a test) never meet in a global. Labels are shards, roles and feeds; never spans, sessions or offsets,
of which there are too many.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from headgate import SCHEMA_VERSION, __version__
from headgate.supervision.threads import SUPERVISOR


def new_registry() -> CollectorRegistry:
    """A registry with the facts every process has: version, CPU, memory, open files, crashed threads."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    build = Info("headgate_build", "version of this process", registry=registry)
    build.info({"version": __version__, "schema_version": str(SCHEMA_VERSION)})
    registry.register(_ThreadCrashes())
    return registry


class _ThreadCrashes(Collector):
    """Threads and pool tasks that ended with an unexpected exception (supervision/threads.py); label ``thread``."""

    def collect(self) -> Iterable[Metric]:
        """One counter."""
        crashes = CounterMetricFamily(
            "headgate_thread_crashes", "threads and tasks that ended with an unexpected error", labels=["thread"]
        )
        for thread, count in sorted(SUPERVISOR.counts.items()):
            crashes.add_metric([thread], count)
        return [crashes]


_AGENT_COUNTERS = {
    "sessions": "sessions started by this process",
    "sessions_lost": "sessions whose lease was lost",
    "garbage": "records skipped, not understood",
    "facts": "records written",
}


class AgentMetrics(Collector):
    """What an agent counts; ``value`` reads one of its counters by name, from any thread, at each scrape."""

    def __init__(self, registry: CollectorRegistry, value: Callable[[str], float]) -> None:
        self._value = value
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Counters and a gauge."""
        for name, meaning in _AGENT_COUNTERS.items():
            yield CounterMetricFamily(f"headgate_agent_{name}", meaning, value=self._value(name))
        load = self._value("load_bytes_per_s")
        yield GaugeMetricFamily("headgate_agent_load_bytes_per_second", "bytes of changes applied a second", value=load)


class Figures(Protocol):
    """What an agent keeps by feed (agent/shell/figures.py); read from any thread."""

    rows: dict[str, int]
    bytes: dict[str, int]
    failures: dict[str, int]
    lag_ms: dict[str, int]
    tables: dict[str, int]
    copying: dict[str, int]
    rows_copied: dict[str, int]
    rows_to_copy: dict[str, int]
    copy_seconds_left: dict[str, int]
    maintaining: dict[str, int]
    maintenances: dict[str, int]
    maintenance_failures: dict[str, int]


class AgentFeeds(Collector):
    """What an agent has done for each feed, and how late it is; label ``feed``."""

    def __init__(self, registry: CollectorRegistry, figures: Figures) -> None:
        self._figures = figures
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Five counters and seven gauges."""
        now = self._figures
        counted = (
            ("rows", "changes applied by this process, updated once a second", now.rows),
            ("bytes", "bytes of changes applied by this process", now.bytes),
            ("failures", "times a table of this process got an error", now.failures),
            ("maintenances", "times a lake's table was maintained by this process", now.maintenances),
            ("maintenance_failures", "times that failed", now.maintenance_failures),
        )
        for name, meaning, by_feed in counted:
            counter = CounterMetricFamily(f"headgate_feed_{name}", meaning, labels=["feed"])
            for feed, count in sorted(by_feed.items()):
                counter.add_metric([feed], count)
            yield counter
        present = (
            ("tables", "tables (or parts) that replicate here", now.tables),
            ("copying_tables", "tables that are copied as a whole here", now.copying),
            ("copied_rows", "rows copied so far of the tables that are copied as a whole here", now.rows_copied),
            ("rows_to_copy", "all rows of these tables, as their source estimates them", now.rows_to_copy),
            ("copy_left_seconds", "time until the last of these tables is copied, estimated", now.copy_seconds_left),
            ("maintained_tables", "tables of a lake that are maintained here now", now.maintaining),
        )
        for name, meaning, by_feed in present:
            gauge = GaugeMetricFamily(f"headgate_feed_{name}", meaning, labels=["feed"])
            for feed, count in sorted(by_feed.items()):
                gauge.add_metric([feed], count)
            yield gauge
        lag = GaugeMetricFamily(
            "headgate_feed_lag_seconds",
            "lag of the worst table that is claimed here, by the broker's clock: age of the oldest change "
            "that a batch failed to apply, or of the batch that waits to be applied, otherwise of the last "
            "batch's oldest change when it became visible, without the sink's commit interval; 0 when everything is "
            "read, none while no table is claimed",
            labels=["feed"],
        )
        for feed, lag_ms in sorted(now.lag_ms.items()):
            lag.add_metric([feed], lag_ms / 1000)
        yield lag


class AgentMemory(Collector):
    """Resident memory of an agent's processes, asked for at each scrape; label ``process``."""

    def __init__(self, registry: CollectorRegistry, sizes: Callable[[], Mapping[str, int]]) -> None:
        self._sizes = sizes
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """One gauge."""
        memory = GaugeMetricFamily(
            "headgate_agent_memory_bytes", "resident memory of driver, jvm and workers", labels=["process"]
        )
        for process, size in sorted(self._sizes().items()):
            memory.add_metric([process], size)
        return [memory]


class AgentRestraint(Collector):
    """What keeps an agent from working at full speed: ``poll_records``, ``memory_failures``, ``silent_sinks``.

    ``silent_sinks`` are seconds by server.
    """

    def __init__(self, registry: CollectorRegistry, restraint: Callable[[], Mapping[str, Any]]) -> None:
        self._restraint = restraint
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """A counter and two gauges; nothing before Spark was started."""
        now = self._restraint()
        if not now:
            return
        failures = CounterMetricFamily("headgate_spark_out_of_memory", "times that the Spark JVM ran out of memory")
        failures.add_metric([], now["memory_failures"])
        yield failures
        yield GaugeMetricFamily(
            "headgate_spark_poll_records",
            "records read from Kafka at a time; less than 2000 after the JVM ran out of memory",
            value=now["poll_records"],
        )
        silent = GaugeMetricFamily(
            "headgate_sink_silent_seconds",
            "time for which a sink server has not answered this agent",
            labels=["server"],
        )
        for server, seconds in sorted(now["silent_sinks"].items()):
            silent.add_metric([server], seconds)
        yield silent


class AgentStream(Collector):
    """Spark's progress of the lanes' queries: ``rows``, ``batches``, ``behind_rows``; ``step_ms`` by Spark's steps."""

    def __init__(self, registry: CollectorRegistry, progress: Callable[[], Mapping[str, Any]]) -> None:
        self._progress = progress
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Two counters, a gauge, and one counter by step."""
        said = self._progress()
        rows = CounterMetricFamily("headgate_spark_input_rows", "rows that came through Spark's queries")
        rows.add_metric([], said["rows"])
        batches = CounterMetricFamily("headgate_spark_batches", "micro-batches with rows")
        batches.add_metric([], said["batches"])
        behind = GaugeMetricFamily(
            "headgate_spark_behind_rows",
            "most offsets that a partition is behind its end; none before a query's first report, or without a query",
        )
        if said["behind_rows"] is not None:
            behind.add_metric([], said["behind_rows"])
        steps = CounterMetricFamily(
            "headgate_spark_step_seconds", "time of micro-batches by Spark's steps", labels=["step"]
        )
        for step, ms in sorted(said["step_ms"].items()):
            steps.add_metric([step], ms / 1000)
        return [rows, batches, behind, steps]
