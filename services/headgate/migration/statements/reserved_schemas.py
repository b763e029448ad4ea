"""Schemas that no migration changes, nor refers to: Headgate's own, and those of the database server.

Headgate remembers there which changes a table has had and whose a migration is, and the server what users may do. Names
in a statement are checked as it is read, a default schema or search path as the server finds the table.
"""

from typing import Final

from headgate.migration.statements.clauses import DialectName

HEADGATE: Final = "headgate"
"""At both databases; at MariaDB also what begins with it and an underscore (tables are tried there)."""

_SERVERS: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_RAW: Final = "#mysql50#"
"""Before a name, it makes MariaDB take the rest for the name of a directory, whatever that is called in SQL."""


def why_reserved(dialect: DialectName, schema: str) -> str:
    """Why tables of that schema are not migrated, and what to do; empty if they are.

    PostgreSQL's names are compared as they are, because its statements' names are folded by now. Whether case matters
    to MariaDB depends on the server, so it does not here.
    """
    name = schema if dialect == "postgres" else schema.casefold()
    if name == HEADGATE or (dialect == "mysql" and name.startswith(f"{HEADGATE}_rehearsal_")):
        return f"{schema} is Headgate's own schema: use `headgate migration cleanup` and `headgate feed delete`"
    is_server_s = name.startswith("pg_") or name == "information_schema"
    if dialect == "mysql":
        is_server_s = name in _SERVERS or name.startswith(_RAW)
    return f"{schema} is the database server's own schema, which migrations do not change" if is_server_s else ""
