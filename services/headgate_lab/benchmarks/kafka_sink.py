"""Records per second from a topic into another one, exactly once, beside Spark's own Kafka sink on the same topic.

Every run starts on an empty topic and counts only if readers of committed records find each change once, and the right
last version of every row. Headgate's time goes from ``add_table`` to the last position at the sink. Spark's is that of
a whole query with ``availableNow``, which copies key and value as they are: it is not exactly once, and knows no rows.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import confluent_kafka
import msgspec
import orjson

from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.connection import KafkaConnection
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.parts import BenchError, BenchParts, bench_parts, spark_rows, spark_rows_since
from headgate_lab.benchmarks.pipeline import WARM_UP_CHANGES, run_task
from headgate_lab.benchmarks.workload import Expected, Workload, create_topic, fill_topic

RECORDS_GOAL: Final = 150_000.0
"""Per second."""

FORMATS: Final = ("flat", "debezium", "cloudevents")

SPARK: Final = "spark"

POLL_SECONDS: Final = 10.0
"""For a check's next record, which is there."""

CONSUMED: Final = 10_000


class KafkaSinkOptions(msgspec.Struct, frozen=True):
    """``rounds`` interleaved runs of each side over ``changes`` in ``partitions``."""

    changes: int = 1_000_000
    rounds: int = 3
    partitions: int = 4
    seed: int = 20261128


def bench_kafka_sink(options: KafkaSinkOptions, say: Callable[[str], None]) -> BenchReport:
    """All sides in turn; ``say`` receives the progress. Raises BenchError when a run is not exactly right."""
    per_second: dict[str, list[float]] = {side: [] for side in (*FORMATS, SPARK)}
    ratios: dict[str, list[float]] = {format_: [] for format_ in FORMATS}
    with bench_parts() as parts:
        warm = _filled(parts, "bench.public.warm", min(WARM_UP_CHANGES, options.changes), options, say)
        for side in (*FORMATS, SPARK):
            _run(parts, side, warm, number=0)
        workload = _filled(parts, "bench.public.orders", options.changes, options, say)
        for number in range(1, options.rounds + 1):
            for side, measured in per_second.items():
                measured.append(options.changes / _run(parts, side, workload, number=number))
            for format_, found in ratios.items():
                found.append(per_second[format_][-1] / per_second[SPARK][-1])
            say(f"round {number}: " + ", ".join(f"{side} {found[-1]:,.0f}/s" for side, found in per_second.items()))
    return BenchReport("kafka-sink", _figures(per_second, ratios))


class _Filled(msgspec.Struct, frozen=True):
    """A source topic, and what a copy of it must hold."""

    workload: Workload
    expected: Expected


def _filled(
    parts: BenchParts, topic: str, changes: int, options: KafkaSinkOptions, say: Callable[[str], None]
) -> _Filled:
    workload = Workload(topic, changes, options.partitions, with_schema=False, seed=options.seed)
    say(f"seed {workload.seed}: writing {changes} changes to {topic}")
    create_topic(parts.bootstrap, topic, workload.partitions)
    return _Filled(workload, fill_topic(parts.bootstrap, workload))


def _run(parts: BenchParts, side: str, filled: _Filled, *, number: int) -> float:
    """Seconds of one run into a new topic, which is then checked and deleted."""
    workload = filled.workload
    topic = f"copy.{workload.topic.rsplit('.', 1)[-1]}_{side}_{number}"
    create_topic(parts.bootstrap, topic, workload.partitions)
    if side == SPARK:
        seconds = _copy_by_spark(parts, workload, topic)
    else:
        sink = SinkSpec.model_validate({"type": "kafka", "dsn": f"kafka://{parts.bootstrap}", "format": side})
        rows_before = spark_rows(parts)
        seconds = run_task(parts, workload, sink, topic, 1 + number)
        spark_rows_since(parts, rows_before, workload.changes)
    _check(parts.bootstrap, topic, side, filled)
    admin = KafkaConnection(parts.bootstrap).admin
    for future in admin.delete_topics([topic]).values():
        future.result(POLL_SECONDS)
    return seconds


def _copy_by_spark(parts: BenchParts, workload: Workload, topic: str) -> float:
    """As Spark's documentation writes from Kafka to Kafka, into the same partitions."""
    session = parts.runtime.start()
    started = time.monotonic()
    read = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", parts.bootstrap)
        .option("subscribe", workload.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        read.select("key", "value", "partition")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", parts.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(parts.scratch / f"checkpoint-{topic}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.monotonic() - started


def _check(bootstrap: str, topic: str, side: str, filled: _Filled) -> None:
    """Raise BenchError unless readers of committed records find every change once, in its partition and order."""
    count = 0
    rows: dict[bytes, tuple[int, int]] = {}
    consumer = KafkaConnection(bootstrap).client(
        confluent_kafka.Consumer,
        group_id="bench-check",
        isolation_level="read_committed",
        enable_auto_commit=False,
        enable_partition_eof=True,
    )
    with closing(consumer):
        numbers = range(filled.workload.partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in numbers])
        ended = 0
        while ended < filled.workload.partitions:
            messages = consumer.consume(CONSUMED, POLL_SECONDS)
            if not messages:
                raise BenchError(f"{topic}: readers are held up after {count} records")
            for message in messages:
                if message.error() is not None:
                    ended += message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    continue
                count += 1
                value = orjson.loads(message.value())
                row = value if side in ("flat", "cloudevents") else value["after"]
                rows[message.key()] = row["ver"], row["qty"]
    found = Expected(len(rows), sum(ver for ver, _ in rows.values()), sum(qty for _, qty in rows.values()))
    if (count, found) != (filled.workload.changes, filled.expected):
        raise BenchError(
            f"{topic} is not what was written: {count} records, {found}, expected {filled.workload.changes}, "
            f"{filled.expected}"
        )


def _figures(per_second: dict[str, list[float]], ratios: dict[str, list[float]]) -> dict[str, Figure]:
    figures = {
        f"{side}_records_per_s": median_of(found, "records/s", None if side == SPARK else RECORDS_GOAL, digits=0)
        for side, found in per_second.items()
    }
    return figures | {f"{side}_ratio_to_spark": median_of(found, "ratio", digits=3) for side, found in ratios.items()}
