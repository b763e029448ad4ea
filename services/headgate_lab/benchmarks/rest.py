"""What an agent costs at rest: shares of a core while a few changes a second trickle into some of its tables.

Most tables of most databases are written seldom. What an agent spends then goes into asking: Spark's query asks the
broker how far the log goes, and each answer with something in it is a micro-batch. Every change counts: the bench ends
with an error if one is missing.
"""

import statistics
import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from headgate_lab.benchmarks.cpu import CpuClock, Stock
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.latency import Course, LatencyOptions, changes_written, measure_latency
from headgate_lab.benchmarks.parts import BenchError, BenchParts, bench_parts, make_task, spark_rows, spark_rows_since
from headgate_lab.benchmarks.tables import create_tables, driver, start_all

SETTLE_SECONDS: Final = 20.0
"""For lanes to be joined. Then changes trickle for as long as a side of ``bench latency`` is warmed, uncounted."""

CLOSE_SECONDS_MAX: Final = 120.0

GOALS_PERCENT: Final = {"jvm": 5.0, "broker": 5.0}
"""At five tables."""

TABLES_WITH_GOAL: Final = 5


class RestOptions(msgspec.Struct, frozen=True):
    """``rate`` changes a second in all, for ``seconds``, over each of the numbers of ``tables`` in turn.

    ``interval_seconds``: the feed's ``batch_interval_seconds``.
    """

    tables: tuple[int, ...] = (1, 5, 100, 1_000)
    rate: int = 8
    seconds: float = 60.0
    interval_seconds: float | Literal["auto"] = "auto"


def bench_rest(options: RestOptions, say: Callable[[str], None]) -> BenchReport:
    """One run per number of tables. Raises BenchError when a table does not start, or a row is missing."""
    figures: dict[str, Figure] = {}
    with bench_parts() as parts:
        for place, tables in enumerate(options.tables):
            say(f"{tables} table(s), {options.rate} changes/s in all, {options.seconds:.0f} s")
            found, late_ms = _at_rest(parts, options, place, tables)
            goals = GOALS_PERCENT if tables == TABLES_WITH_GOAL else {}
            say(", ".join(f"{name} {value:.1f} %" for name, value in found.items()))
            figures |= {
                f"tables_{tables}_{name}_percent": median_of([value], "% of a core", goals.get(name))
                for name, value in found.items()
            }
            hundredths = statistics.quantiles(late_ms, n=100, method="inclusive")
            figures |= {f"tables_{tables}_p{p}_ms": median_of([hundredths[p - 1]], "ms") for p in (50, 99)}
    return BenchReport("rest", figures)


def _at_rest(parts: BenchParts, options: RestOptions, place: int, tables: int) -> tuple[dict[str, float], list[float]]:
    names = [f"public.rest_{place}_{number:04d}" for number in range(tables)]
    topics = [f"bench.{name}" for name in names]
    create_tables(parts, names, topics)
    tasks = [
        make_task(parts, topic, name, 1, place + 1, interval_seconds=options.interval_seconds)
        for topic, name in zip(topics, names, strict=True)
    ]
    start_all(parts, tasks)
    time.sleep(SETTLE_SECONDS)
    clock = CpuClock({"driver": driver, "jvm": parts.jvm, "workers": parts.workers, "broker": parts.broker})
    rows, begun = spark_rows(parts), list[tuple[Stock, float]]()
    course, load = Course(dict(zip(topics, names, strict=True))), LatencyOptions(options.rate, options.seconds)
    late_ms = measure_latency(parts, load, course, tasks, lambda: begun.append((clock.stock(), time.monotonic())))
    ((before, began),) = begun
    spent, passed = clock.seconds_since(before), time.monotonic() - began
    spark_rows_since(parts, rows, changes_written(load))
    for task in tasks:
        parts.executor.remove_table(task.id, seal=True)
    deadline = time.monotonic() + CLOSE_SECONDS_MAX
    for task in tasks:
        while parts.executor.is_remove_table_finished(task.id) is None:
            if time.monotonic() > deadline:
                raise BenchError(f"{task.id.span} was not sealed within {CLOSE_SECONDS_MAX:.0f} s")
            time.sleep(0.05)
        parts.executor.forget_table(task.id)
    return {name: 100 * seconds / passed for name, seconds in spent.items()}, late_ms
