"""A peer: what a user of Spark writes for a lake, ``foreachBatch`` with MERGE INTO or an append."""

from pathlib import Path

import msgspec

from headgate_lab.benchmarks.peers.lake_spark import LakeSpark

__all__ = ["LakeRecipe", "RecipeRun"]


class RecipeRun(msgspec.Struct, frozen=True):
    """One run: the query from its start to its end, and how long each of its batches took to write."""

    seconds: float
    batches: list[float]


class LakeRecipe(LakeSpark):
    """One Spark; ``run`` is one streaming query over all that a topic has (``availableNow``)."""

    def create(self, kind: str, path: Path, rows: Path | None) -> None:
        """A table in the folder: with the rows of that Parquet file, or for changes."""
        self.ask(("create", kind, path, rows))

    def run(self, kind: str, path: Path, mode: str, topic: str, rows_max: int) -> RecipeRun:
        """Apply the topic. Raises BenchError."""
        return msgspec.json.decode(self.ask(("run", kind, path, mode, topic, rows_max)), type=RecipeRun)
