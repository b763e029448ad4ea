"""How many changes per second, and what safety costs: Headgate and hand-written COPY in turn on the same topic.

Every run starts on an empty table and counts only if the table is exactly right afterwards. Headgate's time goes from
``add_table`` (claim, lane start) to the last position at the sink; the baseline's from first poll to last commit.
"""

import os
import time
from collections.abc import Callable
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition

from headgate.config.columns import ColumnOptions, Mask
from headgate.config.sink_spec import SinkSpec
from headgate.eventlog.connection import KafkaConnection
from headgate_lab.benchmarks.cpu import CpuClock
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
from headgate_lab.benchmarks.peers.by_hand import ByHand, run_by_hand
from headgate_lab.benchmarks.shapes import SHAPES
from headgate_lab.benchmarks.targets import BenchTarget, PostgresTarget
from headgate_lab.benchmarks.workload import Expected, Workload, create_topic, fill_topic

RATIO_GOAL: Final = 0.75
"""Of the same batches written without Headgate: the goal of docs/benchmarks.md."""

SHAPED_RATIO_GOAL: Final = 0.8
"""Of the same changes without shaping."""

SHAPED: Final = ColumnOptions(rename={"price": "amount"}, mask={"name": Mask(keep_last=4)})
SHAPED_WHERE: Final = "qty >= 0"
"""A rename, a mask and a filter. It keeps every row, so that both sides write as many."""

WARM_UP_CHANGES: Final = 100_000
"""Enough for the JVM's compiler to have seen the hot path; not counted."""

STOP_SECONDS_MAX: Final = 30.0


class PipelineOptions(msgspec.Struct, frozen=True):
    """``rounds`` interleaved runs of each side per variant, over ``changes`` in ``partitions``.

    ``shaped``: one side more, Headgate with SHAPED and SHAPED_WHERE.
    """

    changes: int = 1_000_000
    rounds: int = 3
    partitions: int = 4
    seed: int = 20261121
    shaped: bool = False


class _Measured(msgspec.Struct):
    changes_per_s: list[float] = []
    bare_hands_per_s: list[float] = []
    ratio: list[float] = []
    shaped_per_s: list[float] = []
    shaped_ratio: list[float] = []
    spark_input_rows: list[float] = []
    cpu_us_per_change: dict[str, list[float]] = {}


def bench_pipeline(options: PipelineOptions, say: Callable[[str], None]) -> BenchReport:
    """Run both variants; ``say`` receives the progress. Raises BenchError when a run is not exactly right."""
    figures: dict[str, Figure] = {}
    with bench_parts() as parts:
        _warm_up(parts, options, say)
        for suffix, with_schema in (("", False), ("_with_schema", True)):
            workload = Workload(
                f"bench.public.orders{suffix}", options.changes, options.partitions, with_schema, options.seed
            )
            say(f"seed {workload.seed}: writing {workload.changes} changes to {workload.topic}")
            create_topic(parts.bootstrap, workload.topic, workload.partitions)
            expected = fill_topic(parts.bootstrap, workload)
            measured = _Measured()
            for round_number in range(options.rounds):
                _round(parts, workload, expected, measured, round_number)
                if options.shaped:
                    _shaped_round(parts, workload, expected, measured, round_number)
                shaped = f", shaped {measured.shaped_per_s[-1]:,.0f}/s" if options.shaped else ""
                say(
                    f"round {round_number + 1}: headgate {measured.changes_per_s[-1]:,.0f}/s, "
                    f"hand-written {measured.bare_hands_per_s[-1]:,.0f}/s{shaped}"
                )
            figures |= _figures(measured, suffix)
    return BenchReport("pipeline", figures)


def _warm_up(parts: BenchParts, options: PipelineOptions, say: Callable[[str], None]) -> None:
    changes = min(WARM_UP_CHANGES, options.changes)
    workload = Workload("bench.public.warm", changes, options.partitions, True, options.seed)
    say(f"warming up with {changes} changes")
    create_topic(parts.bootstrap, workload.topic, workload.partitions)
    expected = fill_topic(parts.bootstrap, workload)
    target = PostgresTarget(parts.dsn)
    run_headgate(parts, workload, target, "public.warm", 0)
    target.check("public.warm", expected)


