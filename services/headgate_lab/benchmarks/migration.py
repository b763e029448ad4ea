"""``headgate bench migration``: what a schema change under load costs, by strategy online and by pt-osc.

Real services as processes of their own, a captured database, writers all the while. A round changes a table of its own:

- ``copy_rows_per_s``: from when the feed is stopped until every row is copied. Spark is up: a small table was changed
  before. ``copy_cpu_us_…``: processor time in those seconds, per row, of the copy's Spark, of its Python workers, of
  the database (which has the writers' statements, too), and of all else (writers, connector, broker, agent).
- ``catch_up_changes_per_s``: the agent is frozen for some seconds once the copy is ready, and then has to come through
  what the writers have done since.
- ``cutover_stall_p99_ms``: the longest that each writer has waited for one statement around the cut-over.
- ``revert_s``: the change is undone, the writers continue: from the submission to the end.
- ``stage_s_…``: the time that online spent in each stage, as the owner has recorded it; the frozen agent's is in it.
- ``ratio_to_pt_osc``: how long pt-online-schema-change takes for a table like it under the same load, in the same
  round, divided by how long online takes, both from the submission to the end, without the seconds of the frozen agent.

A table that does not hold in the end what the writers have counted ends the bench.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from headgate.records.migration_standing import seconds_in_stages
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.migration_services import LOOK_SECONDS, MigrationServices
from headgate_lab.benchmarks.migration_tables import DATABASES, WARM_UP, WRITERS, BenchDatabase, Writers, bench_database
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.embedded.broker import CALM, EmbeddedKafka

COPY_GOAL: Final = 100_000.0
STALL_GOAL_MS: Final = 1_000.0

AROUND_SECONDS: Final = 10.0
"""Before the end of the migration: the cut-over was within."""

WARM_UP_ROWS: Final = 20_000
CHANGE: Final = "ADD COLUMN extra int NOT NULL DEFAULT 7"


class MigrationBenchOptions(msgspec.Struct, frozen=True):
    """``backlog_seconds``: how long the agent is frozen before it has to catch up."""

    rows: int = 5_000_000
    writes_per_second: int = 1_000
    rounds: int = 1
    databases: tuple[str, ...] = DATABASES
    backlog_seconds: float = 20.0


def bench_migration(options: MigrationBenchOptions, say: Callable[[str], None]) -> BenchReport:
    """One run. Raises BenchError when a migration fails, or a table does not hold what was written."""
    figures: dict[str, Figure] = {}
    for name in options.databases:
        found = _measured(name, options, say)
        figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    for figure, worse in (
        ("copy_rows_per_s", min),
        ("catch_up_changes_per_s", min),
        ("cutover_stall_p99_ms", max),
        ("revert_s", max),
        ("ratio_to_pt_osc", min),
    ):
        both = [value for name, value in figures.items() if name.endswith(figure)]
        if both:
            figures[figure] = worse(both, key=lambda value: value.value)
    return BenchReport("migration", figures)


def _measured(name: str, options: MigrationBenchOptions, say: Callable[[str], None]) -> dict[str, Figure]:
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    folder.chmod(0o755)
    try:
        with (
            EmbeddedKafka(folder / "kafka", heap_mb=1024, settings=CALM) as kafka,
            bench_database(name, folder / name) as database,
        ):
            worker = kafka.start_connect(f"debezium-{'postgres' if name == 'postgresql' else name}")  # type: ignore[arg-type]
            services = MigrationServices(kafka.bootstrap, database, folder)
            bench = _Bench(services, database, options, say)
            bench.make_tables()
            database.capture(worker, kafka.bootstrap)
            with services.running():
                return bench.figures()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Round(msgspec.Struct):
    """What one round has measured. ``copy_cpu_us``: per row, by who has used it. ``begin_seconds``: before the copy.

    ``stage_seconds``: by stage, as recorded on the topic.
    """

    copy_rows_per_s: float
    copy_cpu_us: dict[str, float]
    catch_up_changes_per_s: float
    stalls_ms: list[float]
    begin_seconds: float
    online_seconds: float
    revert_s: float
    stage_seconds: dict[str, float]
    pt_osc_seconds: float | None = None


class _Bench:
    """One database."""

    def __init__(
        self,
        services: MigrationServices,
        database: BenchDatabase,
        options: MigrationBenchOptions,
        say: Callable[[str], None],
    ) -> None:
        self._services, self._database, self._options, self._say = services, database, options, say

    def _tables(self) -> list[str]:
        each = 2 if self._services.has_pt_osc else 1
        return [f"items_{number}" for number in range(self._options.rounds * each)]

    def make_tables(self) -> None:
        """All that are changed, so that one connector captures them."""
        self._database.make(WARM_UP, WARM_UP_ROWS)
        for table in self._tables():
            self._database.make(table, self._options.rows)
            self._say(f"{self._database.name}: {table} has {self._options.rows} rows")

    def figures(self) -> dict[str, Figure]:
        """All rounds."""
        self._services.submit(WARM_UP, "warm-up", CHANGE, "online")
        self._services.await_end("warm-up")
        self._say(f"{self._database.name}: the small table is changed, Spark is up")
        rounds = []
        tables = iter(self._tables())
        for number in range(self._options.rounds):
            found = self._online(next(tables), f"online-{number}")
            if self._services.has_pt_osc:
                found.pt_osc_seconds = self._pt_osc(next(tables), f"pt-osc-{number}")
            self._say(f"{self._database.name}, round {number + 1}: {msgspec.to_builtins(found)}")
            rounds.append(found)
        return _figures(rounds)

    # --- one migration ---

    def _online(self, table: str, name: str) -> _Round:
        services, database = self._services, self._database
        writers = Writers(database, table, self._options.rows, self._options.writes_per_second)
        begun = time.monotonic()
        services.submit(table, name, CHANGE, "online", "--postpone-completion")
        paused = services.await_stage(name, {"paused", "copied"})
        cpu = services.cpu_of("owner")
        before = cpu.stock()
        copied = services.await_stage(name, {"copied"})
        spent = cpu.seconds_since(before)
        self._say(
            f"{database.name}: {table} is copied after {copied - begun:.0f} s, {copied - paused:.1f} s of it rows"
        )
        services.await_record(name, lambda record: record.is_ready_to_complete, "is ready")
        ready = time.monotonic()
        changes_per_s = self._catch_up(table)
        services.await_record(name, lambda record: record.is_ready_to_complete, "is ready again")
        frozen = time.monotonic() - ready
        services.command("complete", name)
        record = services.await_end(name)
        ended = time.monotonic()
        writers.await_statements(ended)
        stalls = _stalls(writers, ended)
        self._check(table, None, "min(extra)", 7)
        undone = self._revert(name, f"revert-{name}")
        self._check(table, writers.stop(), "0", 0)
        return _Round(
            copy_rows_per_s=self._options.rows / (copied - paused),
            copy_cpu_us={group: 1e6 * seconds / self._options.rows for group, seconds in spent.items()},
            catch_up_changes_per_s=changes_per_s,
            stalls_ms=stalls,
            begin_seconds=paused - begun,
            online_seconds=ended - begun - frozen,
            revert_s=undone,
            stage_seconds=seconds_in_stages(record, record.ended_ms),
        )

    def _revert(self, name: str, by: str) -> float:
        begun = time.monotonic()
        self._services.command("revert", name, "--id", by, "--timeout", "600")
        self._services.await_end(by)
        return time.monotonic() - begun

    def _pt_osc(self, table: str, name: str) -> float:
        writers = Writers(self._database, table, self._options.rows, self._options.writes_per_second)
        begun = time.monotonic()
        self._services.submit(table, name, CHANGE, "pt-osc")
        self._services.await_end(name)
        seconds = time.monotonic() - begun
        self._check(table, writers.stop(), "min(extra)", 7)
        return seconds

    def _catch_up(self, table: str) -> float:
        """Changes per second at which a feed comes through what was written while its agent was frozen."""
        services = self._services
        services.agent.freeze()
        time.sleep(self._options.backlog_seconds)
        before = services.position(table)
        services.agent.thaw()
        at = services.await_position(table, lambda offset: offset > before, "the feed into the copy continues")
        first, end = services.position(table), services.end(self._database.topic(table))
        done = services.await_position(table, lambda offset: offset >= end, "the feed into the copy catches up")
        return (services.position(table) - first) / max(done - at, LOOK_SECONDS)

    def _check(self, table: str, written: tuple[int, int] | None, new: str, least: int) -> None:
        """``written``: rows that have come, and the sum of ``v``; None while writers continue."""
        ((rows, total, extra),) = self._database.run(f"SELECT count(*), sum(v), {new} FROM {table}")
        counted = (int(rows), int(total)) if written is None else (self._options.rows + written[0], written[1])
        if (int(rows), int(total), int(extra)) != (*counted, least):
            raise BenchError(f"{table} holds {(rows, total, extra)} (rows, sum, {new}), not {(*counted, least)}")


def _figures(rounds: list[_Round]) -> dict[str, Figure]:
    figures = {
        "copy_rows_per_s": median_of([found.copy_rows_per_s for found in rounds], "rows/s", COPY_GOAL, 0),
        "catch_up_changes_per_s": median_of([found.catch_up_changes_per_s for found in rounds], "changes/s", None, 0),
        "cutover_stall_p99_ms": median_of([_p99(found.stalls_ms) for found in rounds], "ms", STALL_GOAL_MS),
        "begin_seconds": median_of([found.begin_seconds for found in rounds], "s"),
        "online_seconds": median_of([found.online_seconds for found in rounds], "s"),
        "revert_s": median_of([found.revert_s for found in rounds], "s"),
    }
    for group in rounds[0].copy_cpu_us:
        figures[f"copy_cpu_us_{group}"] = median_of([found.copy_cpu_us[group] for found in rounds], "µs/row", None, 2)
    for stage in rounds[0].stage_seconds:
        spent = [found.stage_seconds.get(stage, 0.0) for found in rounds]
        figures[f"stage_s_{stage.replace(' ', '_')}"] = median_of(spent, "s", None, 1)
    theirs = [found.pt_osc_seconds for found in rounds if found.pt_osc_seconds is not None]
    if theirs:
        figures["pt_osc_seconds"] = median_of(theirs, "s")
        ratios = [found.pt_osc_seconds / found.online_seconds for found in rounds if found.pt_osc_seconds is not None]
        figures["ratio_to_pt_osc"] = median_of(ratios, "", None, 2)
    return figures


def _stalls(writers: Writers, ended: float) -> list[float]:
    """The longest waits around the cut-over, as many as there are writers, ms."""
    around = [seconds for begun, seconds in writers.waits if begun > ended - AROUND_SECONDS]
    return [1_000 * seconds for seconds in sorted(around)[-WRITERS:]]


def _p99(values: list[float]) -> float:
    """With less than a hundred values: the greatest."""
    return sorted(values)[max(0, math.ceil(0.99 * len(values)) - 1)]
