"""From the broker's append to the visible row, per change, at 1 000 changes a second in all.

Both ends are taken from parts that know nothing of us: the broker stamps each record when it appends it
(``message.timestamp.type=LogAppendTime``), PostgreSQL remembers when each row's transaction committed
(``track_commit_timestamp``). Only inserts are written, so every row has one change.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import confluent_kafka
import msgspec
from psycopg import sql

from headgate.agent.executor import SpanTask
from headgate.benchmarks.figures import Figure, Report, median_of
from headgate.benchmarks.parts import BenchError, Parts, bench_parts, make_task, wait_for
from headgate.benchmarks.workload import DDL, create_topic, insert_event
from headgate.records.control import TaskState

__all__ = ["LatencyOptions", "bench_latency", "commit_times", "measure_latency", "wait_until_replicating"]

GOALS_P50_MS: Final = {1: 150.0, 20: 300.0, 200: 1_000.0}
"""Design §11; p99 below three times that."""

START_SECONDS_MAX: Final = 120.0
WARM_UP_SECONDS: Final = 5.0
"""First batches meet a cold JVM; they are written but not counted."""


class LatencyOptions(msgspec.Struct, frozen=True):
    """``rate`` changes per second in all, for ``seconds`` counted seconds."""

    rate: int = 1_000
    seconds: float = 30.0
    tables: tuple[int, ...] = (1, 20, 200)


def bench_latency(options: LatencyOptions, say: Callable[[str], None]) -> Report:
    """One run per number of tables. Raises BenchError when a row is missing."""
    figures: dict[str, Figure] = {}
    with bench_parts() as parts:
        for number, tables in enumerate(options.tables):
            say(f"{tables} table(s), {options.rate} changes/s in all, {options.seconds:.0f} s")
            latencies_ms = _run(parts, options, tables, number)
            quantiles = statistics.quantiles(latencies_ms, n=1000, method="inclusive")
            goal = GOALS_P50_MS.get(tables)
            aims = {"p50": goal, "p99": None if goal is None else 3 * goal}
            for name, value in (("p50", quantiles[499]), ("p99", quantiles[989]), ("p99_9", quantiles[998])):
                aim = aims.get(name)
                figures[f"tables_{tables}_{name}_ms"] = median_of([value], "ms", aim)
            say(f"p50 {quantiles[499]:.0f} ms, p99 {quantiles[989]:.0f} ms over {len(latencies_ms)} rows")
    return Report("latency", figures)


def _run(parts: Parts, options: LatencyOptions, tables: int, number: int) -> list[float]:
    names = [f"public.lat_{number}_{index}" for index in range(tables)]
    topics = [f"bench.{name}" for name in names]
    with parts.connect() as connection:
        for name in names:
            connection.execute(sql.SQL(DDL).format(table=sql.Identifier(*name.split("."))))
    for topic in topics:
        create_topic(parts.bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    tasks = [
        make_task(parts, topic, name, 1, 10_000 * (number + 1) + index)
        for index, (topic, name) in enumerate(zip(topics, names, strict=True))
    ]
    for task in tasks:
        parts.executor.add_table(task, prepare=False)
    wait_until_replicating(parts, tasks)
    latencies_ms = measure_latency(parts, options, list(zip(names, topics, tasks, strict=True)))
    for task in tasks:
        parts.executor.remove_table(task.id, seal=True)
    return latencies_ms


def measure_latency(parts: Parts, options: LatencyOptions, tables: Sequence[tuple[str, str, SpanTask]]) -> list[float]:
    """Write to ``tables`` (name, topic, running task), all of them empty; ms per counted change. Raises BenchError."""
    topics = [topic for _, topic, _ in tables]
    counted_from, written = _write(parts, options, topics)
    wait_for(parts, {task.id: {0: written[topic]} for _, topic, task in tables})
    latencies: list[float] = []
    for name, topic, _ in tables:
        appended = _append_times(parts.bootstrap, topic, written[topic])
        committed = commit_times(parts, name)
        if appended.keys() != committed.keys():
            raise BenchError(f"{name} has {len(committed)} rows, {topic} has {len(appended)}")
        latencies += [committed[i] - at for i, at in appended.items() if i >= counted_from]
    return latencies


def wait_until_replicating(parts: Parts, tasks: Sequence[SpanTask]) -> None:
    """Return once every task replicates. Raises BenchError."""
    deadline = time.monotonic() + START_SECONDS_MAX
    for task in tasks:
        while (status := parts.executor.status(task.id)) is None or status.state is not TaskState.REPLICATING:
            if time.monotonic() > deadline:
                raise BenchError(f"{task.id.span} was not replicating within {START_SECONDS_MAX:.0f} s: {status}")
            time.sleep(0.05)


def _write(parts: Parts, options: LatencyOptions, topics: Sequence[str]) -> tuple[int, dict[str, int]]:
    """Write at an even rate, table after table; the first counted id, and how many each topic got."""
    producer = confluent_kafka.Producer({"bootstrap.servers": parts.bootstrap, "acks": "all", "linger.ms": 0})
    total = int(options.rate * (options.seconds + WARM_UP_SECONDS))
    written = dict.fromkeys(topics, 0)
    started = time.monotonic()
    for change_id in range(total):
        ahead = started + change_id / options.rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        topic = topics[change_id % len(topics)]
        key, value = insert_event(topic, change_id)
        producer.produce(topic, value, key, partition=0)
        producer.poll(0)
        written[topic] += 1
    if producer.flush(30):
        raise BenchError("the broker did not take all changes within 30 s")
    return int(options.rate * WARM_UP_SECONDS), written


def _append_times(bootstrap: str, topic: str, count: int) -> dict[int, float]:
    """Row id → append time, ms since 1970."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-times"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    times: dict[int, float] = {}
    try:
        while len(times) < count:
            messages = consumer.consume(min(10_000, count - len(times)), 10)
            if not messages:
                raise BenchError(f"{topic} ends after {len(times)} of {count} records")
            for message in messages:
                times[msgspec.json.decode(message.key())["id"]] = float(message.timestamp()[1])
    finally:
        consumer.close()
    return times


def commit_times(parts: Parts, table: str) -> dict[int, float]:
    """Row id → commit time, ms since 1970."""
    query = sql.SQL("SELECT id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 * 1000 FROM {}")
    with parts.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query.format(sql.Identifier(*table.split("."))))}
