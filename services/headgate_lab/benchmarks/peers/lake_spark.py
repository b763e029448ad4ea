"""A Spark with the jars of Delta and Iceberg, in a process of its own (lake_recipe_program.py).

The results of its queries are Arrow files in its folder.
"""

import json
import sys
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from headgate_lab.benchmarks.peers.piped_program import PipedProgram

__all__ = ["LakeSpark", "SparkRefusedError"]

PROGRAM: Final = "headgate_lab.benchmarks.peers.lake_recipe_program"

ANSWERS_BEGIN: Final = "lake-recipe: "

_SETS: Final[tuple[artifacts.ArtifactSet, ...]] = ("spark-kafka", "spark-delta", "spark-iceberg")


class SparkRefusedError(Exception):
    """Spark's error for a statement, in its own words."""


class LakeSpark(PipedProgram):
    """One Spark. Requests are made by one thread at a time."""

    def __init__(self, folder: Path, bootstrap: str = "") -> None:
        """``bootstrap``: brokers of the topics that it reads, if any."""
        self._folder = folder
        jars = [str(jar) for name in _SETS for jar in artifacts.ensure(name)]
        command = [sys.executable, "-m", PROGRAM, bootstrap, str(folder), ",".join(jars)]
        java = java_home_for_spark()
        settings = {} if java is None else {"JAVA_HOME": str(java)}
        super().__init__(command, ANSWERS_BEGIN, "the recipe's Spark", settings)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        return super().__enter__()

    def query(self, statement: str) -> pa.Table:
        """What a statement returns. Raises SparkRefusedError."""
        with pa.OSFile(self._result("query", statement)["file"]) as file:
            return pa.ipc.open_file(file).read_all()

    def execute(self, statement: str) -> None:
        """Run a statement whose result does not matter. Raises SparkRefusedError."""
        self._result("execute", statement)

    def _result(self, what: str, statement: str) -> dict[str, str]:
        answer: dict[str, str] = json.loads(self.ask((what, statement)))
        if "error" in answer:
            raise SparkRefusedError(answer["error"])
        return answer
