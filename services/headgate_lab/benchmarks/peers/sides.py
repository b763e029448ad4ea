"""All that take part in a race beside Headgate: databases, Kafka Connect, Flink, another version."""

from contextlib import ExitStack
from pathlib import Path

from headgate_lab.benchmarks.parts import BenchParts
from headgate_lab.benchmarks.peers.debezium import DebeziumPeer
from headgate_lab.benchmarks.peers.flink import FlinkPeer
from headgate_lab.benchmarks.peers.other_version import OtherVersion
from headgate_lab.benchmarks.targets import BenchTarget, PostgresTarget, mariadb_target


class Peers:
    """Each is started when first needed, and all are gone at the end of the stack."""

    def __init__(self, parts: BenchParts, stack: ExitStack, race_with: Path | None) -> None:
        self.parts = parts
        self._stack = stack
        self._race_with = race_with
        self._other: OtherVersion | None = None
        self._targets: dict[str, BenchTarget] = {}
        self._connect: DebeziumPeer | None = None
        self._flink: FlinkPeer | None = None

    def target(self, database: str) -> BenchTarget:
        """The database of that kind."""
        if database not in self._targets:
            self._targets[database] = (
                self._stack.enter_context(mariadb_target(self.parts.scratch / "mariadb"))
                if database == "mariadb"
                else PostgresTarget(self.parts.dsn)
            )
        return self._targets[database]

    @property
    def connect(self) -> DebeziumPeer:
        """Kafka Connect."""
        if self._connect is None:
            peer = DebeziumPeer(self.parts.scratch / "connect", self.parts.bootstrap)
            self._connect = self._stack.enter_context(peer)
        return self._connect

    @property
    def flink(self) -> FlinkPeer:
        """Flink."""
        if self._flink is None:
            self._flink = self._stack.enter_context(FlinkPeer(self.parts.scratch / "flink", self.parts.bootstrap))
        return self._flink

    @property
    def other(self) -> OtherVersion:
        """The other version."""
        if self._other is None:
            assert self._race_with is not None  # noqa: S101 - it is a side only then
            version = OtherVersion(self._race_with, self.parts.scratch / "other", self.parts)
            self._other = self._stack.enter_context(version)
        return self._other
