"""``headgate bench snapshot``: rows per second into an empty table while its source is written to.

Three sides in turn, each with a table of its own that has the same rows and the same writers:

- **Headgate**: a feed with ``snapshot: initial``, whose topic has only the changes. From the command ``headgate feed
  create`` until every row is in the table that it creates. Spark is up: a small table was copied before.
- **Debezium**: its connector's own snapshot into a topic of two partitions, and its JDBC sink at its best. From the
  connector's creation until every row is in the target.
- **copy**: the database's own means. ``COPY … TO STDOUT`` piped into ``COPY … FROM STDIN``, both binary, or
  mariadb-dump piped into mariadb. It follows no changes.

The writers of the first two stop then, and source and target must become equal. ``…_writer_wait_p99_ms`` is how long
the writers' statements took during the copy, ``…_writer_stall_ms`` the longest of them. ``headgate_cpu_us_…`` is
processor time per row, of the agent's JVM and of its other processes (driver and workers). ``headgate_memory_mb`` is
the most that the agent's processes had.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.migration_tables import DATABASES, WARM_UP, Writers
from headgate_lab.benchmarks.peers.debezium import DebeziumPeer
from headgate_lab.benchmarks.snapshot_databases import snapshot_databases
from headgate_lab.benchmarks.snapshot_services import SnapshotServices
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.connect import ConnectWorker

PEERS: Final = {"debezium": 5.0, "copy": 0.6}
"""Side → the goal, as Headgate's speed divided by its."""

AGENT_GROUPS: Final = ("spark", "workers")
"""Of CpuClock: PostgreSQL's sessions end with each range, so what they used is not known at the end."""

SIDES: Final = ("headgate", *PEERS)

WARM_UP_ROWS: Final = 1_000

POLL_SECONDS: Final = 0.1

_WITH_SCHEMAS: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
"""Debezium's sink needs them in the events."""


class SnapshotOptions(msgspec.Struct, frozen=True):
    """``writes_per_second``: statements on the table that is being copied. A round has a table for each side."""

    rows: int = 5_000_000
    writes_per_second: int = 1_000
    rounds: int = 3
    databases: tuple[str, ...] = DATABASES


class Turn(msgspec.Struct):
    """One side's copy: how long it took, each writer's statements in that time, and whose processors it took (s)."""

    seconds: float
    waits_ms: list[float]
    cpu_seconds: dict[str, float] = {}


def bench_snapshot(options: SnapshotOptions, say: Callable[[str], None]) -> BenchReport:
    """One run. Raises BenchError when a side does not come to its end, or its table does not become equal."""
    figures: dict[str, Figure] = {}
    for name in options.databases:
        figures |= {f"{name}_{figure}": value for figure, value in _measured(name, options, say).items()}
    return BenchReport("snapshot", figures | worst_ratios(figures))


