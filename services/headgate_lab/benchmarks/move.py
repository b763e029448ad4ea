"""What a move costs under load: one table goes back and forth between two agents while all are written to.

A pause is the longest gap between visible commits of a table in a stretch of time, less the longest gap of the same
table in an equally long stretch without a move. Gaps differ by themselves, so two stretches without a move are compared
in the same way: what that gives is what a move that stops no table would give. Commits are dated by PostgreSQL
(track_commit_timestamp). Both agents are executors of this process on one Spark; what the owner does between their
steps is done here at once, so the owner's own turns are not part of it.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import confluent_kafka
import msgspec
from psycopg import sql

from headgate.agent.core.executor import SpanTask, TableExecutor
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Epoch, TaskState
from headgate.replication.executor import SparkExecutor
from headgate.replication.queries import ExecutorSettings
from headgate_lab.benchmarks.figures import BenchReport, median_of
from headgate_lab.benchmarks.latency import commit_times, wait_until_replicating
from headgate_lab.benchmarks.parts import CLUSTER_ID, BenchError, BenchParts, bench_parts, make_task
from headgate_lab.benchmarks.workload import DDL, create_topic, insert_event

MOVED_GOAL_MS: Final = 1_000.0
STRETCH_SECONDS: Final = 3.0
"""Around each move, and between two: a pause shorter than this is seen whole."""

STEP_SECONDS_MAX: Final = 60.0
WARM_UP_SECONDS: Final = 30.0

FLUSH_SECONDS_MAX: Final = 30.0
"""For a broker that runs to take the last rows."""


class _Stretches(msgspec.Struct, frozen=True):
    """Around one move, in wall-clock seconds: two stretches without it begin, then its own."""

    control: float
    quiet: float
    move: float


class MoveOptions(msgspec.Struct, frozen=True):
    """``moves`` of the first of ``tables``, at ``rate`` changes per second in all."""

    moves: int = 10
    tables: int = 4
    rate: int = 1_000


class _Load(threading.Thread):
    """Inserts at an even rate, table after table, until stopped."""

    def __init__(self, bootstrap: str, topics: Sequence[str], rate: int) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaConnection(bootstrap).client(confluent_kafka.Producer, linger_ms=0)
        self._topics, self._rate = topics, rate
        self.ending = threading.Event()
        self.written = dict.fromkeys(topics, 0)

    def run(self) -> None:
        started, number = time.monotonic(), 0
        while not self.ending.is_set():
            ahead = started + number / self._rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            topic = self._topics[number % len(self._topics)]
            key, value = insert_event(topic, number)
            self._producer.produce(topic, value, key, partition=0)
            self._producer.poll(0)
            self.written[topic] += 1
            number += 1
        self._producer.flush(FLUSH_SECONDS_MAX)


def bench_move(options: MoveOptions, say: Callable[[str], None]) -> BenchReport:
    """One run. Raises BenchError when a step of a move does not end, or a row is missing."""
    with bench_parts() as parts:
        names = [f"public.move_{number}" for number in range(options.tables)]
        topics = [f"bench.{name}" for name in names]
        with parts.connect() as connection:
            for name in names:
                connection.execute(sql.SQL(DDL).format(table=sql.Identifier(*name.split("."))))
        for topic in topics:
            create_topic(parts.bootstrap, topic, 1)
        tasks = [make_task(parts, topic, name, 1, 1) for topic, name in zip(topics, names, strict=True)]
        other = SparkExecutor(parts.runtime, ExecutorSettings(parts.bootstrap, CLUSTER_ID))
        try:
            for task in tasks:
                parts.executor.add_table(task, prepare=False)
            wait_until_replicating(parts, tasks)
            load = _Load(parts.bootstrap, topics, options.rate)
            load.start()
            time.sleep(WARM_UP_SECONDS)
            stretches = _moves(parts.executor, other, tasks[0], options.moves, say)
            load.ending.set()
            load.join(2 * FLUSH_SECONDS_MAX)
            if load.is_alive():
                raise BenchError(f"the load has not ended within {2 * FLUSH_SECONDS_MAX:g} s: look at the broker's log")
            commits = {name: _commits(parts, name, load.written[f"bench.{name}"]) for name in names}
        finally:
            other.close()
    moved, others, unmoved = _pauses(commits, stretches, names[0])
    for who, pauses in (("moved", moved), ("others", others), ("others, without a move", unmoved)):
        say(f"{who}: {sorted(round(ms) for ms in pauses)} ms")
    figures = {
        "moved_pause_p99_ms": median_of([_p99(moved)], "ms", MOVED_GOAL_MS),
        "moved_pause_p50_ms": median_of(moved, "ms"),
        "others_extra_pause_p99_ms": median_of([_p99(others)], "ms", 0.0),
        "others_extra_pause_p50_ms": median_of(others, "ms"),
        "others_without_a_move_p99_ms": median_of([_p99(unmoved)], "ms"),
        "others_without_a_move_p50_ms": median_of(unmoved, "ms"),
    }
    return BenchReport("move", figures)


def _moves(
    first: TableExecutor, second: TableExecutor, task: SpanTask, moves: int, say: Callable[[str], None]
) -> list[_Stretches]:
    """Move back and forth."""
    stretches = []
    source, target = first, second
    epoch = task.epoch.n
    for number in range(moves):
        control_at = time.time()
        time.sleep(STRETCH_SECONDS)
        quiet_at = time.time()
        time.sleep(STRETCH_SECONDS)
        began = time.time()
        prepared, promoted = (
            msgspec.structs.replace(task, epoch=Epoch(task.epoch.owner_rev, epoch + step)) for step in (1, 2)
        )
        epoch += 2
        target.add_table(prepared, prepare=True)
        _reached(target, task, TaskState.PREPARED)
        source.remove_table(task.id, seal=True)
        _reached(source, task, TaskState.STOPPED)
        target.add_table(promoted, prepare=False)
        _reached(target, task, TaskState.REPLICATING)
        source.forget_table(task.id)
        took = time.time() - began
        say(f"move {number + 1} of {moves}: {took:.2f} s from its order to its end")
        time.sleep(STRETCH_SECONDS)
        stretches.append(_Stretches(control_at, quiet_at, began))
        source, target = target, source
    return stretches


def _reached(executor: TableExecutor, task: SpanTask, state: TaskState) -> None:
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while True:
        status = executor.status(task.id)
        if status is not None and status.state is state:
            return
        if time.monotonic() > deadline or (status is not None and status.state is TaskState.FAILED):
            raise BenchError(f"{task.id.span} did not become {state.value}: {status}")
        time.sleep(0.005)


def _commits(parts: BenchParts, table: str, rows: int) -> list[float]:
    """Times of a table's commits in order, once all its rows are there; seconds since 1970."""
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while len(times := commit_times(parts, table)) != rows:
        if time.monotonic() > deadline:
            raise BenchError(f"{table} has {len(times)} of {rows} rows")
        time.sleep(0.2)
    return sorted({ms / 1000 for ms in times.values()})


