"""The processes of ``headgate bench migration``, what is asked of them, and how far they are."""

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headgate.config.settings import load_settings
from headgate.eventlog.kafka import open_log
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.snapshot import read_snapshot
from headgate.records.migration import MigrationKey, MigrationRecorded, MigrationState
from headgate_lab.benchmarks.migration_tables import BenchDatabase
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.benchmarks.services import ASK_SECONDS, BenchServices
from headgate_lab.embedded.percona import pt_online_schema_change

__all__ = ["LOOK_SECONDS", "MigrationServices"]

LOOK_SECONDS: Final = 0.02
"""Between two looks at the database's own memory of the migration, and at the feed's position."""

LEASE_SECONDS: Final = 120.0
"""A frozen agent keeps its session: what is measured is how it catches up, not how another takes over."""

CONNECTION: Final = "bench"


class MigrationServices(BenchServices):
    """Coordinator, agent and the migrations' owner beside one captured database."""

    def __init__(self, bootstrap: str, database: BenchDatabase, folder: Path) -> None:
        """See BenchServices."""
        connections = {CONNECTION: (database, ["migration", "sink"])}
        super().__init__(bootstrap, folder, connections, HEADGATE_LEASE_SECONDS=f"{LEASE_SECONDS:g}")
        self._database = database
        if self.has_pt_osc:
            self._settings["HEADGATE_MIGRATION__PT_OSC"] = str(pt_online_schema_change(folder))

    @property
    def has_pt_osc(self) -> bool:
        """Whether Percona's tool knows the database."""
        return self._database.name == "mariadb"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Each a process of its own."""
        services = {"coordinator": ("coordinator",), "agent": ("agent", "--name", "a"), "owner": ("migration",)}
        settings = load_settings({"bootstrap": self.bootstrap, "shards": 1, "replication_factor": 1})
        with self.serving(services), closing(open_log(settings)) as self._log:
            yield

    # --- asking ---

    def submit(self, table: str, name: str, change: str, strategy: str, *options: str) -> None:
        """Submit a change of the table, once a change of it has come to its topic."""
        database = self._database
        known = ("--topic", database.topic(table)) if strategy == "online" else ()
        self.await_topic(database, table)
        self.command(
            *("submit", f"ALTER TABLE {table} {change}", "--database", CONNECTION, "--id", name),
            *("--strategy", strategy, "--yes", "--timeout", "600", *known, *options),
        )

    def command(self, *arguments: str) -> None:
        """``headgate migration …``."""
        self.headgate("migration", *arguments)

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

    def _until(self, is_so: Callable[[], bool], what: str, seconds: float, name: str | None = None) -> float:
        """See ``until``. BenchError if the migration ``name`` has ended instead."""
        return self.until(is_so, what, seconds, lambda: self._check(name))

    def _check(self, name: str | None) -> None:
        self.check()
        record = None if name is None else self.record(name)
        if record is not None and record.state in (MigrationState.FAILED, MigrationState.CANCELLED):
            raise BenchError(f"migration {name} is {record.state}: {record.message}")
