"""A peer: another version of Headgate itself, from a checkout of it (``--race-with PATH``), in a process of its own.

It runs other_version_program.py with the checkout's packages before this version's, and receives one line of JSON per
run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.parts import BenchError, Parts
from headgate_lab.benchmarks.workload import Workload

PROGRAM: Final = Path(__file__).with_name("other_version_program.py")

PACKAGES: Final = ("headgate_lab", "headgate")
"""Where a version has its benchmarks: beside the product since 28f391f, in it before."""

SAYS: Final = "race-with: "
"""Before each of its answers: Spark writes to the same stream now and then."""

END_SECONDS_MAX: Final = 60.0
"""Spark's end on a slow machine; then the process and its children are killed."""


class OtherVersion:
    """The version of the checkout at ``path``; raises BenchError where that is none."""

    def __init__(self, path: Path, folder: Path, parts: Parts) -> None:
        self._packages = path.resolve() / "services"
        if not any((self._packages / each / "benchmarks" / "pipeline.py").is_file() for each in PACKAGES):
            raise BenchError(f"--race-with {path}: it has no services/headgate_lab/benchmarks")
        self._folder = folder
        self._parts = parts
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        # -P: modules of the program's own folder have names of packages that it imports.
        command = [sys.executable, "-P", str(PROGRAM), self._parts.bootstrap, self._parts.dsn, str(self._folder)]
        environment = {**os.environ, "PYTHONPATH": str(self._packages)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None:
            return
        born = tree(process.pid)
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.close()
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for each in born:
                each.kill()

    def processes(self) -> list[psutil.Process]:
        """Its Spark: the JVM and the Python workers, as of this version."""
        return [] if self._process is None else tree(self._process.pid)[1:]

    def run(self, workload: Workload, database: str, dsn: str, table: str, number: int) -> float:
        """Seconds of one run, as ``run_headgate`` counts them. Raises BenchError."""
        asked = [
            [workload.topic, workload.changes, workload.partitions, workload.with_schema, workload.seed],
            [workload.mix, workload.shape, workload.with_before],
            [database, dsn, table, number],
        ]
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in self._process.stdout:
            if line.startswith(SAYS):
                return line.removeprefix(SAYS).strip()
        raise BenchError(f"the version at {self._packages} ended; its output is above")
