"""Sinks that stop answering without closing a connection, for ``headgate chaos --frozen-sink``: one of each kind."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate_lab.chaos.proxy import Link, Proxies
from headgate_lab.chaos.targets import SinkType
from headgate_lab.embedded.clients import mariadb_client, postgres_client
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from headgate_lab.embedded.ports import HOST
from headgate_lab.embedded.postgres import EmbeddedPostgres

__all__ = ["FreezingSink", "freezing_sink"]

DATABASE: Final = "frozen"


class FreezingSink(Protocol):
    """A database with tables for one feed. ``dsn`` is for ``sink.dsn``; it has no password."""

    dsn: str
    password: str

    def count(self, table: str) -> int:
        """The rows of a table."""
        ...

    def freeze(self) -> None:
        """Answer no client from now on, and keep every connection."""
        ...

    def thaw(self) -> None:
        """Answer again."""
        ...


@contextmanager
def freezing_sink(
    kind: SinkType, folder: Path, server: EmbeddedPostgres, tables: Sequence[str]
) -> Iterator[FreezingSink]:
    """One of that kind, with its tables. A PostgreSQL is a database of ``server``. Raises EmbeddedError."""
    with ExitStack() as parts:
        if kind is SinkType.MYSQL:
            stopped = _StoppedMariadb(parts.enter_context(EmbeddedMariadb(folder / "mariadb")), tables)
            parts.callback(stopped.thaw)
            yield stopped
        else:
            proxies = Proxies()
            parts.callback(proxies.close)
            yield _ProxiedPostgres(server, proxies, tables)


class _ProxiedPostgres:
    """Behind a proxy that stops forwarding, as a firewall that drops packets does."""

    def __init__(self, server: EmbeddedPostgres, proxies: Proxies, tables: Sequence[str]) -> None:
        with postgres_client(server.dsn()) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        self._direct, self._proxies = server.dsn(DATABASE), proxies
        with postgres_client(self._direct) as connection:
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
        known = {key: value for key, value in conninfo_to_dict(self._direct).items() if key != "password"}
        self._proxy = proxies.open(int(str(known["port"])))
        self.dsn = make_conninfo("", **known | {"host": HOST, "port": self._proxy.port})
        self.password = server.password

    def count(self, table: str) -> int:
        with postgres_client(self._direct) as connection:
            row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
        return 0 if row is None else int(row[0])

    def freeze(self) -> None:
        self._proxies.change(self._proxy, Link.SILENT)

    def thaw(self) -> None:
        self._proxies.change(self._proxy, Link.OPEN)


class _StoppedMariadb:
    """Its process is stopped (SIGSTOP). The kernel accepts connections and acknowledges packets for it."""

    def __init__(self, server: EmbeddedMariadb, tables: Sequence[str]) -> None:
        self._server = server
        self.dsn, self.password = f"mysql://root@{HOST}:{server.port}/{DATABASE}", server.password
        self._execute(f"CREATE DATABASE {DATABASE}")
        for table in tables:
            self._execute(f"CREATE TABLE {DATABASE}.{table} (id bigint PRIMARY KEY)")

    def count(self, table: str) -> int:
        ((count,),) = self._execute(f"SELECT COUNT(*) FROM {DATABASE}.`{table}`")  # noqa: S608 - our own name
        return int(count)

    def freeze(self) -> None:
        os.kill(self._server.server_pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._server.server_pid, signal.SIGCONT)

    def _execute(self, statement: str) -> Sequence[Sequence[int]]:
        with mariadb_client(self._server.dsn()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
