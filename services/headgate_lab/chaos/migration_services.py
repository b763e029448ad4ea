"""The services of ``headgate chaos --migrations``: a coordinator, an agent and two owners of migrations."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from headgate.config.settings import load_settings
from headgate.eventlog.kafka import open_log
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.snapshot import read_snapshot
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate_lab.chaos.migration_parts import ChangedDatabase
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.connections import NamedDatabase, write_connections
from headgate_lab.parts.processes import ServiceError, ServiceProcess, stop_all
from headgate_lab.parts.settings import service_settings

__all__ = ["MigrationServices"]

WAIT_SECONDS_MAX: Final = 900.0
"""For one step of a migration whose services are killed in the meantime."""

POLL_SECONDS: Final = 0.2
COMMAND_SECONDS: Final = "120"


class MigrationServices:
    """``kill_agent`` and ``kill_owner`` start another one at once."""

    def __init__(
        self, bootstrap: str, databases: Sequence[ChangedDatabase], folder: Path, *, lease_seconds: float
    ) -> None:
        """Create the control topics; nothing runs yet. ``folder`` is for logs, passwords and Spark's scratch."""
        self._logs, self._count = folder / "logs", 0
        write_connections(
            folder,
            {
                database.name: NamedDatabase(
                    "mysql" if database.dialect == "mysql" else "postgresql",
                    database.address,
                    database.password,
                    ["migration", "sink"],
                )
                for database in databases
            },
        )
        lease = f"{lease_seconds:g}"
        self._settings = service_settings(bootstrap, folder, master="local[2]", HEADGATE_LEASE_SECONDS=lease)
        self._of_log = load_settings({"bootstrap": bootstrap, "shards": 1, "replication_factor": 1})
        create_topics(self._of_log)
        self._coordinator: ServiceProcess
        self._agent: ServiceProcess
        self._owners: list[ServiceProcess] = []
        self._last = ""
        self.all: list[ServiceProcess] = []

    def start(self) -> None:
        """Each a process of its own."""
        self._coordinator = self._serve("coordinator", "coordinator")
        self._agent = self._serve_agent()
        self._owners = [self._serve("owner", "migration") for _ in range(2)]

    def _serve(self, name: str, *arguments: str) -> ServiceProcess:
        self._count += 1
        started = ServiceProcess(f"{name}-{self._count}", ("serve", *arguments), self._settings, self._logs)
        self.all.append(started)
        return started

    def _serve_agent(self) -> ServiceProcess:
        return self._serve("agent", "agent", "--name", f"a{self._count}")

    def kill_agent(self) -> None:
        """With its Spark."""
        self._agent.kill()
        self._agent = self._serve_agent()

    def kill_owner(self) -> None:
        """The older one of two, which owns the migrations unless it has lost them."""
        self._owners.pop(0).kill()
        self._owners.append(self._serve("owner", "migration"))

    def command(self, *arguments: str) -> None:
        """``headgate migration …``. Raises ServiceError if it is refused."""
        run_command(self._settings, "migration", *arguments, "--timeout", COMMAND_SECONDS, "-o", "json")

    def insist(self, *arguments: str, unless: Callable[[str], bool] = lambda _: False) -> None:
        """The same, asked again while a broker or owner that was killed cannot answer, ``unless`` the error ends it."""

        def is_done() -> bool:
            try:
                self.command(*arguments)
            except ServiceError as error:
                self._last = str(error)
                return unless(self._last)
            return True

        self.until(is_done, lambda: f"headgate migration {' '.join(arguments)}: {self._last}")

    def record(self, name: str) -> MigrationRecorded | None:
        """The migration as its owner knows it; None also while the broker does not answer."""
        try:
            with closing(open_log(self._of_log)) as log:
                return read_snapshot(log, [Partition("migration", 0)]).get(MigrationKey(name), MigrationRecorded)
        except LogError:
            return None

    def until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        """Raises ServiceError if it takes too long, or if a service has ended by itself."""
        deadline = time.monotonic() + scaled_seconds(WAIT_SECONDS_MAX)
        while not is_so():
            for service in self.all:
                service.check()
            if time.monotonic() > deadline:
                raise ServiceError(f"not within {WAIT_SECONDS_MAX:g} s: {what()}. The logs are in {self._logs}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> list[str]:
        """What had to be killed because it did not stop in time."""
        return stop_all(self.all)
