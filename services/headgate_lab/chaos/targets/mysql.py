"""MariaDB as a campaign's target, by the sink that writes to MySQL and MariaDB.

Every service has its own way there by running in a folder of its own: the feed's address names a socket without a
folder (``unix_socket``, an option people have), which is looked for where the process runs, and there the service's
proxy listens. The server itself is reached by its port, as always. Nothing of this is known to the services.
"""

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headgate.databases.address import Target
from headgate.databases.mysql.sql import quoted
from headgate.sinks.relational.mysql.connection import connect
from headgate.sinks.relational.mysql.progress import MysqlProgress
from headgate.sinks.relational.session import RelationalSettings
from headgate.verify.mysql import MysqlSide
from headgate.verify.postgresql import PostgresSide
from headgate_lab.chaos.hostile_functions import is_sprung, plant
from headgate_lab.chaos.proxy import Proxies
from headgate_lab.chaos.targets.across import compare_across
from headgate_lab.chaos.targets.mysql_audit import commit_times, install_audit, read_entries, read_standing
from headgate_lab.chaos.targets.mysql_schema import create_tables
from headgate_lab.chaos.targets.target import NO_VARIABLES, Span, Way
from headgate_lab.demo.audit import AuditReport, examine, read_deletions
from headgate_lab.demo.compare import Comparison
from headgate_lab.demo.schema import SCHEMA, TABLES, Row, ShopTable
from headgate_lab.demo.services import DatabaseAddress
from headgate_lab.embedded.clients import mariadb_client, postgres_client
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.ports import HOST

__all__ = ["MysqlTarget", "audit_shop", "compare_shop", "longest_gaps", "make_shop"]

SOCKET: Final = "target.sock"

SINK_USER: Final = "headgate"
BOOKKEEPING_RIGHTS: Final = "CREATE, DROP, SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES"
"""On Headgate's own database, as docs/configuration.md has them."""


class MysqlTarget:
    """See Target."""

    title = "MariaDB"

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedMariadb(folder)
        self.start, self.kill, self.stop = self._server.start, self._server.kill, self._server.stop
        self._password = ""

    def prepare(self) -> None:
        """See Target."""
        self._server.start()
        make_shop(self._server.dsn())
        self._password = secrets.token_hex(16)
        self._execute(
            f"CREATE USER {SINK_USER} IDENTIFIED BY '{self._password}'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE, ALTER ON {quoted(SCHEMA)}.* TO {SINK_USER}",
            f"GRANT {BOOKKEEPING_RIGHTS} ON headgate.* TO {SINK_USER}",
        )
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target:
            plant(lambda statement: _rows(target, statement), (SCHEMA, "headgate"))

    @property
    def sink(self) -> DatabaseAddress:
        """See Target."""
        dsn = f"mysql://{SINK_USER}@{HOST}:{self._server.port}/{SCHEMA}?unix_socket={SOCKET}"
        return DatabaseAddress("mysql", dsn, self._password)

    def step_down(self) -> None:
        """See Target. MariaDB has no standby of its own: the server becomes read-only."""
        self._execute("SET GLOBAL read_only = 1")

    def step_up(self) -> None:
        """See Target."""
        self._execute("SET GLOBAL read_only = 0")

    def rotate_password(self) -> str:
        """See Target."""
        self._password = secrets.token_hex(16)
        self._execute(f"ALTER USER {SINK_USER} IDENTIFIED BY '{self._password}'")
        return self._password

    def end_sessions(self) -> None:
        """See Target."""
        self._execute(f"KILL USER {SINK_USER}")

    def sessions(self) -> int:
        """See Target."""
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target, target.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM information_schema.processlist WHERE user = %s", (SINK_USER,))
            ((count,),) = cursor.fetchall()
            return int(count)

    def is_hijacked(self) -> bool:
        """See Target."""
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target:
            return is_sprung(lambda statement: _rows(target, statement))

    def _execute(self, *statements: str) -> None:
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target, target.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def way(self, proxies: Proxies, number: int, home: Path) -> Way:
        """A socket in the service's folder."""
        del number
        return Way(proxies.open_at(self._server.port or 0, home / SOCKET), NO_VARIABLES)

    def stands(self, table: ShopTable, key: Row) -> bool:
        """See Target."""
        condition = " AND ".join(f"{quoted(column)} = %s" for column in key)
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target, target.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {quoted(SCHEMA, table.name)} WHERE {condition}",  # noqa: S608 - names of our own
                [str(value) for value in key.values()],
            )
            return cursor.fetchone() is not None

    def examine(self, source_dsn: str, tables: Sequence[ShopTable]) -> tuple[tuple[Comparison, ...], AuditReport]:
        """See Target."""
        return compare_shop(source_dsn, self._server.dsn(), tables), audit_shop(source_dsn, self._server.dsn())

    def longest_pauses(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """See Target."""
        with closing(mariadb_client(self._server.dsn(), in_database=False)) as target:
            times = commit_times(target)
        return [longest_gaps(times, begin, end) for begin, end in spans]


def _rows(target: "Connection[Cursor]", statement: str) -> Sequence[Sequence[Any]]:
    with target.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def make_shop(dsn: str) -> None:
    """The shop's empty tables, the sink's bookkeeping and the audit of both, on a server that has none of them."""
    with connect(RelationalSettings(dsn)) as session:
        progress = MysqlProgress(session)
        progress.ensure()
        progress.tables.create_row_copies()
        progress.tables.create_known_columns()
    with closing(mariadb_client(dsn, in_database=False)) as target:
        create_tables(target)
        install_audit(target)


def compare_shop(source_dsn: str, target_dsn: str, tables: Sequence[ShopTable] = TABLES) -> tuple[Comparison, ...]:
    """The shop in a PostgreSQL compared with that in a MariaDB."""
    with (
        closing(PostgresSide(Target(source_dsn))) as ours,
        closing(MysqlSide(Target(target_dsn))) as theirs,
    ):
        return tuple(compare_across(ours, theirs, table) for table in tables)


def audit_shop(source_dsn: str, target_dsn: str) -> AuditReport:
    """Examine what the audits in both have written down. Raises AuditError."""
    with postgres_client(source_dsn) as source, closing(mariadb_client(target_dsn, in_database=False)) as target:
        return examine(read_entries(target), read_deletions(source), read_standing(target))


def longest_gaps(times: dict[str, list[float]], begin: float, end: float) -> dict[str, float]:
    """Table → longest time between two of its ascending ``times`` of which some part lies between begin and end."""
    gaps = {}
    for table, moments in sorted(times.items()):
        # From the last moment before it begins to the first at its end or after.
        inside = moments[max(0, bisect_right(moments, begin) - 1) : bisect_left(moments, end) + 1]
        if len(inside) > 1:
            gaps[table] = max(later - earlier for earlier, later in pairwise(inside))
    return gaps
