"""The feeds of ``headgate bench snapshot``, and the memory of the agent that runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from headgate_lab.benchmarks.services import BenchServices
from headgate_lab.benchmarks.snapshot_databases import SnapshotDatabases

__all__ = ["SnapshotServices"]


class SnapshotServices(BenchServices):
    """Coordinator and agent between two databases."""

    def __init__(self, bootstrap: str, databases: SnapshotDatabases, folder: Path) -> None:
        """See BenchServices."""
        known = {"source": (databases.source, ["source"]), "target": (databases.target, ["sink"])}
        super().__init__(bootstrap, folder, known)
        self.databases, self.source, self.target = databases, databases.source, databases.target
        self.memory_bytes_max = 0
        """Of the agent, Spark's JVM and its workers, whenever ``check_memory`` was called."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both, as processes of their own."""
        with self.serving({"coordinator": ("coordinator",), "agent": ("agent", "--name", "a")}):
            yield

    def create_feed(self, table: str) -> None:
        """Have the table created in the target, its rows copied, and its changes applied."""
        spec = {
            "feed": table.replace("_", "-"),
            "source": {"topics": [self.source.topic(table)], "database": {"connection": "source"}},
            "sink": {"type": self.kind_of(self.target), "connection": "target"},
            "snapshot": "initial",
        }
        file = self._folder / f"{table}.yaml"
        file.write_text(yaml.safe_dump(spec), encoding="utf-8")
        self.headgate("feed", "create", str(file))

    def pause_feed(self, table: str) -> None:
        """Take it out of the next side's way."""
        self.headgate("feed", "pause", table.replace("_", "-"))

    def check_memory(self) -> None:
        """As ``check``, and record the agent's memory."""
        self.check()
        used = 0
        for process in self.agent.tree():
            try:
                used += process.memory_info().rss
            except psutil.NoSuchProcess:  # it ended between the listing and the question
                continue
        self.memory_bytes_max = max(self.memory_bytes_max, used)
