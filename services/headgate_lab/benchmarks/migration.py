"""``headgate bench migration``: what a schema change under load costs, by strategy online and by pt-osc.

Real services as processes of their own, a captured database, writers all the while. A round changes a table of its own:

- ``copy_rows_per_s``: from when the feed stands still until every row is copied. Spark is up: a small table was changed
  before.
- ``catch_up_changes_per_s``: the agent is frozen for some seconds once the copy is ready, and then has to come through
  what the writers have done meanwhile.
- ``cutover_stall_p99_ms``: the longest that each writer has waited for one statement around the cut-over.
- ``ratio_to_pt_osc``: how long pt-online-schema-change takes for a table like it under the same load, in the same
  round, divided by how long online takes, both from the submission to the end, without the seconds of the frozen agent.

A table that does not hold in the end what the writers have counted ends the bench.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import msgspec
from confluent_kafka import TopicPartition

from headgate.config.settings import load_settings
from headgate.eventlog.topics import create_topics
from headgate.provisioning.java import java_home_for_spark
from headgate_lab.benchmarks.figures import Figure, Report, median_of
from headgate_lab.benchmarks.migration_tables import DATABASES, WARM_UP, WRITERS, BenchDatabase, Writers, bench_database
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.demo.processes import ServiceProcess, stop_all
from headgate_lab.demo.services import run_command
from headgate_lab.embedded.broker import EmbeddedKafka
from headgate_lab.embedded.percona import pt_online_schema_change

__all__ = ["MigrationBenchOptions", "bench_migration"]

COPY_GOAL: Final = 100_000.0
STALL_GOAL_MS: Final = 1_000.0

WAIT_SECONDS_MAX: Final = 7_200.0
"""For one step: five million rows at a hundredth of the goal."""

LOOK_SECONDS: Final = 0.02
"""Between two looks at the database's own memory of the migration, and at the feed's position."""

ASK_SECONDS: Final = 0.5
AROUND_SECONDS: Final = 10.0
"""Before the end of the migration: the cut-over was within."""

LEASE_SECONDS: Final = 120.0
"""A frozen agent keeps its session: what is measured is how it catches up, not how another takes over."""

WARM_UP_ROWS: Final = 20_000
CHANGE: Final = "ADD COLUMN extra int NOT NULL DEFAULT 7"


class MigrationBenchOptions(msgspec.Struct, frozen=True):
    """``backlog_seconds``: for so long the agent stands still before it has to catch up."""

    rows: int = 5_000_000
    writes_per_second: int = 1_000
    rounds: int = 1
    databases: tuple[str, ...] = DATABASES
    backlog_seconds: float = 20.0


def bench_migration(options: MigrationBenchOptions, say: Callable[[str], None]) -> Report:
    """One run. Raises BenchError when a migration fails, or a table does not hold what was written."""
    figures: dict[str, Figure] = {}
    for name in options.databases:
        found = _measured(name, options, say)
        figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    for figure, worse in (
        ("copy_rows_per_s", min),
        ("catch_up_changes_per_s", min),
        ("cutover_stall_p99_ms", max),
        ("ratio_to_pt_osc", min),
    ):
        both = [value for name, value in figures.items() if name.endswith(figure)]
        if both:
            figures[figure] = worse(both, key=lambda value: value.value)
    return Report("migration", figures)


def _measured(name: str, options: MigrationBenchOptions, say: Callable[[str], None]) -> dict[str, Figure]:
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    folder.chmod(0o755)
    try:
        with EmbeddedKafka(folder / "kafka", heap_mb=1024) as kafka, bench_database(name, folder / name) as database:
            worker = kafka.start_connect(f"debezium-{'postgres' if name == 'postgresql' else name}")  # type: ignore[arg-type]
            bench = _Bench(kafka.bootstrap, database, options, folder, say)
            bench.make_tables()
            database.capture(worker, kafka.bootstrap)
            with bench.services():
                return bench.figures()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Round(msgspec.Struct):
    """What one round has measured."""

    copy_rows_per_s: float
    catch_up_changes_per_s: float
    stalls_ms: list[float]
    seconds: float
    pt_osc_seconds: float | None = None


class _Bench:
    """One database."""

    def __init__(
        self,
        bootstrap: str,
        database: BenchDatabase,
        options: MigrationBenchOptions,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._bootstrap, self._database, self._options, self._say = bootstrap, database, options, say
        self._folder = folder
        self._password = folder / "password"
        self._password.write_text(database.password, encoding="utf-8")
        self._settings = self._settings_of(bootstrap)
        self._agent: ServiceProcess

    def _settings_of(self, bootstrap: str) -> dict[str, str]:
        found = {
            "HEADGATE_BOOTSTRAP": bootstrap,
            "HEADGATE_SHARDS": "1",
            "HEADGATE_REPLICATION_FACTOR": "1",
            "HEADGATE_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "HEADGATE_HTTP__PORT": "0",
            "HEADGATE_SPARK__MASTER": "local[*]",
            "HEADGATE_SPARK__SCRATCH": str(self._folder),
            "HEADGATE_SECRETS_DIR": str(self._folder),
            "JAVA_HOME": str(java_home_for_spark()),
        }
        if self._database.name == "mariadb":
            found["HEADGATE_MIGRATION__PT_OSC"] = str(pt_online_schema_change(self._folder))
        return found

    @property
    def _has_pt_osc(self) -> bool:
        return self._database.name == "mariadb"

    def _tables(self) -> list[str]:
        return [f"items_{number}" for number in range(self._options.rounds * (2 if self._has_pt_osc else 1))]

    def make_tables(self) -> None:
        """All that are changed, so that one connector captures them."""
        self._database.make(WARM_UP, WARM_UP_ROWS)
        for table in self._tables():
            self._database.make(table, self._options.rows)
            self._say(f"{self._database.name}: {table} has {self._options.rows} rows")

    @contextmanager
    def services(self) -> Iterator[None]:
        """Coordinator, agent and the migrations' owner, each a process."""
        create_topics(load_settings({"bootstrap": self._bootstrap, "shards": 1, "replication_factor": 1}))
        started: list[ServiceProcess] = []
        try:
            for name, arguments in (
                ("coordinator", ("coordinator",)),
                ("agent", ("agent", "--name", "a")),
                ("owner", ("migration",)),
            ):
                started.append(ServiceProcess(name, ("serve", *arguments), self._settings, self._folder))
            self._agent = started[1]
            yield
        finally:
            stop_all(started)

    def figures(self) -> dict[str, Figure]:
        """All rounds."""
        self._change(WARM_UP, "warm-up", "online")
        self._await_end("warm-up")
        rounds = []
        tables = iter(self._tables())
        for number in range(self._options.rounds):
            found = self._online(next(tables), f"online-{number}")
            if self._has_pt_osc:
                found.pt_osc_seconds = self._pt_osc(next(tables), f"pt-osc-{number}")
            self._say(f"{self._database.name}, round {number + 1}: {msgspec.to_builtins(found)}")
            rounds.append(found)
        stalls = [_p99(found.stalls_ms) for found in rounds]
        figures = {
            "copy_rows_per_s": median_of([found.copy_rows_per_s for found in rounds], "rows/s", COPY_GOAL, 0),
            "catch_up_changes_per_s": median_of(
                [found.catch_up_changes_per_s for found in rounds], "changes/s", None, 0
            ),
            "cutover_stall_p99_ms": median_of(stalls, "ms", STALL_GOAL_MS),
            "online_seconds": median_of([found.seconds for found in rounds], "s"),
        }
        theirs = [found.pt_osc_seconds for found in rounds if found.pt_osc_seconds is not None]
        if theirs:
            figures["pt_osc_seconds"] = median_of(theirs, "s")
            ratios = [found.pt_osc_seconds / found.seconds for found in rounds if found.pt_osc_seconds is not None]
            figures["ratio_to_pt_osc"] = median_of(ratios, "", None, 2)
        return figures

    # --- one migration ---

    def _online(self, table: str, name: str) -> _Round:
        writers = Writers(self._database, table, self._options.rows, self._options.writes_per_second)
        begun = time.monotonic()
        self._change(table, name, "online", "--postpone-completion")
        paused = self._await_stage(name, {"paused", "copied"})
        copied = self._await_stage(name, {"copied"})
        self._await(name, lambda record: record["is_ready_to_complete"])
        ready = time.monotonic()
        changes_per_s = self._catch_up(table)
        self._await(name, lambda record: record["is_ready_to_complete"])
        frozen = time.monotonic() - ready
        self._command("migration", "complete", name)
        self._await_end(name)
        ended = time.monotonic()
        time.sleep(1.0)  # statements that have waited are counted once they are done
        self._check(table, writers.stop())
        return _Round(
            self._options.rows / (copied - paused), changes_per_s, _stalls(writers, ended), ended - begun - frozen
        )

    def _pt_osc(self, table: str, name: str) -> float:
        writers = Writers(self._database, table, self._options.rows, self._options.writes_per_second)
        begun = time.monotonic()
        self._change(table, name, "pt-osc")
        self._await_end(name)
        seconds = time.monotonic() - begun
        self._check(table, writers.stop())
        return seconds

    def _catch_up(self, table: str) -> float:
        """Changes per second at which a feed comes through what was written while its agent stood still."""
        self._agent.freeze()
        time.sleep(self._options.backlog_seconds)
        before = self._position(table)
        self._agent.thaw()
        at = self._until(table, lambda: self._position(table) > before)
        first, end = self._position(table), self._end(table)
        done = self._until(table, lambda: self._position(table) >= end)
        return (self._position(table) - first) / max(done - at, LOOK_SECONDS)

    def _change(self, table: str, name: str, strategy: str, *more: str) -> None:
        database = self._database
        known = ("--topic", database.topic(table)) if strategy == "online" else ()
        self._await_topic(table)
        self._command(
            *("migration", "submit", f"ALTER TABLE {table} {CHANGE}", "--database", database.address, "--id", name),
            *("--password-file", str(self._password), "--strategy", strategy, "--timeout", "600", *known, *more),
        )

    def _await_topic(self, table: str) -> None:
        """It comes with the table's first change; a connector may have to find its place first."""
        number = 0
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self._end(table) == 0:
            number += 1
            self._database.run(f"UPDATE {table} SET note = 'seen {number}' WHERE id = 0")
            time.sleep(ASK_SECONDS)
            if time.monotonic() > deadline:
                raise BenchError(f"no change of {table} comes to its topic")

    def _check(self, table: str, written: tuple[int, int]) -> None:
        ((rows, total, extra),) = self._database.run(f"SELECT count(*), sum(v), min(extra) FROM {table}")
        expected = (self._options.rows + written[0], written[1], 7)
        if (int(rows), int(total), int(extra)) != expected:
            raise BenchError(f"{table} holds {(rows, total, extra)} (rows, sum, least new value), not {expected}")

    # --- looking ---

    def _command(self, *arguments: str) -> Mapping[str, Any]:
        return run_command(self._settings, *arguments, "-o", "json")

    def _await_stage(self, name: str, stages: set[str]) -> float:
        """When the database itself first said so. The owner tells the log of it once a second."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with closing(self._database.connect()) as connection, closing(connection.cursor()) as session:
            while time.monotonic() < deadline:
                session.execute("SELECT stage FROM headgate.migration WHERE id = %s", (name,))
                row = session.fetchone()
                if row is not None and row[0] in stages:
                    return time.monotonic()
                time.sleep(LOOK_SECONDS)
        raise BenchError(f"{name} has not come to {sorted(stages)}")

    def _await(self, name: str, is_so: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            record = self._command("migration", "show", name)
            if is_so(record):
                return record
            if record["state"] in ("failed", "cancelled"):
                raise BenchError(f"migration {name} is {record['state']}: {record['message']}")
            time.sleep(ASK_SECONDS)
        raise BenchError(f"migration {name} takes more than {WAIT_SECONDS_MAX:g} s")

    def _await_end(self, name: str) -> None:
        self._await(name, lambda record: record["state"] == "complete")

    def _until(self, table: str, is_so: Callable[[], bool]) -> float:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            if time.monotonic() > deadline:
                raise BenchError(f"the feed into the copy of {table} does not go on")
            time.sleep(LOOK_SECONDS)
        return time.monotonic()

    def _position(self, table: str) -> int:
        ((offset,),) = self._database.run(
            f"SELECT coalesce(sum(next_offset), 0) FROM headgate.progress WHERE topic = '{self._database.topic(table)}'"
        )
        return int(offset)

    def _end(self, table: str) -> int:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "bench", "enable.auto.commit": False}
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._database.topic(table), 0), timeout=30)
            except confluent_kafka.KafkaException:
                return 0
        return int(end)


def _stalls(writers: Writers, ended: float) -> list[float]:
    """The longest waits around the cut-over, as many as there are writers, ms."""
    around = [seconds for begun, seconds in writers.waits if begun > ended - AROUND_SECONDS]
    return [1_000 * seconds for seconds in sorted(around)[-WRITERS:]]


def _p99(values: list[float]) -> float:
    """With less than a hundred values: the greatest."""
    return sorted(values)[max(0, math.ceil(0.99 * len(values)) - 1)]
