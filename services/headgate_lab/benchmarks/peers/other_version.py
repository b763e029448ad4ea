"""A peer: another version of Headgate itself, from a checkout of it (``--race-with PATH``), in a process of its own.

It runs other_version_program.py with the checkout's packages before this version's, and receives one line of JSON per
run.
"""

import sys
from pathlib import Path
from typing import Final, Self

import psutil

from headgate_lab.benchmarks.parts import BenchError, BenchParts
from headgate_lab.benchmarks.peers.piped_program import PipedProgram
from headgate_lab.benchmarks.workload import Workload

PROGRAM: Final = Path(__file__).with_name("other_version_program.py")

PACKAGES: Final = ("headgate_lab", "headgate")
"""Where a version has its benchmarks: beside the product since 28f391f, in it before."""

ANSWERS_BEGIN: Final = "race-with: "


class OtherVersion(PipedProgram):
    """The version of the checkout at ``path``; raises BenchError where that is none."""

    def __init__(self, path: Path, folder: Path, parts: BenchParts) -> None:
        packages = path.resolve() / "services"
        if not any((packages / each / "benchmarks" / "pipeline.py").is_file() for each in PACKAGES):
            raise BenchError(f"--race-with {path}: it has no services/headgate_lab/benchmarks")
        self._folder = folder
        # -P: modules of the program's own folder have names of packages that it imports.
        command = [sys.executable, "-P", str(PROGRAM), parts.bootstrap, parts.dsn, str(folder)]
        super().__init__(command, ANSWERS_BEGIN, f"the version at {packages}", {"PYTHONPATH": str(packages)})

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        return super().__enter__()

    def processes(self) -> list[psutil.Process]:
        """Its Spark: the JVM and the Python workers, as of this version."""
        return super().processes()[1:]

    def run(self, workload: Workload, database: str, dsn: str, table: str, number: int) -> float:
        """Seconds of one run, as ``run_headgate`` counts them. Raises BenchError."""
        asked = [
            [workload.topic, workload.changes, workload.partitions, workload.with_schema, workload.seed],
            [workload.mix, workload.shape, workload.with_before],
            [database, dsn, table, number],
        ]
        return float(self.ask(asked))
