"""A peer: what a user of Spark writes for a lake, ``foreachBatch`` with MERGE INTO or an append, in its own process.

It runs lake_recipe_program.py, whose Spark has the jars of Delta and Iceberg, and receives one line of JSON per run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import psutil

from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.parts import BenchError

__all__ = ["LakeRecipe", "RecipeRun"]

PROGRAM: Final = "headgate_lab.benchmarks.peers.lake_recipe_program"

SAYS: Final = "lake-recipe: "
"""Before each of its answers: Spark writes to the same stream now and then."""

END_SECONDS_MAX: Final = 60.0
"""Spark's end on a slow machine; then the process and its children are killed."""


class RecipeRun(msgspec.Struct, frozen=True):
    """One run: the query from its start to its end, and how long each of its batches took to write."""

    seconds: float
    batches: list[float]


class LakeRecipe:
    """One Spark; ``run`` is one streaming query over all that a topic has (``availableNow``)."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        jars = [str(jar) for name in _SETS for jar in artifacts.ensure(name)]
        command = [sys.executable, "-m", PROGRAM, self._bootstrap, str(self._folder), ",".join(jars)]
        java = java_home_for_spark()
        environment = os.environ if java is None else {**os.environ, "JAVA_HOME": str(java)}
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

    def processes(self) -> Sequence[psutil.Process]:
        """The program, its JVM and its Python workers."""
        return [] if self._process is None else tree(self._process.pid)

    def create(self, kind: str, path: Path, rows: Path | None) -> None:
        """A table in the folder: with the rows of that Parquet file, or for changes."""
        self._ask("create", kind, path, rows)

    def run(self, kind: str, path: Path, mode: str, topic: str, rows_max: int) -> RecipeRun:
        """Apply the topic. Raises BenchError."""
        return msgspec.json.decode(self._ask("run", kind, path, mode, topic, rows_max), type=RecipeRun)

    def _ask(self, *what: object) -> str:
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(json.dumps(what, default=str) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in self._process.stdout:
            if line.startswith(SAYS):
                return line.removeprefix(SAYS).strip()
        raise BenchError("the recipe's Spark ended; its output is above")


_SETS: Final[tuple[artifacts.ArtifactSet, ...]] = ("spark-kafka", "spark-delta", "spark-iceberg")
