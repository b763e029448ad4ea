"""``headgate bench snapshot``: rows per second into an empty table while its source is written to.

Three sides in turn, each with a table of its own that has the same rows and the same writers:

- **Headgate**: a feed with ``snapshot: initial``, whose topic has only the changes. From the command ``headgate feed
  create`` until every row is in the table that it creates. Spark is up: a small table was copied before.
- **Debezium**: its connector's own snapshot into a topic of two partitions, and its JDBC sink at its best. From the
  connector's creation until every row is in the target.
- **COPY**: ``COPY … TO STDOUT`` piped into ``COPY … FROM STDIN``, both binary. It follows no changes.

The writers of the first two stop then, and source and target must become equal. ``…_writer_wait_p99_ms`` is how long
the writers' statements took during the copy.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headgate_lab.benchmarks.figures import Figure, Report, median_of
from headgate_lab.benchmarks.migration_tables import COLUMNS, WARM_UP, Writers, bench_database
from headgate_lab.benchmarks.peers.debezium import DebeziumPeer
from headgate_lab.benchmarks.snapshot_services import SnapshotServices
from headgate_lab.benchmarks.targets import JdbcAddress
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.connect import ConnectWorker

DATABASE: Final = "postgresql"

SIDES: Final = ("headgate", "debezium", "copy")

DEBEZIUM_GOAL: Final = 5.0
COPY_GOAL: Final = 0.6

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
    """``writes_per_second``: statements on the table that is being copied."""

    rows: int = 5_000_000
    writes_per_second: int = 1_000
    rounds: int = 1


class Turn(msgspec.Struct):
    """One side's copy: how long it took, and each writer's statements in that time."""

    seconds: float
    waits_ms: list[float]


def bench_snapshot(options: SnapshotOptions, say: Callable[[str], None]) -> Report:
    """One run. Raises BenchError when a side does not come to its end, or its table does not become equal."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    folder.chmod(0o755)
    try:
        with (
            EmbeddedKafka(folder / "kafka", heap_mb=1024, settings=CALM) as kafka,
            bench_database(DATABASE, folder / "source") as source,
            bench_database(DATABASE, folder / "target") as target,
            DebeziumPeer(folder / "jdbc-sink", kafka.bootstrap) as peer,
        ):
            worker = kafka.start_connect("debezium-postgres")
            services = SnapshotServices(kafka.bootstrap, source, target, folder)
            bench = _Bench(worker, peer, services, options, say)
            bench.make_tables()
            with services.running():
                turns = bench.turns()
            return Report("snapshot", _figures(turns, options.rows, services.memory_bytes_max))
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
        self._worker, self._peer, self._services = worker, peer, services
        self._source, self._target = services.source, services.target
        self._options, self._say = options, say

    def make_tables(self) -> None:
        """At the source: the small one, and one for each side and round."""
        self._source.make(WARM_UP, WARM_UP_ROWS)
        for number in range(self._options.rounds):
            for side in SIDES:
                self._source.make(f"{side}_{number}", self._options.rows)
        self._source.run("VACUUM ANALYZE")
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
                turn = run(f"{side}_{number}")
                found[side].append(turn)
                rate = self._options.rows / turn.seconds
                self._say(f"round {number + 1}, {side}: {turn.seconds:.1f} s, {rate:.0f} rows/s")
        return found

    def _headgate(self, table: str) -> Turn:
        with self._written(table) as writers:
            self._services.await_topic(self._source, table)
            begun = time.monotonic()
            self._services.create_feed(table)
            self._await_rows(table, self._options.rows, self._services.check_memory)
            turn = Turn(time.monotonic() - begun, _waits_ms(writers, begun))
        self._await_equal(table, self._services.check)
        self._services.pause_feed(table)
        return turn

    def _debezium(self, table: str) -> Turn:
        port = self._target.address.rpartition(":")[2].partition("/")[0]
        address = JdbcAddress(f"jdbc:postgresql://127.0.0.1:{port}/postgres", "postgres", self._target.password)
        settings = {
            "topic.prefix": table,
            "slot.name": table,
            "publication.name": table,
            "snapshot.mode": "initial",
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": "1",
        }
        config = {**self._source.connector(rf"public\.{table}", self._services.bootstrap), **_WITH_SCHEMAS, **settings}
        with self._written(table) as writers:
            begun = time.monotonic()
            self._worker.put_connector(table, config)
            with self._peer.running(f"{table}.public.{table}", table, "best", (DATABASE, address)) as check:
                self._await_rows(table, self._options.rows, check)
                turn = Turn(time.monotonic() - begun, _waits_ms(writers, begun))
                writers.stop()
                self._await_equal(table, check)
        self._worker.delete_connector(table)
        return turn

    def _copy(self, table: str) -> Turn:
        with self._written(table) as writers:
            begun = time.monotonic()
            self._target.run(f"CREATE TABLE {table} ({COLUMNS})")
            with (
                closing(self._source.connect()) as left,
                closing(self._target.connect()) as right,
                left.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as rows,
                right.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as into,
            ):
                for data in rows:
                    into.write(data)
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
            if not self._target.run(f"SELECT to_regclass('{table}') IS NOT NULL")[0][0]:
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


def _figures(turns: dict[str, list[Turn]], rows: int, memory_bytes: int) -> dict[str, Figure]:
    figures = {}
    for side, each in turns.items():
        figures[f"{side}_rows_per_s"] = median_of([rows / turn.seconds for turn in each], "rows/s", None, 0)
        waits = [sorted(turn.waits_ms) for turn in each if turn.waits_ms]
        if waits:
            figures[f"{side}_writer_wait_p99_ms"] = median_of([one[int(0.99 * (len(one) - 1))] for one in waits], "ms")
    for peer, goal in (("debezium", DEBEZIUM_GOAL), ("copy", COPY_GOAL)):
        ratios = [theirs.seconds / ours.seconds for ours, theirs in zip(turns["headgate"], turns[peer], strict=True)]
        figures[f"ratio_to_{peer}"] = median_of(ratios, "", goal, 2)
    return figures | {"headgate_memory_mb": median_of([memory_bytes / 2**20], "MiB", None, 0)}
