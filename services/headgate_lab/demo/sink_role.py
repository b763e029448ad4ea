"""The user by which Headgate writes a target PostgreSQL, with the rights of docs/configuration.md and no others.

The servers' superuser prepares tables and audits and compares rows. Headgate never has its password.
"""

import secrets
from typing import Final

from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from headgate_lab.demo.schema import SCHEMA

SINK_ROLE: Final = "headgate"


def create_sink_role(target: Connection, target_dsn: str) -> str:
    """Create the role, after the tables; the target's address for it."""
    target.execute(SQL("CREATE ROLE {role} LOGIN").format(role=Identifier(SINK_ROLE)))
    for statement in (
        "GRANT TEMPORARY ON DATABASE {database} TO {role}",
        "CREATE SCHEMA headgate AUTHORIZATION {role}",
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        # Who tries a feed of their own at `headgate up` creates its table here.
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
    ):
        names = {"database": target.info.dbname, "schema": SCHEMA, "role": SINK_ROLE}
        target.execute(SQL(statement).format(**{name: Identifier(text) for name, text in names.items()}))
    return make_conninfo(target_dsn, user=SINK_ROLE, password=set_password(target))


def set_password(target: Connection) -> str:
    """Give the role another password, and return it."""
    password = secrets.token_hex(16)
    target.execute(SQL("ALTER ROLE {} PASSWORD {}").format(Identifier(SINK_ROLE), Literal(password)))
    return password
