"""PostgreSQL as a campaign's target: what the demo has, on a server that is killed."""

from collections.abc import Sequence
from pathlib import Path

import psycopg

from headgate.chaos.proxy import Proxies
from headgate.chaos.targets.target import Span, Way
from headgate.demo.audit import AuditReport
from headgate.demo.audit_triggers import install_target_audit
from headgate.demo.compare import Comparison
from headgate.demo.ending import examine_all, row_stands
from headgate.demo.pauses import longest_pauses
from headgate.demo.schema import TABLES, Row, Table, create_target
from headgate.demo.services import SinkAddress, postgresql_sink
from headgate.demo.stack import DATABASE, make_database
from headgate.embedded.postgres import EmbeddedPostgres

__all__ = ["PostgresTarget"]


class PostgresTarget:
    """See Target."""

    title = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedPostgres(folder)
        self.start, self.kill, self.stop = self._server.start, self._server.kill, self._server.stop

    def prepare(self) -> None:
        """See Target."""
        self._server.start()
        with psycopg.connect(make_database(self._server), autocommit=True) as target:
            create_target(target)
            install_target_audit(target)

    @property
    def sink(self) -> SinkAddress:
        """See Target."""
        return postgresql_sink(self._dsn)

    def way(self, proxies: Proxies, number: int, home: Path) -> Way:
        """The server's port on a loopback address of the service's own, to which ``PGHOSTADDR`` sends libpq."""
        del home
        host, port = f"127.0.1.{number}", self._server.port or 0
        return Way(proxies.open(port, host=host, port=port), {"PGHOSTADDR": host})

    def stands(self, table: Table, key: Row) -> bool:
        """See Target."""
        with psycopg.connect(self._dsn, autocommit=True) as target:
            return row_stands(target, table, key)

    def examine(self, source_dsn: str) -> tuple[tuple[Comparison, ...], AuditReport]:
        """See Target."""
        return examine_all(source_dsn, self._dsn)

    def longest_pauses(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """See Target."""
        names = [table.full_name for table in TABLES]
        with psycopg.connect(self._dsn, autocommit=True) as target:
            return [longest_pauses(target, names, begin, end) for begin, end in spans]

    @property
    def _dsn(self) -> str:
        return self._server.dsn(DATABASE)