def _measured(name: str, options: SnapshotOptions, say: Callable[[str], None]) -> dict[str, Figure]:
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    folder.chmod(0o755)
    try:
        with (
            EmbeddedKafka(folder / "kafka", heap_mb=1024, settings=CALM) as kafka,
            snapshot_databases(name, folder) as databases,
            DebeziumPeer(folder / "jdbc-sink", kafka.bootstrap) as peer,
        ):
            worker = kafka.start_connect(databases.plugin)
            services = SnapshotServices(kafka.bootstrap, databases, folder)
            bench = _Bench(worker, peer, services, options, lambda text: say(f"{name}: {text}"))
            bench.make_tables()
            with services.running():
                turns = bench.turns()
            return snapshot_figures(turns, options.rows, services.memory_bytes_max)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Bench:
    """The sides, and the parts that they run on."""

    def __init__(
        self,
        worker: ConnectWorker,
        peer: DebeziumPeer,
        services: SnapshotServices,
        options: SnapshotOptions,
        say: Callable[[str], None],
    ) -> None:
        self._worker, self._peer, self._services, self._databases = worker, peer, services, services.databases
        self._source, self._target = services.source, services.target
        self._options, self._say = options, say

    def make_tables(self) -> None:
        """At the source: the small one, and one for each side and round."""
        self._source.make(WARM_UP, WARM_UP_ROWS)
        for number in range(self._options.rounds):
            for side in SIDES:
                self._source.make(f"{side}_{number}", self._options.rows)
        self._databases.settle()
        self._say(f"{self._options.rounds * len(SIDES)} tables have {self._options.rows} rows each")

    def turns(self) -> dict[str, list[Turn]]:
        """Every side in each round, once Spark is up."""
        self._source.capture(self._worker, self._services.bootstrap, "headgate_[0-9]+")
        self._services.await_topic(self._source, WARM_UP)
        self._services.create_feed(WARM_UP)
        self._await_rows(WARM_UP, WARM_UP_ROWS, self._services.check_memory)
        self._say("the small table is copied, Spark is up")
        found: dict[str, list[Turn]] = {side: [] for side in SIDES}
        for number in range(self._options.rounds):
            for side, run in zip(SIDES, (self._headgate, self._debezium, self._copy), strict=True):
                turn = run(number)
                found[side].append(turn)
                rate = self._options.rows / turn.seconds
                self._say(f"round {number + 1}, {side}: {turn.seconds:.1f} s, {rate:.0f} rows/s")
        return found

    def _headgate(self, number: int) -> Turn:
        table = f"headgate_{number}"
        with self._written(table) as writers:
            self._services.await_topic(self._source, table)
            cpu = self._services.cpu_of("agent")
            begun, before = time.monotonic(), cpu.stock()
            self._services.create_feed(table)
            self._await_rows(table, self._options.rows, self._services.check_memory)
            turn = Turn(time.monotonic() - begun, _waits_ms(writers, begun), cpu.seconds_since(before))
        self._await_equal(table, self._services.check)
        self._services.pause_feed(table)
        return turn

    def _debezium(self, number: int) -> Turn:
        table = f"debezium_{number}"
        settings = {
            **_WITH_SCHEMAS,
            **self._databases.own_snapshot(table, number),
            "topic.prefix": table,
            "snapshot.mode": "initial",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
        }
        schema = self._source.schema
        config = {**self._source.connector(rf"{schema}\.{table}", self._services.bootstrap), **settings}
        to = (self._databases.name, self._databases.jdbc)
        with self._written(table) as writers:
            begun = time.monotonic()
            self._worker.put_connector(table, config)
            with self._peer.running(f"{table}.{schema}.{table}", table, "best", to) as check:
                self._await_rows(table, self._options.rows, check)
                turn = Turn(time.monotonic() - begun, _waits_ms(writers, begun))
                writers.stop()
                self._await_equal(table, check)
        self._worker.delete_connector(table)
        return turn

    def _copy(self, number: int) -> Turn:
        table = f"copy_{number}"
        with self._written(table) as writers:
            begun = time.monotonic()
            self._databases.pipe(table)
            return Turn(time.monotonic() - begun, _waits_ms(writers, begun))

    @contextmanager
    def _written(self, table: str) -> Iterator[Writers]:
        writers = Writers(self._source, table, self._options.rows, self._options.writes_per_second)
        try:
            yield writers
        finally:
            writers.stop()

    def _await_rows(self, table: str, rows: int, check: Callable[[], None]) -> None:
        """Return when the target has all rows from before. The writers delete none of them."""

        def is_there() -> bool:
            if not self._databases.has_table(table):
                return False
            # The index answers the first question at once, so that asking takes nothing from what is measured.
            if self._target.run(f"SELECT max(id) FROM {table} WHERE id < {rows}") != [(rows - 1,)]:
                return False
            return self._target.run(f"SELECT count(*) FROM {table} WHERE id < {rows}") == [(rows,)]

        self._services.until(is_there, f"{table} has its {rows} rows in the target", POLL_SECONDS, check)

    def _await_equal(self, table: str, check: Callable[[], None]) -> None:
        asked = f"SELECT count(*), sum(v) FROM {table}"
        wanted = self._source.run(asked)
        equal = f"{table} is equal in source and target"
        self._services.until(lambda: self._target.run(asked) == wanted, equal, POLL_SECONDS, check)


def _waits_ms(writers: Writers, since: float) -> list[float]:
    return [1_000 * seconds for begun, seconds in tuple(writers.waits) if begun >= since]


def worst_ratios(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """To each peer, the least of all databases."""
    return {
        f"ratio_to_{peer}": min(
            (figure for name, figure in figures.items() if name.endswith(f"_ratio_to_{peer}")), key=lambda it: it.value
        )
        for peer in PEERS
    }


def snapshot_figures(turns: dict[str, list[Turn]], rows: int, memory_bytes: int) -> dict[str, Figure]:
    """Those of one database."""
    figures = {}
    for side, each in turns.items():
        figures[f"{side}_rows_per_s"] = median_of([rows / turn.seconds for turn in each], "rows/s", None, 0)
        waits = [sorted(turn.waits_ms) for turn in each if turn.waits_ms]
        if waits:
            figures[f"{side}_writer_wait_p99_ms"] = median_of([one[int(0.99 * (len(one) - 1))] for one in waits], "ms")
            figures[f"{side}_writer_stall_ms"] = median_of([one[-1] for one in waits], "ms")
    ours = turns["headgate"]
    for group in AGENT_GROUPS:
        spent = [1e6 * turn.cpu_seconds[group] / rows for turn in ours]
        figures[f"headgate_cpu_us_{group}"] = median_of(spent, "µs/row", None, 2)
    for peer, goal in PEERS.items():
        ratios = [theirs.seconds / turn.seconds for turn, theirs in zip(ours, turns[peer], strict=True)]
        figures[f"ratio_to_{peer}"] = median_of(ratios, "", goal, 2)
    return figures | {"headgate_memory_mb": median_of([memory_bytes / 2**20], "MiB", None, 0)}
