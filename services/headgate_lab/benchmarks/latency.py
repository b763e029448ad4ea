"""From the broker's append to the visible row, per change, at 1 000 changes a second in all.

Both ends are taken from parts that know nothing of us: the broker stamps each record when it appends it
(``message.timestamp.type=LogAppendTime``), PostgreSQL remembers when each row's transaction committed
(``track_commit_timestamp``). Only inserts are written, so every row has one change. The Debezium sink, where it is
asked for, goes through the same after Headgate, on topics of its own; it needs schemas in the events.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import confluent_kafka
import msgspec
from psycopg import sql

from headgate.agent.core.executor import SpanTask
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import TaskState
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.parts import (
    BenchError,
    BenchParts,
    bench_parts,
    make_task,
    spark_rows,
    spark_rows_since,
    wait_for,
)
from headgate_lab.benchmarks.peers.debezium import DebeziumPeer
from headgate_lab.benchmarks.targets import PostgresTarget
from headgate_lab.benchmarks.workload import DDL, create_topic, insert_event

GOALS_P50_MS: Final = {1: 150.0, 20: 300.0, 200: 1_000.0}
"""What was aimed at, by the number of tables; the aim for p99 is below three times that."""

DEBEZIUM_OPTIONS: Final = {"tasks.max": "2"}
"""Its defaults fetch and write whatever is there at once; what makes it fast under load makes it wait."""

TABLE_FORMAT: Final = "${topic}"
"""Debezium's way to name a table by its topic, whose dots it makes underscores."""

START_SECONDS_MAX: Final = 120.0
WARM_UP_SECONDS: Final = 30.0
"""First batches meet a cold JVM; they are written but not counted. Every side has as long."""


class LatencyOptions(msgspec.Struct, frozen=True):
    """``rate`` changes per second in all, for ``seconds`` counted seconds."""

    rate: int = 1_000
    seconds: float = 30.0
    tables: tuple[int, ...] = (1, 20, 200)
    with_debezium: bool = False


class Course(msgspec.Struct, frozen=True):
    """One side over one number of tables: topic → table."""

    tables: dict[str, str]
    with_schema: bool = False


def bench_latency(options: LatencyOptions, say: Callable[[str], None]) -> BenchReport:
    """One run per side and number of tables. Raises BenchError when a row is missing."""
    figures: dict[str, Figure] = {}
    with bench_parts() as parts, ExitStack() as stack:
        connect = None
        if options.with_debezium:
            connect = stack.enter_context(DebeziumPeer(parts.scratch / "connect", parts.bootstrap))
        for number, tables in enumerate(options.tables):
            say(f"{tables} table(s), {options.rate} changes/s in all, {options.seconds:.0f} s")
            course = _course(parts, f"lat_{number}", tables, with_schema=False)
            rows_before = spark_rows(parts)
            latencies = _headgate(parts, options, course, number)
            figures |= _figures(f"tables_{tables}", latencies, GOALS_P50_MS.get(tables))
            rows = spark_rows_since(parts, rows_before, changes_written(options))
            figures[f"tables_{tables}_spark_input_rows"] = median_of([float(rows)], "rows", digits=0)
            if connect is not None:
                course = _course(parts, f"dbz_{number}", tables, with_schema=True)
                figures |= _figures(f"debezium_tables_{tables}", _debezium(parts, options, course, connect), None)
            say(", ".join(f"{name} {f.value:.0f} ms" for name, f in figures.items() if f"tables_{tables}_" in name))
    return BenchReport("latency", figures)


def _figures(prefix: str, latencies_ms: Sequence[float], goal: float | None) -> dict[str, Figure]:
    quantiles = statistics.quantiles(latencies_ms, n=1000, method="inclusive")
    aims = {"p50": goal, "p99": None if goal is None else 3 * goal}
    return {
        f"{prefix}_{name}_ms": median_of([quantiles[place]], "ms", aims.get(name))
        for name, place in (("p50", 499), ("p99", 989), ("p99_9", 998))
    }


def changes_written(options: LatencyOptions) -> int:
    """All that is written on one course, counted or not."""
    return int(options.rate * (options.seconds + WARM_UP_SECONDS))


