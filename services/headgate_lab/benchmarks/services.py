"""Headgate's services as processes of their own, beside the databases of a bench.

Commands are typed as people would; how far something is, is read from the log and from the databases themselves: a
command that is started twice a second would take a core away from what is measured.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
import psutil
from confluent_kafka import TopicPartition

from headgate.config.settings import load_settings
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.topics import create_topics
from headgate_lab.benchmarks.cpu import CpuClock
from headgate_lab.benchmarks.migration_tables import BenchDatabase
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.connections import NamedDatabase, write_connections
from headgate_lab.parts.processes import ServiceProcess, stop_all
from headgate_lab.parts.settings import service_settings

__all__ = ["ASK_SECONDS", "BenchServices"]

WAIT_SECONDS_MAX: Final = 1_800.0
"""For one step: five million rows at a thirtieth of the goal."""

ASK_SECONDS: Final = 0.5
"""Between two looks at the log."""

_SERVERS: Final = ("postgres", "mariadbd", "mysqld")


class BenchServices:
    """Services that know some databases by name."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        connections: Mapping[str, tuple[BenchDatabase, Sequence[str]]],
        **settings: str,
    ) -> None:
        """Nothing runs yet. ``connections``: name → database, uses. ``folder`` is for logs, passwords and scratch."""
        self.bootstrap, self._folder = bootstrap, folder
        write_connections(
            folder,
            {
                name: NamedDatabase(self.kind_of(database), database.address, database.password, uses)
                for name, (database, uses) in connections.items()
            },
        )
        self._running: dict[str, ServiceProcess] = {}
        self._settings = service_settings(bootstrap, folder, master="local[*]", **settings)

    @staticmethod
    def kind_of(database: BenchDatabase) -> str:
        """What a feed calls it."""
        return "mysql" if database.name == "mariadb" else database.name

    @contextmanager
    def serving(self, services: Mapping[str, Sequence[str]]) -> Iterator[None]:
        """The control topics, and ``headgate serve …`` by name, each a process of its own."""
        create_topics(load_settings({"bootstrap": self.bootstrap, "shards": 1, "replication_factor": 1}))
        try:
            for name, arguments in services.items():
                self._running[name] = ServiceProcess(name, ("serve", *arguments), self._settings, self._folder)
            yield
        finally:
            stop_all(self._running.values())

    @property
    def agent(self) -> ServiceProcess:
        """What applies changes."""
        return self._running["agent"]

    def cpu_of(self, service: str) -> CpuClock:
        """Processor time of a service's Spark, of its other processes, of the databases, and of all else."""
        served = self._running[service]
        return CpuClock(
            {
                "spark": lambda: [p for p in served.tree() if p.name() == "java"],
                "workers": lambda: [p for p in served.tree() if p.name() != "java"],
                "database": lambda: [p for p in _ours() if p.name() in _SERVERS],
                "others": lambda: _others(served),
            }
        )

    def headgate(self, *arguments: str) -> None:
        """Run a command. Raises ServiceError."""
        run_command(self._settings, *arguments, "-o", "json")

    def check(self) -> None:
        """Raise ServiceError if a service has ended."""
        for service in self._running.values():
            service.check()

    def await_topic(self, database: BenchDatabase, table: str) -> None:
        """It comes with the table's first change; a connector may have to find its place first."""
        numbers = iter(range(1, 1 << 30))

        def has_come() -> bool:
            database.touch(table, next(numbers))
            return self.end(database.topic(table)) > 0

        self.until(has_come, f"a change of {table} comes to its topic", ASK_SECONDS)

    def end(self, topic: str) -> int:
        """Of its first partition; 0 while there is none."""
        connection = KafkaConnection(self.bootstrap)
        with closing(
            connection.client(confluent_kafka.Consumer, group_id="bench", enable_auto_commit=False)
        ) as consumer:
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
            except confluent_kafka.KafkaException:
                return 0
        return int(end)

    def until(
        self, is_so: Callable[[], bool], what: str, seconds: float, check: Callable[[], None] | None = None
    ) -> float:
        """When it was so. BenchError if it takes too long. ``check``, twice a second, raises if it will not be."""
        begun = looked = time.monotonic()
        while not is_so():
            now = time.monotonic()
            if now - looked > ASK_SECONDS:
                looked = now
                (check or self.check)()
            if now - begun > WAIT_SECONDS_MAX:
                raise BenchError(f"gave up after {WAIT_SECONDS_MAX:g} s: {what}")
            time.sleep(seconds)
        return time.monotonic()


def _others(service: ServiceProcess) -> Sequence[psutil.Process]:
    members = service.tree()
    return [p for p in _ours() if p.name() not in _SERVERS and p not in members]


def _ours() -> list[psutil.Process]:
    """This process and all that it has started."""
    this = psutil.Process()
    return [this, *this.children(recursive=True)]
