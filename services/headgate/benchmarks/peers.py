"""Headgate beside its peers: every side in turn, on one topic, into one PostgreSQL, round after round.

A run counts only if the table is exactly right afterwards (row count and two sums that the generator knows); a side
that is not ends the bench with its name. Each side's time goes from being told of the topic to its last row:
Headgate's and Connect's processes are up before, as they would be; bare hands' as well.
"""

import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from psycopg import errors, sql

from headgate.benchmarks.bare_hands import run_bare_hands
from headgate.benchmarks.connect_peer import DEBEZIUM_SETTINGS, ConnectPeer
from headgate.benchmarks.cpu import CpuClock, tree
from headgate.benchmarks.figures import Figure, Report, median_of
from headgate.benchmarks.parts import BenchError, Parts, bench_parts
from headgate.benchmarks.pipeline import check_table, create_table, run_headgate
from headgate.benchmarks.workload import MIXES, Expected, Workload, create_topic, fill_topic

__all__ = ["SIDES", "PeersOptions", "bench_peers"]

SIDES: Final = ("headgate", *(f"debezium_{name}" for name in DEBEZIUM_SETTINGS), "bare_hands")

GOALS: Final = {"debezium_best": 2.5, "bare_hands": 0.75}
"""Headgate's changes/s over the peer's: design §11."""

RUN_SECONDS_MAX: Final = 1_800.0
LOOK_SECONDS: Final = 0.5
"""How often a peer's table is looked at: a look costs the database some 30 ms."""

MEMORY_SECONDS: Final = 0.2
WARM_UP_CHANGES: Final = 100_000


class PeersOptions(msgspec.Struct, frozen=True):
    """``only`` some sides (Headgate always runs), ``mixes`` of workload.MIXES; the events carry their schemas."""

    changes: int = 500_000
    rounds: int = 5
    only: Sequence[str] = SIDES
    mixes: Sequence[str] = tuple(MIXES)
    partitions: int = 4
    seed: int = 20261121