def _course(parts: BenchParts, name: str, tables: int, *, with_schema: bool) -> Course:
    names = [f"public.{name}_{index}" for index in range(tables)]
    course = Course({f"bench.{name}": name for name in names}, with_schema)
    for topic in course.tables:
        create_topic(parts.bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    return course


def _headgate(parts: BenchParts, options: LatencyOptions, course: Course, number: int) -> list[float]:
    with parts.connect() as connection:
        for name in course.tables.values():
            connection.execute(sql.SQL(DDL).format(table=sql.Identifier(*name.split("."))))
    tasks = [make_task(parts, topic, name, 1, number + 1) for topic, name in course.tables.items()]
    for task in tasks:
        parts.executor.add_table(task, prepare=False)
    wait_until_replicating(parts, tasks)
    latencies = measure_latency(parts, options, course, tasks)
    for task in tasks:
        parts.executor.remove_table(task.id, seal=True)
    return latencies


def measure_latency(
    parts: BenchParts,
    options: LatencyOptions,
    course: Course,
    tasks: Sequence[SpanTask],
    begin: Callable[[], None] = lambda: None,
) -> list[float]:
    """Write to tables that are empty and replicate; ms per counted change. Raises BenchError.

    ``begin`` is called before the first change that counts.
    """
    counted_from, written = _write(parts, options, course, begin)
    wait_for(parts, {task.id: {0: written[task.plan.topic]} for task in tasks})
    return _latencies(parts, course, counted_from, written)


def _debezium(parts: BenchParts, options: LatencyOptions, course: Course, connect: DebeziumPeer) -> list[float]:
    """Its tables are its own to create, which it does with the first change: the warm-up is for that, too."""
    course = Course({topic: "public." + topic.replace(".", "_") for topic in course.tables}, with_schema=True)
    to = PostgresTarget(parts.dsn).jdbc
    name = next(iter(course.tables.values())).rsplit(".", 1)[-1]
    with connect.connector(name, tuple(course.tables), TABLE_FORMAT, to, DEBEZIUM_OPTIONS) as check:
        check()
        counted_from, written = _write(parts, options, course, lambda: None)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _has_all(parts, course, written):
            check()
            if time.monotonic() > deadline:
                raise BenchError(f"Debezium's sink did not write all rows within {START_SECONDS_MAX:.0f} s")
            time.sleep(0.5)
    return _latencies(parts, course, counted_from, written)


def _has_all(parts: BenchParts, course: Course, written: Mapping[str, int]) -> bool:
    target = PostgresTarget(parts.dsn)
    found = {topic: target.found(name) for topic, name in course.tables.items()}
    return all(there is not None and there.rows == written[topic] for topic, there in found.items())


def _latencies(parts: BenchParts, course: Course, counted_from: int, written: Mapping[str, int]) -> list[float]:
    latencies = []
    for topic, name in course.tables.items():
        appended = _append_times(parts.bootstrap, topic, written[topic])
        committed = commit_times(parts, name)
        if appended.keys() != committed.keys():
            raise BenchError(f"{name} has {len(committed)} rows, {topic} has {len(appended)}")
        latencies += [committed[i] - at for i, at in appended.items() if i >= counted_from]
    return latencies


def wait_until_replicating(parts: BenchParts, tasks: Sequence[SpanTask]) -> None:
    """Return once every task replicates. Raises BenchError."""
    deadline = time.monotonic() + START_SECONDS_MAX
    for task in tasks:
        while (status := parts.executor.status(task.id)) is None or status.state is not TaskState.REPLICATING:
            if time.monotonic() > deadline:
                raise BenchError(f"{task.id.span} was not replicating within {START_SECONDS_MAX:.0f} s: {status}")
            time.sleep(0.05)


def _write(
    parts: BenchParts, options: LatencyOptions, course: Course, begin: Callable[[], None]
) -> tuple[int, dict[str, int]]:
    """Write at an even rate, table after table; the first counted id, and how many each topic got."""
    topics = list(course.tables)
    producer = KafkaConnection(parts.bootstrap).client(confluent_kafka.Producer, acks="all", linger_ms=0)
    counted_from = int(options.rate * WARM_UP_SECONDS)
    written = dict.fromkeys(topics, 0)
    started = time.monotonic()
    for change_id in range(changes_written(options)):
        if change_id == counted_from:
            begin()
        ahead = started + change_id / options.rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        topic = topics[change_id % len(topics)]
        key, value = insert_event(topic, change_id, with_schema=course.with_schema)
        producer.produce(topic, value, key, partition=0)
        producer.poll(0)
        written[topic] += 1
    if producer.flush(30):
        raise BenchError("the broker did not take all changes within 30 s")
    return counted_from, written


def _append_times(bootstrap: str, topic: str, count: int) -> dict[int, float]:
    """Row id → append time, ms since 1970."""
    consumer = KafkaConnection(bootstrap).client(confluent_kafka.Consumer, group_id="bench-times")
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    times: dict[int, float] = {}
    try:
        while len(times) < count:
            messages = consumer.consume(min(10_000, count - len(times)), 10)
            if not messages:
                raise BenchError(f"{topic} ends after {len(times)} of {count} records")
            for message in messages:
                key = msgspec.json.decode(message.key())
                times[key.get("payload", key)["id"]] = float(message.timestamp()[1])
    finally:
        consumer.close()
    return times


def commit_times(parts: BenchParts, table: str) -> dict[int, float]:
    """Row id → commit time, ms since 1970."""
    query = sql.SQL("SELECT id, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 * 1000 FROM {}")
    with parts.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query.format(sql.Identifier(*table.split("."))))}
