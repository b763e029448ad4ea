"""The users by which Headgate reads a source PostgreSQL and writes a target, with the rights of docs/target-tables.md.

They have no others. The servers' superuser prepares the databases and the audit, and compares rows. Headgate never has
its password.
"""

import secrets
from collections.abc import Sequence
from typing import Final

from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from headgate_lab.demo.schema import SCHEMA

SINK_ROLE: Final = "headgate"
SOURCE_ROLE: Final = "headgate_reader"

_SINK: Final = ("CREATE SCHEMA headgate AUTHORIZATION {role}", "GRANT TEMPORARY ON DATABASE {database} TO {role}")
_WRITES: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
)
_CREATES: Final = (
    "GRANT CREATE ON DATABASE {database} TO {role}",
    # Who tries a feed of their own at `headgate up` has its table here, created by the feed or by hand.
    "GRANT USAGE, CREATE ON SCHEMA public TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
)
_READS: Final = ("GRANT USAGE ON SCHEMA {schema} TO {role}", "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")


def create_sink_role(target: Connection, target_dsn: str, *, creates_tables: bool = False) -> str:
    """Create the role that writes the shop's tables, and creates them or comes after them; its address."""
    return _create_role(target, target_dsn, SINK_ROLE, (*_SINK, *(_CREATES if creates_tables else _WRITES)))


def create_source_role(source: Connection, source_dsn: str) -> str:
    """Create the role that reads the shop's tables, after them; the source's address for it."""
    return _create_role(source, source_dsn, SOURCE_ROLE, _READS)


def set_password(database: Connection, role: str = SINK_ROLE) -> str:
    """Give the role another password, and return it."""
    password = secrets.token_hex(16)
    database.execute(SQL("ALTER ROLE {} PASSWORD {}").format(Identifier(role), Literal(password)))
    return password


def _create_role(database: Connection, dsn: str, role: str, rights: Sequence[str]) -> str:
    names = {"database": database.info.dbname, "schema": SCHEMA, "role": role}
    for statement in ("CREATE ROLE {role} LOGIN", *rights):
        text = SQL(statement)
        database.execute(text.format(**{name: Identifier(value) for name, value in names.items()}))
    return make_conninfo(dsn, user=role, password=set_password(database, role))
