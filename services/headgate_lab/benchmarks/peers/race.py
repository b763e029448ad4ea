"""Headgate beside its peers: every side in turn, on one topic, into one database, round after round.

A run counts only if the table is exactly right afterwards (row count and two sums that the generator knows); a side
that is not ends the bench with its name. Each side's time goes from receiving the topic to its last row; the
processes of all sides are up before.
"""

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import psutil

from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.parts import BenchError, bench_parts, spark_rows, spark_rows_since
from headgate_lab.benchmarks.peers.by_hand import ByHand, run_by_hand
from headgate_lab.benchmarks.peers.debezium import DEBEZIUM_SETTINGS
from headgate_lab.benchmarks.peers.measuring import MeasuredRun, measured
from headgate_lab.benchmarks.peers.sides import Peers
from headgate_lab.benchmarks.pipeline import run_headgate
from headgate_lab.benchmarks.shapes import SHAPES
from headgate_lab.benchmarks.workload import Expected, Workload, create_topic, fill_topic

OTHER: Final = "other_version"
SIDES: Final = ("headgate", *(f"debezium_{name}" for name in DEBEZIUM_SETTINGS), "flink", "bare_hands")

GOALS: Final = {"debezium_best": 2.5, "flink": 1.5, "bare_hands": 0.75}
"""Headgate's changes/s over the peer's: the goals of docs/benchmarks.md."""

RUN_SECONDS_MAX: Final = 1_800.0
LOOK_SECONDS: Final = 0.5
"""How often a peer's table is looked at: a look costs the database some 30 ms."""

GOAL_OTHER_VERSION: Final = 0.85
"""Of another version that is raced with."""

WARM_UP_CHANGES: Final = 250_000
WARM_UP_SECONDS: Final = 30.0
WARM_UP_CHANGES_MAX: Final = 2_000_000
"""A side is warm after so many seconds of load, or so many changes: the JVM's compiler needs that long."""


class PeersOptions(msgspec.Struct, frozen=True):
    """``only`` some sides (Headgate always runs), ``races`` of RACES; ``race_with`` a checkout of another version."""

    races: Sequence[str]
    changes: int = 500_000
    rounds: int = 5
    only: Sequence[str] = SIDES
    race_with: Path | None = None
    partitions: int = 4
    seed: int = 20261121


class Race(msgspec.Struct, frozen=True):
    """What is raced: a mix and a shape of workload.py, with schemas in the events or without, into which database."""

    mix: str = "insert"
    shape: str = "usual"
    with_schema: bool = True
    database: str = "postgresql"

    def workload(self, topic: str, changes: int, options: PeersOptions) -> Workload:
        """What is written to ``topic``: with old rows, without which Flink refuses updates."""
        return Workload(
            topic,
            changes,
            options.partitions,
            self.with_schema,
            options.seed,
            self.mix,
            self.shape,
            with_before=True,
        )

    def can_run(self, side: str) -> bool:
        """Debezium's sink needs schemas; Flink's connector for MariaDB is in no registry that we reach."""
        if side.startswith("debezium_"):
            return self.with_schema
        return side != "flink" or self.database == "postgresql"


RACES: Final[dict[str, Race]] = {
    "insert": Race(),
    "update": Race("update"),
    "delete": Race("delete"),
    "narrow": Race(shape="narrow"),
    "wide": Race(shape="wide"),
    "plain": Race(with_schema=False),
    "mariadb_insert": Race(database="mariadb"),
    "mariadb_update": Race("update", database="mariadb"),
    "mariadb_delete": Race("delete", database="mariadb"),
}
"""By name, which the names of its figures end with (but for the first one's)."""


