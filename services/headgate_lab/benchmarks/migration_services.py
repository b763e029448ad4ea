"""The processes of ``headgate bench migration``, what is asked of them, and how far they are.

Commands are typed as people would; how far a migration is, is read from the log and from the database itself: a command
that is started twice a second would take a core away from what is measured.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
import psutil
import yaml
from confluent_kafka import TopicPartition

from headgate.config.settings import load_settings
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import open_log
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.snapshot import read_snapshot
from headgate.eventlog.topics import create_topics
from headgate.provisioning.java import java_home_for_spark
from headgate.records.migration import MigrationKey, MigrationRecorded, MigrationState
from headgate_lab.benchmarks.cpu import CpuClock
from headgate_lab.benchmarks.migration_tables import BenchDatabase
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.demo.processes import ServiceProcess, stop_all
from headgate_lab.demo.services import run_command
from headgate_lab.embedded.percona import pt_online_schema_change

__all__ = ["LOOK_SECONDS", "MigrationServices"]

WAIT_SECONDS_MAX: Final = 1_800.0
"""For one step: five million rows at a thirtieth of the goal."""

LOOK_SECONDS: Final = 0.02
"""Between two looks at the database's own memory of the migration, and at the feed's position."""

ASK_SECONDS: Final = 0.5
"""Between two looks at the log."""

LEASE_SECONDS: Final = 120.0
"""A frozen agent keeps its session: what is measured is how it catches up, not how another takes over."""

CONNECTION: Final = "bench"

_SERVERS: Final = ("postgres", "mariadbd", "mysqld")


class MigrationServices:
    """Coordinator, agent and the migrations' owner beside one captured database."""

    def __init__(self, bootstrap: str, database: BenchDatabase, folder: Path) -> None:
        """Nothing runs yet; ``folder`` is for logs, the password and Spark's scratch."""
        self._bootstrap, self._database, self._folder = bootstrap, database, folder
        password, connections = folder / "password", folder / "connections.yaml"
        password.write_text(database.password, encoding="utf-8")
        kind = "mysql" if database.name == "mariadb" else database.name
        described = {
            "kind": kind,
            "address": database.address,
            "password_file": "password",
            "use": ["migration", "sink"],
        }
        connections.write_text(yaml.safe_dump({"connections": {CONNECTION: described}}), encoding="utf-8")
        self._running: dict[str, ServiceProcess] = {}
        self._settings = {
            "HEADGATE_BOOTSTRAP": bootstrap,
            "HEADGATE_SHARDS": "1",
            "HEADGATE_REPLICATION_FACTOR": "1",
            "HEADGATE_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "HEADGATE_HTTP__PORT": "0",
            "HEADGATE_SPARK__MASTER": "local[*]",
            "HEADGATE_SPARK__SCRATCH": str(folder),
            "HEADGATE_SECRETS_DIR": str(folder),
            "HEADGATE_CONNECTIONS": str(connections),
            "JAVA_HOME": str(java_home_for_spark()),
        }
        if self.has_pt_osc:
            self._settings["HEADGATE_MIGRATION__PT_OSC"] = str(pt_online_schema_change(folder))

    @property
    def has_pt_osc(self) -> bool:
        """Whether Percona's tool knows the database."""
        return self._database.name == "mariadb"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Each a process of its own."""
        settings = load_settings({"bootstrap": self._bootstrap, "shards": 1, "replication_factor": 1})
        create_topics(settings)
        try:
            for name, arguments in (
                ("coordinator", ("coordinator",)),
                ("agent", ("agent", "--name", "a")),
                ("owner", ("migration",)),
            ):
                self._running[name] = ServiceProcess(name, ("serve", *arguments), self._settings, self._folder)
            with closing(open_log(settings)) as self._log:
                yield
        finally:
            stop_all(self._running.values())

    @property
    def agent(self) -> ServiceProcess:
        """What brings changes into the copy."""
        return self._running["agent"]

    # --- asking ---

    def submit(self, table: str, name: str, change: str, strategy: str, *options: str) -> None:
        """Submit a change of the table, once a change of it has come to its topic."""
        database = self._database
        known = ("--topic", database.topic(table)) if strategy == "online" else ()
        self._await_topic(table)
        self.command(
            *("submit", f"ALTER TABLE {table} {change}", "--database", CONNECTION, "--id", name),
            *("--strategy", strategy, "--yes", "--timeout", "600", *known, *options),
        )

    def command(self, *arguments: str) -> None:
        """``headgate migration …``."""
        run_command(self._settings, "migration", *arguments, "-o", "json")

    def _await_topic(self, table: str) -> None:
        """It comes with the table's first change; a connector may have to find its place first."""
        numbers = iter(range(1, 1 << 30))

        def has_come() -> bool:
            self._database.run(f"UPDATE {table} SET note = 'seen {next(numbers)}' WHERE id = 0")
            return self.end(table) > 0

        self._until(has_come, f"a change of {table} comes to its topic", ASK_SECONDS)

    # --- looking ---

    def await_stage(self, name: str, stages: Collection[str]) -> float:
        """When the database itself first showed it: the owner publishes it to the log once a second."""
        asked = f"SELECT stage FROM headgate.migration WHERE id LIKE '{name}@%'"  # the rest names which cluster's
        with closing(self._database.connect()) as connection, closing(connection.cursor()) as session:

            def has_come() -> bool:
                session.execute(asked)
                row = session.fetchone()
                return row is not None and row[0] in stages

            return self._until(has_come, f"{name} comes to {sorted(stages)}", LOOK_SECONDS, name)

    def await_record(self, name: str, is_so: Callable[[MigrationRecorded], bool], what: str) -> MigrationRecorded:
        """The first record of the migration of which ``is_so`` holds."""
        found: list[MigrationRecorded] = []

        def has_come() -> bool:
            record = self.record(name)
            if record is not None and is_so(record):
                found.append(record)
            return bool(found)

        self._until(has_come, f"{name} {what}", ASK_SECONDS, name)
        return found[0]

    def await_end(self, name: str) -> MigrationRecorded:
        """See the migration complete."""
        return self.await_record(name, lambda record: record.state is MigrationState.COMPLETE, "is complete")

    def record(self, name: str) -> MigrationRecorded | None:
        """The migration as its owner knows it; None also if the broker does not answer: callers ask again."""
        try:
            return read_snapshot(self._log, [Partition("migration", 0)]).get(MigrationKey(name), MigrationRecorded)
        except LogError:
            return None

    def await_position(self, table: str, is_so: Callable[[int], bool], what: str) -> float:
        """When the feed into the table's copy has come to a position that is so."""
        return self._until(lambda: is_so(self.position(table)), what, LOOK_SECONDS)

    def position(self, table: str) -> int:
        """Of the feed into the table's copy, as its sink has it."""
        ((offset,),) = self._database.run(
            f"SELECT coalesce(sum(next_offset), 0) FROM headgate.progress WHERE topic = '{self._database.topic(table)}'"
        )
        return int(offset)

    def end(self, table: str) -> int:
        """Of the table's topic; 0 while there is none."""
        connection = KafkaConnection(self._bootstrap)
        with closing(
            connection.client(confluent_kafka.Consumer, group_id="bench", enable_auto_commit=False)
        ) as consumer:
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._database.topic(table), 0), timeout=30)
            except confluent_kafka.KafkaException:
                return 0
        return int(end)

    def cpu(self) -> CpuClock:
        """Processor time of the copy's Spark, its Python workers, the database, and of all else."""
        return CpuClock(
            {
                "spark": lambda: [p for p in self._running["owner"].tree() if p.name() == "java"],
                "workers": lambda: [p for p in self._running["owner"].tree() if p.name() != "java"],
                "database": lambda: [p for p in _ours() if p.name() in _SERVERS],
                "others": self._others,
            }
        )

    def _others(self) -> Sequence[psutil.Process]:
        owners = self._running["owner"].tree()
        return [p for p in _ours() if p.name() not in _SERVERS and p not in owners]

    def _until(self, is_so: Callable[[], bool], what: str, seconds: float, name: str | None = None) -> float:
        """When it was so. BenchError if a service or the migration ``name`` has ended instead, or it takes too long."""
        begun = looked = time.monotonic()
        while not is_so():
            now = time.monotonic()
            if now - looked > ASK_SECONDS:
                looked = now
                self._check(name)
            if now - begun > WAIT_SECONDS_MAX:
                raise BenchError(f"gave up after {WAIT_SECONDS_MAX:g} s: {what}")
            time.sleep(seconds)
        return time.monotonic()

    def _check(self, name: str | None) -> None:
        for service in self._running.values():
            service.check()
        record = None if name is None else self.record(name)
        if record is not None and record.state in (MigrationState.FAILED, MigrationState.CANCELLED):
            raise BenchError(f"migration {name} is {record.state}: {record.message}")


def _ours() -> list[psutil.Process]:
    """This process and all that it has started."""
    this = psutil.Process()
    return [this, *this.children(recursive=True)]
