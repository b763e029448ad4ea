"""A source database of either kind: read it, choose its tables, and judge them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.capture.finding import CaptureFinding, State
from headgate.capture.mysql.facts import MysqlFacts, MysqlTable
from headgate.capture.mysql.read import read_mysql, with_rights
from headgate.capture.mysql.rules import mysql_findings
from headgate.capture.postgresql.facts import PostgresFacts, PostgresTable
from headgate.capture.postgresql.read import read_postgresql
from headgate.capture.postgresql.rules import postgresql_findings
from headgate.capture.tables import chosen_tables
from headgate.databases.address import Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.databases.kinds import kind_of

__all__ = ["DEFAULT_NAME", "Capture", "Mysql", "Postgres", "read_source"]

DEFAULT_NAME: Final = "headgate"
"""Of the publication and the slot, unless the user chooses others."""


class Postgres(msgspec.Struct, frozen=True):
    """A PostgreSQL, and the tables of it that are meant."""

    facts: PostgresFacts
    tables: tuple[PostgresTable, ...]

    def findings(self, *, publication: str, slot: str) -> list[CaptureFinding]:
        """Every check of it."""
        found = postgresql_findings(self.facts, self.tables, publication=publication, slot=slot)
        return found if self.tables else [*found, _NO_TABLES]


class Mysql(msgspec.Struct, frozen=True):
    """A MySQL or MariaDB, and the tables of it that are meant."""

    facts: MysqlFacts
    tables: tuple[MysqlTable, ...]

    def findings(self, *, publication: str, slot: str) -> list[CaptureFinding]:  # noqa: ARG002 - it has neither
        """Every check of it."""
        found = mysql_findings(self.facts, self.tables)
        return found if self.tables else [*found, _NO_TABLES]


Capture = Postgres | Mysql


def read_source(target: Target, patterns: Sequence[str]) -> Capture:
    """The database at ``target`` and its tables that match ``patterns``; without patterns, all. Writes nothing.

    Raises DatabaseError, also for an address with a password in it, and NoTableError.
    """
    kind = kind_of(target.dsn, target.options)
    if kind.address(target.dsn, target.options).has_password:
        raise DatabaseRefusedError(
            f"{target.options.address} has a password in it, where other users of this machine can see it. "
            f"{target.options.way_of_secrets}"
        )
    if kind.name == "mysql":
        facts = read_mysql(target)
        inside = [table for table in facts.tables if patterns or facts.database in (None, table.schema)]
        return Mysql(facts, tuple(with_rights(target, chosen_tables(inside, patterns))))
    found = read_postgresql(target)
    return Postgres(found, tuple(chosen_tables(found.tables, patterns)))


_NO_TABLES: Final = CaptureFinding(
    "table", State.WARNING, "the database has no tables that this user can see", then="Create them, or grant rights"
)
