"""Changes into Delta and Iceberg tables, beside what a user of Spark writes today: ``foreachBatch`` with MERGE INTO.

Both sides read the same topics in batches of as many changes, and commit once for each batch. A run counts only if its
table is right: the rows, and of ``mode: append`` the number of changes and what they come to. Headgate is exactly once,
the recipe is not.

Wall times of a shared machine are only good as a ratio of runs beside each other; processor times are better.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.config.secrets import ALLOWED_FOLDERS
from headgate_lab.benchmarks.cpu import CpuClock, tree
from headgate_lab.benchmarks.figures import BenchReport, Figure, median_of
from headgate_lab.benchmarks.lake_commits import commit_times
from headgate_lab.benchmarks.lake_options import LakeOptions
from headgate_lab.benchmarks.lake_tables import KINDS, Tables, rows_of
from headgate_lab.benchmarks.parts import BenchError, BenchParts, bench_parts, spark_rows, spark_rows_since
from headgate_lab.benchmarks.peers.lake_recipe import LakeRecipe
from headgate_lab.benchmarks.pipeline import run_task
from headgate_lab.benchmarks.workload import Expected, Workload, create_topic, fill_topic

__all__ = ["bench_lake"]

MODES: Final = ("upsert", "append")
MIXES: Final = {"of_keys": "", "inserts_only": "_inserts"}
"""The workload's mix → what its figures have behind their names."""

INTERVAL_SECONDS: Final = 1.0
"""The least. Full batches are committed at once, so it is only waited for before the last one."""

WARM_UP_BATCHES: Final = 2
"""For the compilers of both JVMs; not counted."""

ENDS_SHARE: Final = 10
"""The first and the last tenth of commits are compared."""


class _Side(msgspec.Struct):
    """What was measured of one side, by ``{kind}_{mode}`` and the mix's suffix."""

    per_second: dict[str, list[float]] = {}
    cpu_us: dict[str, list[float]] = {}
    written: dict[str, list[float]] = {}
    live: dict[str, list[float]] = {}


class _Filled(msgspec.Struct, frozen=True):
    """A topic, what a table must hold after it, and what it holds before."""

    workload: Workload
    expected: Expected
    rows: pa.Table
    parquet: Path


def bench_lake(options: LakeOptions, say: Callable[[str], None]) -> BenchReport:
    """All sides in turn; ``say`` receives the progress. Raises BenchError when a table is not exactly right."""
    ours, recipe = _Side(), _Side()
    commits: dict[str, list[float]] = {}
    with _folder() as folder, bench_parts() as parts, LakeRecipe(folder / "recipe", parts.bootstrap) as peer:
        bench = _Bench(options, parts, peer, folder, say)
        warm = bench.filled("warm", "of_keys", WARM_UP_BATCHES * options.batch)
        for kind in options.kinds:
            for mode in MODES:
                bench.run_both(kind, mode, warm, _Side(), _Side())
        topics = {mix: bench.filled(f"orders{suffix}", mix, options.changes) for mix, suffix in MIXES.items()}
        for number in range(1, options.rounds + 1):
            for kind in options.kinds:
                for mode in MODES:
                    for filled in topics.values():
                        found = bench.run_both(kind, mode, filled, ours, recipe)
                        say(f"round {number}, {found}")
        for kind in options.kinds:
            for mode in MODES:
                commits[f"{kind}_{mode}"] = commit_times(bench.tables[kind], mode, options.commits)
                say(f"{options.commits} commits, {kind} {mode}: {_ends_of(commits[f'{kind}_{mode}'])} ms")
    return BenchReport("lake", _figures(ours, recipe, commits))