def _round(parts: BenchParts, workload: Workload, expected: Expected, measured: _Measured, number: int) -> None:
    suffix = f"{int(workload.with_schema)}_{number}"
    target = PostgresTarget(parts.dsn)
    clock = CpuClock({"jvm": parts.jvm, "workers": parts.workers, "postgres": parts.servers, "broker": parts.broker})
    rows_before = spark_rows(parts)
    before, cpu_before = clock.stock(), msgspec.structs.asdict(parts.executor.cpu)
    seconds = run_headgate(parts, workload, target, f"public.ours_{suffix}", 1 + number + 1000 * workload.with_schema)
    spent = {f"cpu_us_{name}": s * 1e6 for name, s in clock.seconds_since(before).items()}
    inside = msgspec.structs.asdict(parts.executor.cpu)
    spent |= {
        f"cpu_us_{name.removesuffix('_us')}": float(inside[name] - cpu_before[name])
        for name in ("decode_us", "apply_us")
    }
    target.check(f"public.ours_{suffix}", expected)
    measured.spark_input_rows.append(float(spark_rows_since(parts, rows_before, workload.changes)))
    for name, microseconds in spent.items():
        measured.cpu_us_per_change.setdefault(name, []).append(microseconds / workload.changes)

    table = f"public.hands_{suffix}"
    target.create_shape(table, SHAPES[workload.shape])
    hands = ByHand(parts.bootstrap, workload.topic, workload.partitions, target.name, target.dsn, table)
    bare_seconds = run_by_hand(hands, os.cpu_count() or 1)
    target.check(table, expected)
    measured.changes_per_s.append(workload.changes / seconds)
    measured.bare_hands_per_s.append(workload.changes / bare_seconds)
    measured.ratio.append(bare_seconds / seconds)


def _shaped_round(parts: BenchParts, workload: Workload, expected: Expected, measured: _Measured, number: int) -> None:
    """The same topic once more, shaped, beside the round's run without shaping."""
    target, table = PostgresTarget(parts.dsn), f"public.shaped_{int(workload.with_schema)}_{number}"
    n = 100_000 + number + 1000 * workload.with_schema
    seconds = run_headgate(parts, workload, target, table, n, columns=SHAPED, where=SHAPED_WHERE)
    target.check(table, expected)
    measured.shaped_per_s.append(workload.changes / seconds)
    measured.shaped_ratio.append(measured.shaped_per_s[-1] / measured.changes_per_s[-1])


def run_headgate(
    parts: BenchParts,
    workload: Workload,
    target: BenchTarget,
    table: str,
    number: int,
    *,
    columns: ColumnOptions | None = None,
    where: str | None = None,
) -> float:
    """Seconds from the claim of a new table to its last position at the sink; it is sealed afterwards.

    ``columns`` and ``where`` shape it.
    """
    target.create_shape(table, SHAPES[workload.shape].renamed({} if columns is None else columns.rename))
    return run_task(parts, workload, target.sink, table, number, columns=columns, where=where)


def run_task(
    parts: BenchParts,
    workload: Workload,
    sink: SinkSpec,
    table: str,
    number: int,
    *,
    columns: ColumnOptions | None = None,
    where: str | None = None,
    batch_rows_max: int | None = None,
) -> float:
    """The same with a table, or a topic, that is there."""
    task = make_task(
        parts,
        workload.topic,
        table,
        workload.partitions,
        number,
        sink=sink,
        columns=columns,
        where=where,
        batch_rows_max=batch_rows_max,
    )
    per_partition = _ends(parts, workload)
    started = time.monotonic()
    parts.executor.add_table(task, prepare=False)
    wait_for(parts, {task.id: per_partition})
    seconds = time.monotonic() - started
    deadline = time.monotonic() + STOP_SECONDS_MAX
    parts.executor.remove_table(task.id, seal=True)
    while parts.executor.is_remove_table_finished(task.id) is None:
        if time.monotonic() > deadline:
            raise BenchError(f"{table} was not sealed within {STOP_SECONDS_MAX:.0f} s")
        time.sleep(0.05)
    parts.executor.forget_table(task.id)
    return seconds


def _ends(parts: BenchParts, workload: Workload) -> dict[int, int]:
    """The workload is written without transactions, so the ends are exactly the last offsets + 1."""
    consumer = KafkaConnection(parts.bootstrap).client(Consumer, group_id="bench-ends")
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(workload.topic, number), timeout=10)[1]
            for number in range(workload.partitions)
        }
    finally:
        consumer.close()


def _figures(measured: _Measured, suffix: str) -> dict[str, Figure]:
    figures = {
        f"changes_per_s{suffix}": median_of(measured.changes_per_s, "changes/s", digits=0),
        f"bare_hands_per_s{suffix}": median_of(measured.bare_hands_per_s, "changes/s", digits=0),
        f"spark_input_rows{suffix}": median_of(measured.spark_input_rows, "rows", digits=0),
        f"ratio_to_bare_hands{suffix}": median_of(measured.ratio, "ratio", RATIO_GOAL, digits=3),
    }
    if measured.shaped_per_s:
        figures[f"shaped_per_s{suffix}"] = median_of(measured.shaped_per_s, "changes/s", digits=0)
        figures[f"ratio_of_shaped{suffix}"] = median_of(measured.shaped_ratio, "ratio", SHAPED_RATIO_GOAL, digits=3)
    for name, values in sorted(measured.cpu_us_per_change.items()):
        figures[f"{name}{suffix}"] = median_of(values, "µs/change", digits=2)
    return figures