class _Run(msgspec.Struct):
    """One side, one run."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


class _Memory(threading.Thread):
    """Watches how large a group of processes becomes."""

    def __init__(self, members: Callable[[], Sequence[psutil.Process]]) -> None:
        super().__init__(daemon=True)
        self._members = members
        self._over = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._over.wait(MEMORY_SECONDS):
            total = 0
            for process in self._members():
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_bytes = max(self.peak_bytes, total)

    def stop(self) -> float:
        """The most so far, in MiB."""
        self._over.set()
        self.join()
        return self.peak_bytes / (1 << 20)


class _Race:
    """One topic and everybody who reads it."""

    def __init__(self, parts: Parts, connect: ConnectPeer | None, workload: Workload, expected: Expected) -> None:
        self._parts = parts
        self._connect = connect
        self._workload = workload
        self._expected = expected

    def run(self, side: str, number: int) -> _Run:
        """One run of a side on a new table. Raises BenchError when the table is not exactly right."""
        table = f"public.{side}_{number}"
        if side == "headgate":
            run = self._measured(
                lambda: run_headgate(self._parts, self._workload, table, number),
                lambda: [*self._parts.jvm(), *self._parts.workers()],
            )
        elif side == "bare_hands":
            run = self._bare_hands(table)
        else:
            run = self._debezium(side.removeprefix("debezium_"), table)
        try:
            check_table(self._parts, table, self._expected)
        except BenchError as error:
            raise BenchError(f"{side}: {error}") from error
        return run

    def _measured(self, work: Callable[[], float], members: Callable[[], Sequence[psutil.Process]]) -> _Run:
        clock = CpuClock({"side": members})
        before = clock.stock()
        memory = _Memory(members)
        memory.start()
        try:
            seconds = work()
        finally:
            peak = memory.stop()
        return _Run(seconds, clock.seconds_since(before)["side"], peak)

    def _bare_hands(self, table: str) -> _Run:
        create_table(self._parts, table)
        others = {p.pid for p in psutil.Process().children(recursive=True)}

        def hands() -> list[psutil.Process]:
            born = [p for p in psutil.Process().children() if p.pid not in others]
            return [process for child in born for process in tree(child.pid)]

        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = self._measured(
            lambda: run_bare_hands(
                self._parts.bootstrap,
                self._workload.topic,
                self._workload.partitions,
                dsn=self._parts.dsn,
                table=table,
                processes=psutil.cpu_count() or 1,
            ),
            hands,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # they have ended: their own clocks are gone
        run.cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return run

    def _debezium(self, name: str, table: str) -> _Run:
        connect = self._connect
        if connect is None:
            raise BenchError("Connect is not running")
        query = sql.SQL("SELECT count(*), coalesce(sum(ver), 0), coalesce(sum(qty), 0) FROM {}")
        wanted = msgspec.structs.astuple(self._expected)
        deadline = time.monotonic() + RUN_SECONDS_MAX

        def is_done(connection: Any) -> bool:
            if time.monotonic() > deadline:
                raise BenchError(f"debezium_{name} did not come to its end within {RUN_SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)
            try:
                found = connection.execute(query.format(sql.Identifier(*table.split(".")))).fetchone()
            except errors.UndefinedTable:  # it has not created it yet
                return False
            return found is not None and tuple(map(int, found)) == wanted

        with self._parts.connect() as connection:
            return self._measured(
                lambda: connect.run(self._workload.topic, table, DEBEZIUM_SETTINGS[name], lambda: is_done(connection)),
                connect.processes,
            )


def bench_peers(options: PeersOptions, say: Callable[[str], None]) -> Report:
    """Run every workload; ``say`` is told of the progress. Raises BenchError when a run is not exactly right."""
    unknown = sorted(set(options.only) - set(SIDES)) + sorted(set(options.mixes) - set(MIXES))
    if unknown:
        raise BenchError(f"unknown: {', '.join(unknown)}; there are {', '.join((*SIDES, *MIXES))}")
    sides = [side for side in SIDES if side == "headgate" or side in options.only]
    figures: dict[str, Figure] = {}
    with bench_parts() as parts:
        needs_connect = any(side.startswith("debezium_") for side in sides)
        connect = ConnectPeer(Path(parts.scratch) / "connect", parts.bootstrap, parts.dsn) if needs_connect else None
        try:
            if connect is not None:
                connect.__enter__()
            small = msgspec.structs.replace(options, changes=min(WARM_UP_CHANGES, options.changes))
            warm = _race(parts, connect, small, "insert", "warm")
            for number, side in enumerate(sides):
                say(f"warming up {side}")
                warm.run(side, 90_000 + number)
            for at, mix in enumerate(options.mixes):
                race = _race(parts, connect, options, mix, mix)
                runs: dict[str, list[_Run]] = {side: [] for side in sides}
                for round_number in range(options.rounds):
                    for side in sides:
                        run = race.run(side, 1_000 * (at + 1) + round_number)
                        runs[side].append(run)
                        say(f"{mix}, round {round_number + 1}: {side} {options.changes / run.seconds:,.0f}/s")
                figures |= _figures(options.changes, runs, "" if mix == "insert" else f"_{mix}")
        finally:
            if connect is not None:
                connect.__exit__(None, None, None)
    return Report("peers", figures)


def _race(parts: Parts, connect: ConnectPeer | None, options: PeersOptions, mix: str, name: str) -> _Race:
    topic = f"bench.public.peers_{name}"
    workload = Workload(topic, options.changes, options.partitions, True, options.seed, mix)
    create_topic(parts.bootstrap, workload.topic, workload.partitions)
    return _Race(parts, connect, workload, fill_topic(parts.bootstrap, workload))


def _figures(changes: int, runs: dict[str, list[_Run]], suffix: str) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    ours = [run.seconds for run in runs["headgate"]]
    for side, measured in runs.items():
        figures[f"{side}_changes_per_s{suffix}"] = median_of(
            [changes / r.seconds for r in measured], "changes/s", None, 0
        )
        cpu = [r.cpu_seconds / changes * 1e6 for r in measured]
        figures[f"{side}_cpu_s_per_million{suffix}"] = median_of(cpu, "s", None, 2)
        figures[f"{side}_peak_mib{suffix}"] = median_of([r.peak_mib for r in measured], "MiB", None, 0)
        if side != "headgate":
            ratios = [theirs.seconds / mine for theirs, mine in zip(measured, ours, strict=True)]
            figures[f"ratio_to_{side}{suffix}"] = median_of(ratios, "ratio", GOALS.get(side), 3)
    return figures
