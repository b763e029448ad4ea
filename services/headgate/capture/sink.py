"""The sink of tables that are captured: whether it is the source itself, and which tables are missing there."""

from pathlib import Path
from shlex import quote

from headgate.capture.place import place_of
from headgate.capture.source import Capture, Postgres
from headgate.capture.tables import SourceTable
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import kind_of
from headgate.databases.postgresql.address import url_of

__all__ = ["creating", "is_itself", "missing_tables", "running"]


def is_itself(source: Capture, to: Capture, source_target: Target, sink_target: Target) -> bool:
    """Whether a feed would write into the very tables whose changes it reads.

    A feed names its target tables like those of the source. So for a MySQL or MariaDB this is any database of the same
    server, for a PostgreSQL the same database.
    """
    if isinstance(source, Postgres) is not isinstance(to, Postgres):
        return False
    if source.facts.own_id is not None and to.facts.own_id is not None:
        return source.facts.own_id == to.facts.own_id
    servers = {
        kind_of(target.dsn, target.options).address(target.dsn, target.options).server
        for target in (source_target, sink_target)
    }
    return len(servers) == 1 and (not isinstance(source, Postgres) or source.facts.database == to.facts.database)


def missing_tables(source: Capture, to: Capture) -> list[SourceTable]:
    """Tables of the source that are missing at the sink, as far as its user can see."""
    there = {(table.schema, table.table) for table in to.tables}
    return [table for table in source.tables if (table.schema, table.table) not in there]


def creating(target: Target, file: Path) -> str:
    """The shell command that runs a file of statements at the sink. It asks for the password."""
    if kind_of(target.dsn, target.options).name == "postgresql":
        once = "--set=ON_ERROR_STOP=1 --single-transaction"
        return f"psql {_url(target, 'SINK')} {once} --file={quote(str(file))}"
    return f"mariadb {_login(target, 'SINK')} --default-character-set=utf8mb4 < {quote(str(file))}"


def running(target: Target, statement: str) -> str:
    """The shell command that runs one statement at the sink. It asks for the password."""
    if kind_of(target.dsn, target.options).name == "postgresql":
        return f"psql {_url(target, 'SINK')} --command={quote(statement)}"
    return f"mariadb {_login(target, 'SINK')} --execute={quote(statement)}"


def _url(target: Target, otherwise: str) -> str:
    """The address as psql takes it, or a word for one that does not name host, user and database."""
    try:
        return quote(url_of(target.dsn, target.options)[0])
    except DatabaseRefusedError:
        return otherwise


def _login(target: Target, otherwise: str) -> str:
    """Options of MariaDB's programs, or words for an address that does not name host, user and database."""
    try:
        place = place_of(target)
    except DatabaseRefusedError:
        return f"--host={otherwise} --password"
    return f"--host={quote(place.host)} --port={place.port} --user={quote(place.user)} --password"
