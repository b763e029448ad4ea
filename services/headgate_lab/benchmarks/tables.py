"""Many tables of one feed on one agent: how soon all replicate, what they cost at rest, how late the busy ones are.

A hundred of a thousand are written to at a time, at 1 000 changes a second in all. Memory is that of the agent's
processes: this driver (the bench's own load included), Spark's JVM and its Python workers; broker and database are not
counted. Latency is measured as ``headgate bench latency`` does.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import psutil
from confluent_kafka.admin import NewTopic
from psycopg import sql

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.connection import KafkaConnection
from headgate_lab.benchmarks.cpu import CpuClock
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.latency import Course, LatencyOptions, measure_latency, wait_until_replicating
from headgate_lab.benchmarks.parts import BenchParts, bench_parts, make_task
from headgate_lab.benchmarks.workload import DDL, TOPIC_TIMEOUT_SECONDS

IDLE_SECONDS: Final = 20.0
"""Over which processor time at rest is taken; before it, as long again for lanes to settle."""

CREATED_AT_ONCE: Final = 100
"""Topics and tables per request: a broker takes a hundred in a second."""

MIB: Final = 1 << 20


class TablesOptions(msgspec.Struct, frozen=True):
    """``tables`` in all, ``active`` of them written to at ``rate`` changes per second in all for ``seconds``."""

    tables: int = 1_000
    active: int = 100
    rate: int = 1_000
    seconds: float = 20.0


def bench_tables(options: TablesOptions, say: Callable[[str], None]) -> BenchReport:
    """One run. Raises BenchError when a table does not start or a row is missing."""
    with bench_parts() as parts:
        names = [f"public.many_{number:04d}" for number in range(options.tables)]
        topics = [f"bench.{name}" for name in names]
        create_tables(parts, names, topics)
        before = _memory(parts)
        say(f"{options.tables} tables; agent at rest without tables: {sum(before.values())} MiB {before}")
        tasks = [make_task(parts, topic, name, 1, 1) for topic, name in zip(topics, names, strict=True)]
        started_s = start_all(parts, tasks)
        say(f"all replicate after {started_s:.1f} s, on {len(parts.executor.lanes)} lanes")
        time.sleep(IDLE_SECONDS)
        idle = _idle(parts)
        say(f"at rest, % of a core: {idle}; lanes: {len(parts.executor.lanes)}; MiB: {_memory(parts)}")
        # Spread over all: neighbours in the list would be neighbours on a worker.
        step = max(1, options.tables // options.active)
        busy = tasks[::step][: options.active]
        course = Course({task.plan.topic: task.plan.table for task in busy})
        latencies_ms = measure_latency(parts, LatencyOptions(options.rate, options.seconds), course, busy)
        after = _memory(parts)
        connections = _connections(parts)
    quantiles = statistics.quantiles(latencies_ms, n=1000, method="inclusive")
    say(f"p50 {quantiles[499]:.0f} ms, p99 {quantiles[989]:.0f} ms over {len(latencies_ms)} rows; MiB: {after}")
    figures = {
        "start_s": median_of([started_s], "s"),
        "latency_p50_ms": median_of([quantiles[499]], "ms"),
        "latency_p99_ms": median_of([quantiles[989]], "ms"),
        "sink_connections": median_of([float(connections)], "connections"),
        "agent_rss_mib": median_of([float(sum(after.values()))], "MiB"),
        "agent_rss_without_tables_mib": median_of([float(sum(before.values()))], "MiB"),
    }
    figures |= {f"{group}_rss_mib": median_of([float(mib)], "MiB") for group, mib in after.items()}
    figures |= _percentages(idle)
    return BenchReport("tables", figures)


def _percentages(idle: dict[str, float]) -> dict[str, Figure]:
    ours = median_of([sum(share for group, share in idle.items() if group != "broker")], "% of a core")
    return {"idle_cpu": ours} | {
        f"idle_cpu_{group}": median_of([share], "% of a core") for group, share in idle.items()
    }


def create_tables(parts: BenchParts, names: Sequence[str], topics: Sequence[str]) -> None:
    """Topics of one partition whose records are stamped by the broker, and their tables, empty."""
    admin = KafkaConnection(parts.bootstrap).admin
    properties = {"message.timestamp.type": "LogAppendTime"}
    with parts.connect() as connection:
        for first in range(0, len(names), CREATED_AT_ONCE):
            some = [NewTopic(topic, 1, 1, config=properties) for topic in topics[first : first + CREATED_AT_ONCE]]
            for future in admin.create_topics(some).values():
                future.result(TOPIC_TIMEOUT_SECONDS)
            with connection.transaction():
                for name in names[first : first + CREATED_AT_ONCE]:
                    connection.execute(sql.SQL(DDL).format(table=sql.Identifier(*name.split("."))))


def start_all(parts: BenchParts, tasks: Sequence[SpanTask]) -> float:
    """Seconds until all replicate."""
    began = time.monotonic()
    for task in tasks:
        parts.executor.add_table(task, prepare=False)
    wait_until_replicating(parts, tasks)
    return time.monotonic() - began


def driver() -> list[psutil.Process]:
    """This process."""
    return [psutil.Process()]


def _memory(parts: BenchParts) -> dict[str, int]:
    return {name: size // MIB for name, size in parts.runtime.memory_bytes().items()}


def _idle(parts: BenchParts) -> dict[str, float]:
    """Shares of a core, in %, while nothing is written."""
    clock = CpuClock({"driver": driver, "jvm": parts.jvm, "workers": parts.workers, "broker": parts.broker})
    before = clock.stock()
    time.sleep(IDLE_SECONDS)
    return {name: round(100 * seconds / IDLE_SECONDS, 1) for name, seconds in clock.seconds_since(before).items()}


def _connections(parts: BenchParts) -> int:
    """Sessions of Headgate at the sink."""
    with parts.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'headgate%'"
        ).fetchone()
    return 0 if row is None else int(row[0])