class _Track:
    """One race: its topic, filled, and its target."""

    def __init__(self, peers: Peers, race: Race, workload: Workload) -> None:
        create_topic(peers.parts.bootstrap, workload.topic, workload.partitions)
        self._expected: Expected = fill_topic(peers.parts.bootstrap, workload)
        self._peers = peers
        self._race = race
        self._workload = workload
        self._target = peers.target(race.database)

    def run(self, side: str, number: int) -> MeasuredRun:
        """One run of a side on a new table. Raises BenchError when the table is not exactly right."""
        table = f"{self._target.schema}.{side}_{number}"
        if side == "headgate":
            run = self._headgate(table, number)
        elif side == "bare_hands":
            run = self._bare_hands(table)
        elif side == "flink":
            run = self._flink(table)
        elif side == OTHER:
            run = self._other_version(table, number)
        else:
            run = self._debezium(side.removeprefix("debezium_"), table)
        try:
            self._target.check(table, self._expected)
        except BenchError as error:
            raise BenchError(f"{side}: {error}") from error
        return run

    def _headgate(self, table: str, number: int) -> MeasuredRun:
        parts = self._peers.parts
        rows_before = spark_rows(parts)
        run = measured(
            lambda: run_headgate(parts, self._workload, self._target, table, number),
            lambda: [*parts.jvm(), *parts.workers()],
        )
        run.spark_input_rows = spark_rows_since(parts, rows_before, self._workload.changes)
        return run

    def _bare_hands(self, table: str) -> MeasuredRun:
        race, workload = self._race, self._workload
        self._target.create_shape(table, SHAPES[race.shape])
        others = {p.pid for p in psutil.Process().children(recursive=True)}

        def hands() -> list[psutil.Process]:
            born = [p for p in psutil.Process().children() if p.pid not in others]
            return [process for child in born for process in tree(child.pid)]

        work = ByHand(
            bootstrap=self._peers.parts.bootstrap,
            topic=workload.topic,
            partitions=workload.partitions,
            database=race.database,
            dsn=self._target.dsn,
            table=table,
            shape=race.shape,
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = measured(lambda: run_by_hand(work, psutil.cpu_count() or 1), hands)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # they have ended: their own clocks are gone
        run.cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return run

    def _other_version(self, table: str, number: int) -> MeasuredRun:
        other, target = self._peers.other, self._target
        target.create_shape(table, SHAPES[self._race.shape])
        return measured(
            lambda: other.run(self._workload, self._race.database, target.dsn, table, 500_000 + number),
            other.processes,
        )

    def _flink(self, table: str) -> MeasuredRun:
        flink, race, workload = self._peers.flink, self._race, self._workload
        self._target.create_shape(table, SHAPES[race.shape])
        what = (SHAPES[race.shape], race.with_schema)
        return measured(
            lambda: flink.run(workload.topic, table, self._target.jdbc, what, self._is_done(table)), flink.processes
        )

    def _debezium(self, setting: str, table: str) -> MeasuredRun:
        connect = self._peers.connect
        to = (self._race.database, self._target.jdbc)
        return measured(
            lambda: connect.run(self._workload.topic, table, setting, to, self._is_done(table)), connect.processes
        )

    def _is_done(self, table: str) -> Callable[[], bool]:
        deadline = time.monotonic() + RUN_SECONDS_MAX

        def look() -> bool:
            if time.monotonic() > deadline:
                raise BenchError(f"{table} was not complete within {RUN_SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)
            return self._target.found(table) == self._expected

        return look


def bench_peers(options: PeersOptions, say: Callable[[str], None]) -> BenchReport:
    """Run every race; ``say`` receives the progress. Raises BenchError when a run is not exactly right."""
    unknown = sorted(set(options.only) - set(SIDES)) + sorted(set(options.races) - set(RACES))
    if unknown:
        raise BenchError(f"unknown: {', '.join(unknown)}; there are {', '.join((*SIDES, *RACES))}")
    figures: dict[str, Figure] = {}
    with bench_parts() as parts, ExitStack() as stack:
        peers = Peers(parts, stack, options.race_with)
        warm: set[tuple[str, str]] = set()
        for at, name in enumerate(options.races):
            race = RACES[name]
            sides = [s for s in SIDES if (s == "headgate" or s in options.only) and race.can_run(s)]
            sides += [OTHER] if options.race_with is not None else []
            _warm_up(peers, race, [s for s in sides if (s, race.database) not in warm], (options, at), say)
            warm |= {(side, race.database) for side in sides}
            figures |= _race(peers, name, sides, (options, at), say)
    return BenchReport("peers", figures)


def _warm_up(
    peers: Peers, race: Race, sides: Sequence[str], task: tuple[PeersOptions, int], say: Callable[[str], None]
) -> None:
    """Runs of every side that has not met this database yet, until it is warm; not counted."""
    options, at = task
    if not sides:
        return
    changes = min(WARM_UP_CHANGES, options.changes)
    track = _Track(peers, race, race.workload(f"bench.public.warm_{at}", changes, options))
    for place, side in enumerate(sides):
        say(f"warming up {side} ({race.database})")
        seconds, runs = 0.0, 0
        while seconds < WARM_UP_SECONDS and runs * changes < WARM_UP_CHANGES_MAX:
            seconds += track.run(side, 90_000 + 1_000 * (10 * at + place) + runs).seconds
            runs += 1


def _race(
    peers: Peers, name: str, sides: Sequence[str], task: tuple[PeersOptions, int], say: Callable[[str], None]
) -> dict[str, Figure]:
    options, at = task
    race = RACES[name]
    workload = race.workload(f"bench.public.peers_{name}", options.changes, options)
    track = _Track(peers, race, workload)
    runs: dict[str, list[MeasuredRun]] = {side: [] for side in sides}
    for round_number in range(options.rounds):
        for side in sides:
            run = track.run(side, 1_000 * (at + 1) + round_number)
            runs[side].append(run)
            say(f"{name}, round {round_number + 1}: {side} {options.changes / run.seconds:,.0f}/s")
    return _figures(options.changes, runs, "" if name == "insert" else f"_{name}")


def _figures(changes: int, runs: dict[str, list[MeasuredRun]], suffix: str) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    ours = [run.seconds for run in runs["headgate"]]
    for side, found in runs.items():
        speeds = [changes / run.seconds for run in found]
        figures[f"{side}_changes_per_s{suffix}"] = median_of(speeds, "changes/s", None, 0)
        cpu = [run.cpu_seconds / changes * 1e6 for run in found]
        figures[f"{side}_cpu_s_per_million{suffix}"] = median_of(cpu, "s", None, 2)
        figures[f"{side}_peak_mib{suffix}"] = median_of([run.peak_mib for run in found], "MiB", None, 0)
        rows = [float(run.spark_input_rows) for run in found if run.spark_input_rows is not None]
        if rows:
            figures[f"spark_input_rows{suffix}"] = median_of(rows, "rows", None, 0)
        if side != "headgate":
            ratios = [theirs.seconds / mine for theirs, mine in zip(found, ours, strict=True)]
            figures[f"ratio_to_{side}{suffix}"] = median_of(
                ratios, "ratio", GOAL_OTHER_VERSION if side == OTHER else GOALS.get(side), 3
            )
    return figures
