"""PostgreSQL as a campaign's target: what the demo has, on a server that is killed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from headgate_lab.chaos.hostile_schema import is_sprung, plant, put_first
from headgate_lab.chaos.proxy import Proxies
from headgate_lab.chaos.targets.target import Span, Way
from headgate_lab.demo.audit import AuditReport
from headgate_lab.demo.audit_triggers import install_target_audit
from headgate_lab.demo.compare import Comparison
from headgate_lab.demo.ending import examine_all, row_stands
from headgate_lab.demo.pauses import longest_pauses
from headgate_lab.demo.roles import SINK_ROLE, create_sink_role, set_password
from headgate_lab.demo.schema import TABLES, Row, ShopTable
from headgate_lab.demo.services import DatabaseAddress, postgresql_address
from headgate_lab.demo.stack import DATABASE, make_database
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.postgres import EmbeddedPostgres


class PostgresTarget:
    """See Target."""

    title = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedPostgres(folder)
        self.start, self.kill, self.stop = self._server.start, self._server.kill, self._server.stop
        self._sink_dsn = ""

    def prepare(self) -> None:
        """See Target."""
        self._server.start()
        with postgres_client(make_database(self._server)) as target:
            install_target_audit(target)
            self._sink_dsn = create_sink_role(target, self._dsn, creates_tables=True)
            plant(lambda statement: _rows(target, statement))
            target.execute(put_first(SINK_ROLE).encode())

    @property
    def sink(self) -> DatabaseAddress:
        """See Target."""
        return postgresql_address(self._sink_dsn)

    def step_down(self) -> None:
        """See Target. It comes back as a hot standby."""
        self._server.restart_as_standby()

    def step_up(self) -> None:
        """See Target."""
        self._server.promote()

    def rotate_password(self) -> str:
        """See Target."""
        with postgres_client(self._dsn) as target:
            return set_password(target)

    def end_sessions(self) -> None:
        """See Target."""
        with postgres_client(self._dsn) as target:
            target.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (SINK_ROLE,))

    def sessions(self) -> int:
        """See Target."""
        with postgres_client(self._dsn) as target:
            ((count,),) = target.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND backend_type = 'client backend'",
                (SINK_ROLE,),
            ).fetchall()
            return int(count)

    def is_hijacked(self) -> bool:
        """See Target."""
        with postgres_client(self._dsn) as target:
            return is_sprung(lambda statement: _rows(target, statement))

    def way(self, proxies: Proxies, number: int, home: Path) -> Way:
        """The server's port on a loopback address of the service's own, to which ``PGHOSTADDR`` sends libpq."""
        del home
        host, port = f"127.0.1.{number}", self._server.port or 0
        return Way(proxies.open(port, host=host, port=port), {"PGHOSTADDR": host})

    def stands(self, table: ShopTable, key: Row) -> bool:
        """See Target."""
        with postgres_client(self._dsn) as target:
            return row_stands(target, table, key)

    def examine(self, source_dsn: str, tables: Sequence[ShopTable]) -> tuple[tuple[Comparison, ...], AuditReport]:
        """See Target."""
        return examine_all(source_dsn, self._dsn, tables)

    def longest_pauses(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """See Target."""
        names = [table.full_name for table in TABLES]
        with postgres_client(self._dsn) as target:
            return [longest_pauses(target, names, begin, end) for begin, end in spans]

    @property
    def _dsn(self) -> str:
        return self._server.dsn(DATABASE)


def _rows(target: psycopg.Connection, statement: str) -> list[tuple[Any, ...]]:
    cursor = target.execute(statement.encode())
    return cursor.fetchall() if cursor.description is not None else []