@contextmanager
def _folder() -> Iterator[Path]:
    """Where all tables are. Spark's workers must find it among the allowed folders, as the agent's do."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-bench-lake-"))
    before = os.environ.get(ALLOWED_FOLDERS)
    os.environ[ALLOWED_FOLDERS] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ[ALLOWED_FOLDERS]
        else:
            os.environ[ALLOWED_FOLDERS] = before
        shutil.rmtree(folder, ignore_errors=True)


class _Bench:
    """What all runs share."""

    def __init__(
        self, options: LakeOptions, parts: BenchParts, peer: LakeRecipe, folder: Path, say: Callable[[str], None]
    ) -> None:
        self.tables: dict[str, Tables] = {kind: KINDS[kind](folder / kind) for kind in options.kinds}
        self._options = options
        self._parts = parts
        self._peer = peer
        self._folder = folder
        self._say = say
        self._runs = 0
        self._clock = CpuClock(
            {
                "ours": lambda: [psutil.Process(), *(tree(parts.runtime.pid) if parts.runtime.pid else ())],
                "recipe": peer.processes,
            }
        )

    def filled(self, name: str, mix: str, changes: int) -> _Filled:
        """A topic, and the rows that its table has before."""
        keys = self._options.keys if mix == "of_keys" else 0
        workload = Workload(
            f"bench.public.{name}",
            changes,
            self._options.partitions,
            with_schema=False,
            seed=self._options.seed,
            mix=mix,
            rows_before=keys,
        )
        self._say(f"seed {workload.seed}: writing {changes} changes to {workload.topic}")
        create_topic(self._parts.bootstrap, workload.topic, workload.partitions)
        expected = fill_topic(self._parts.bootstrap, workload)
        rows, parquet = rows_of(workload), self._folder / f"{name}.parquet"
        pq.write_table(rows, parquet)
        return _Filled(workload, expected, rows, parquet)

    def run_both(self, kind: str, mode: str, filled: _Filled, ours: _Side, recipe: _Side) -> str:
        """One run of each side into new tables, whose rows are compared; a line about it."""
        self._runs += 1
        tables, table = self.tables[kind], f"run_{self._runs}"
        figure = f"{kind}_{mode}{MIXES[filled.workload.mix]}"
        tables.create(table, filled.rows if mode == "upsert" else None)
        seconds = self._timed("ours", figure, filled, ours, lambda: self._run_ours(tables, table, mode, filled))
        path = tables.recipe_path(table)
        self._peer.create(kind, path, filled.parquet if mode == "upsert" else None)
        topic, batch = filled.workload.topic, self._options.batch
        by_recipe = self._timed(
            "recipe", figure, filled, recipe, lambda: self._peer.run(kind, path, mode, topic, batch).seconds
        )
        for is_recipe, side in ((False, ours), (True, recipe)):
            self._check(tables, table, mode, filled, by_recipe=is_recipe)
            written, live = tables.files(table, by_recipe=is_recipe)
            side.written.setdefault(figure, []).append(float(written))
            side.live.setdefault(figure, []).append(float(live))
        if not tables.rows(table, mode, by_recipe=False).equals(tables.rows(table, mode, by_recipe=True)):
            raise BenchError(f"{figure}: the rows of the two tables differ")
        changes = filled.workload.changes
        return f"{figure}: headgate {changes / seconds:,.0f}/s, recipe {changes / by_recipe:,.0f}/s"

    def _timed(self, group: str, figure: str, filled: _Filled, side: _Side, run: Callable[[], float]) -> float:
        before = self._clock.stock()
        seconds = run()
        changes = filled.workload.changes
        spent = self._clock.seconds_since(before)[group]
        side.per_second.setdefault(figure, []).append(changes / seconds)
        side.cpu_us.setdefault(figure, []).append(spent * 1e6 / changes)
        return seconds

    def _run_ours(self, tables: Tables, table: str, mode: str, filled: _Filled) -> float:
        workload, rows_before = filled.workload, spark_rows(self._parts)
        seconds = run_task(
            self._parts,
            workload,
            tables.sink(mode, INTERVAL_SECONDS),
            f"bench.{table}",
            self._runs,
            batch_rows_max=self._options.batch,
        )
        spark_rows_since(self._parts, rows_before, workload.changes)
        return seconds

    @staticmethod
    def _check(tables: Tables, table: str, mode: str, filled: _Filled, *, by_recipe: bool) -> None:
        """Raise BenchError unless the table is exactly what was written."""
        who = "the recipe's" if by_recipe else "Headgate's"
        if mode == "append" and (count := tables.count(table, by_recipe=by_recipe)) != filled.workload.changes:
            raise BenchError(f"{who} table has {count} changes, expected {filled.workload.changes}")
        rows = tables.rows(table, mode, by_recipe=by_recipe)
        expected = filled.expected
        if mode == "append" and filled.workload.rows_before:
            return  # rows that did not change are in no change; both sides are compared with each other
        found = Expected(rows.num_rows, sum(rows["ver"].to_pylist()), sum(rows["qty"].to_pylist()))
        if found != expected:
            raise BenchError(f"{who} table of kind {tables.kind} has {found}, expected {expected}")


def _ends_of(times: list[float]) -> str:
    first, last = _first_and_last(times)
    return f"{first:.1f}, later {last:.1f}"


def _first_and_last(times: list[float]) -> tuple[float, float]:
    share = max(len(times) // ENDS_SHARE, 1)
    return median(times[:share]), median(times[-share:])


def _figures(ours: _Side, recipe: _Side, commits: dict[str, list[float]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, found in ours.per_second.items():
        ratios = [mine / theirs for mine, theirs in zip(found, recipe.per_second[name], strict=True)]
        spent = [theirs / mine for mine, theirs in zip(ours.cpu_us[name], recipe.cpu_us[name], strict=True)]
        figures[f"{name}_ratio_to_recipe"] = median_of(ratios, "ratio", digits=3)
        figures[f"{name}_cpu_ratio_to_recipe"] = median_of(spent, "ratio", digits=3)
        for who, side in (("", ours), ("_recipe", recipe)):
            figures[f"{name}{who}_changes_per_s"] = median_of(side.per_second[name], "changes/s", digits=0)
            figures[f"{name}{who}_cpu_us"] = median_of(side.cpu_us[name], "µs/change", digits=2)
            figures[f"{name}{who}_files_written"] = median_of(side.written[name], "files", digits=0)
            figures[f"{name}{who}_files_live"] = median_of(side.live[name], "files", digits=0)
    for name, times in commits.items():
        first, last = _first_and_last(times)
        figures[f"{name}_commit_ms_first"] = Figure(round(first, 1), "ms", None, len(times) // ENDS_SHARE, 0.0)
        figures[f"{name}_commit_ms_last"] = Figure(round(last, 1), "ms", None, len(times) // ENDS_SHARE, 0.0)
    return figures
