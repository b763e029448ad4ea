"""A migration by a program, as its owner's process runs it: effects one after the other, reports as they come in."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from fixtures.services import mariadb_connect
from headgate.migration.core import effects as fx
from headgate.migration.core.machine import MIGRATIONS
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.reports import PATH, ToolReports
from headgate.migration.shell.work import MigrationWork
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.migration.strategies.tools.tool import Tools
from headgate.observability.http import OpsServer
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.migration import MigrationKey, MigrationRecorded, MigrationState, MigrationStrategy
from support.connections import described
from support.migration_records import recorded

__all__ = ["BRAKED", "Brake", "Owner", "Table", "owned", "pid_of"]

SECONDS_MAX = 120.0
THRESHOLD_SECONDS = 10.0
"""What clients may wait for: a busy machine needs more than the default."""


class Table:
    """A database with the table ``items``, and its password in a file."""

    def __init__(self, url: str, folder: Path, rows: int = 2_000) -> None:
        parts = urlsplit(url)
        self.url, self.schema = url, parts.path.strip("/")
        self.password_file = folder / "password"
        self.password_file.write_text(unquote(parts.password or ""), encoding="utf-8")
        self.address = f"mysql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        self.rows = rows
        self.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40) DEFAULT 'a')")
        if rows:
            self.run(f"INSERT INTO items (id, v) SELECT seq, 0 FROM seq_1_to_{rows}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(mariadb_connect(self.url)) as session, session.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def names(self, kind: str) -> list[str]:
        """Of tables, or of triggers."""
        rows = self.run(f"SELECT {kind}_name FROM information_schema.{kind}s WHERE {kind}_schema = '{self.schema}'")
        return sorted(name for (name,) in rows)

    def columns(self) -> list[str]:
        return [row[0] for row in self.run("SHOW COLUMNS FROM items")]

    def spec(self, strategy: MigrationStrategy, statement: str, **more: Any) -> MigrationSpec:
        known: dict[str, Any] = {
            "database": described(self.address, self.password_file),
            "cutover_threshold_seconds": THRESHOLD_SECONDS,
        }
        return MigrationSpec(statement=statement, strategy=strategy, **(known | more))


BRAKED = ("--chunk-size=100", "--tries=copy_rows:1000:0.25")
"""For pt-osc: it waits for a row that a client has locked."""


class Brake:
    """A client that locks one row, so that a copy waits when it comes to that row.

    While it holds the row nobody can create or drop a trigger of the table, or rename it.
    """

    def __init__(self, url: str, row: int) -> None:
        self._url, self._row = url, row
        self._session: Any = None

    def hold(self) -> None:
        self._session = mariadb_connect(self._url)
        with self._session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT id FROM items WHERE id = %s FOR UPDATE", (self._row,))

    def release(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class Owner:
    """One term of an owner in this process, and the migration ``m`` as its record has it."""

    def __init__(self, tools: Tools, reports: ToolReports, spec: MigrationSpec, owner_rev: int) -> None:
        self.reports: list[fx.ToolReported] = []
        self.at: dict[str, Callable[[], Any]] = {}
        """By stage: what happens when it is reported, while the program waits for the answer and before it is heard."""
        self.owner_rev = owner_rev
        self.work = MigrationWork(tools=tools, cluster_id=NO_CLUSTER)
        self._desk, self._state = reports, MIGRATIONS.new_state(0)
        self.spec = spec
        reports.serve(self._take, lambda: None)
        self.record: MigrationRecorded
        self.stands(recorded(written(spec), table_rows=1_000))

    def _take(self, report: fx.ToolReported) -> bool:
        self.at.pop(report.stage, lambda: None)()
        self.reports.append(report)
        return True

    def stands(self, record: MigrationRecorded) -> None:
        """The record as it is now."""
        self.record = record
        MIGRATIONS.evolve(self._state, MigrationKey("m"), record, -1)
        self._desk.stands(self._state)

    def examine(self) -> Any:
        return self.work.run(fx.ExamineMigration("r", "m", self.spec))

    def do(self, kind: Any, **more: Any) -> Any:
        """One effect about the migration."""
        return self.work.run(kind("m", self.record, owner_rev=self.owner_rev, **more))

    def start(self) -> Any:
        return self.do(fx.StartMigration)

    def stop(self) -> Any:
        return self.do(fx.StopMigration, is_forced=False)

    def watched(self, wanted: Callable[[Any], Any]) -> Any:
        """Look until a look finds what is wanted."""
        deadline = time.monotonic() + scaled_seconds(SECONDS_MAX)
        while not wanted(found := self.do(fx.WatchMigration)):
            assert isinstance(found, fx.ToolSeen), found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def ended(self) -> Any:
        return self.watched(lambda found: not isinstance(found, fx.ToolSeen))

    def stages(self) -> list[str]:
        return [report.stage for report in self.reports if report.stage]

    def heard(self, stage: str) -> None:
        """Return once the program has reported that stage."""
        self.watched(lambda _found: stage in self.stages())

    def throttle(self, ratio: float) -> None:
        """As an operator says."""
        self.stands(msgspec.structs.replace(self.record, throttle_ratio=ratio))

    def disown(self) -> None:
        """The migration is ending: reports are not taken any more."""
        self.stands(msgspec.structs.replace(self.record, ending=MigrationState.CANCELLED))

    @property
    def _strategy(self) -> Any:
        return self.work._open["m"][1]

    def asked(self, command: str) -> str:
        """What gh-ost says on its socket."""
        return str(self._strategy._tell(command))

    def let_go(self) -> None:
        """gh-ost may cut over."""
        self._strategy._folder().switch("postpone", is_on=False)

    def close(self) -> None:
        self.work.close()


def pid_of(found: Any) -> int:
    """Of the program's process, by a look's note."""
    pid: int = json.loads(found.note)["pid"]
    return pid


@contextmanager
def owned(folder: Path, **programs: str) -> Iterator[Callable[[MigrationSpec, int], Owner]]:
    """Makes owners, of whatever term, that all report to one endpoint; all are closed at the end."""
    reports, made = ToolReports(), list[Owner]()
    server = OpsServer("127.0.0.1", 0, Probes(60.0), new_registry(), reports.routes())
    server.start()
    tools = Tools(reports.issue, f"http://127.0.0.1:{server.port}{PATH}", folder / "tools" / "cluster", **programs)

    def make(spec: MigrationSpec, owner_rev: int = 1) -> Owner:
        made.append(Owner(tools, reports, spec, owner_rev))
        return made[-1]

    try:
        yield make
    finally:
        for owner in made:
            owner.close()
        server.close()