def _pauses(
    commits: Mapping[str, Sequence[float]], stretches: Sequence[_Stretches], moved: str
) -> tuple[list[float], list[float], list[float]]:
    """Extra pauses in ms, one per move: of the moved table, the worst of the others, and theirs without a move."""
    ours, theirs, unmoved = [], [], []
    for number, at in enumerate(stretches):
        last = max(times[-1] for times in commits.values())
        end = stretches[number + 1].control if number + 1 < len(stretches) else last
        gaps = {
            table: [_longest_gap(times, *stretch) for stretch in ((at.control, at.quiet), (at.quiet, at.move))]
            for table, times in commits.items()
        }
        extra = {table: _longest_gap(times, at.move, end) - gaps[table][1] for table, times in commits.items()}
        ours.append(max(0.0, 1000 * extra.pop(moved)))
        theirs.append(max(0.0, *(1000 * more for more in extra.values())))
        unmoved.append(max(0.0, *(1000 * (gaps[table][1] - gaps[table][0]) for table in extra)))
    return ours, theirs, unmoved


def _longest_gap(times: Sequence[float], start: float, end: float) -> float:
    within = [start, *(at for at in times if start < at < end), end]
    return max(after - before for before, after in itertools.pairwise(within))


def _p99(values: Sequence[float]) -> float:
    """With less than a hundred values: the greatest."""
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]
