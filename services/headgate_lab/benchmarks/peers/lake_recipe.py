"""A peer: what a user of Spark writes for a lake, ``foreachBatch`` with MERGE INTO or an append, in its own process.

It runs lake_recipe_program.py, whose Spark has the jars of Delta and Iceberg, and receives one line of JSON per run.
"""

import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from headgate.provisioning import artifacts
from headgate.provisioning.java import java_home_for_spark
from headgate_lab.benchmarks.peers.piped_program import PipedProgram

__all__ = ["LakeRecipe", "RecipeRun"]

PROGRAM: Final = "headgate_lab.benchmarks.peers.lake_recipe_program"

ANSWERS_BEGIN: Final = "lake-recipe: "


class RecipeRun(msgspec.Struct, frozen=True):
    """One run: the query from its start to its end, and how long each of its batches took to write."""

    seconds: float
    batches: list[float]


class LakeRecipe(PipedProgram):
    """One Spark; ``run`` is one streaming query over all that a topic has (``availableNow``)."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        jars = [str(jar) for name in _SETS for jar in artifacts.ensure(name)]
        command = [sys.executable, "-m", PROGRAM, bootstrap, str(folder), ",".join(jars)]
        java = java_home_for_spark()
        settings = {} if java is None else {"JAVA_HOME": str(java)}
        super().__init__(command, ANSWERS_BEGIN, "the recipe's Spark", settings)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        return super().__enter__()

    def create(self, kind: str, path: Path, rows: Path | None) -> None:
        """A table in the folder: with the rows of that Parquet file, or for changes."""
        self.ask(("create", kind, path, rows))

    def run(self, kind: str, path: Path, mode: str, topic: str, rows_max: int) -> RecipeRun:
        """Apply the topic. Raises BenchError."""
        return msgspec.json.decode(self.ask(("run", kind, path, mode, topic, rows_max)), type=RecipeRun)


_SETS: Final[tuple[artifacts.ArtifactSet, ...]] = ("spark-kafka", "spark-delta", "spark-iceberg")
