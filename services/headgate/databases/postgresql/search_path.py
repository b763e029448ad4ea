"""Sessions that use only the server's own functions and operators, whatever their user's search path is.

A user who may create objects in a schema of the search path could otherwise put a function or an operator there that
fits a statement better than the server's own, and it would run with the rights of the session's user (CVE-2018-1058).
So every session is taken off that path before its first statement. The path's only remaining use is to find tables that
a feed names without a schema: by their names in the catalogue, never by running anything.

The server itself does the same for its subscriptions. Functions that a target table's triggers run must therefore
qualify the names they use, or set a search path of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from headgate.records.identifiers import split_table

_CONFIGURED: Final = "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]"
_PINNED: Final = "SET search_path = pg_catalog, pg_temp"
"""``pg_temp`` last: it would come first if it was not named."""


# By the texts of the names, not by to_regclass: that cuts long names, and finds another table.
_FOUND: Final = """
SELECT c.oid, n.nspname, c.relname
FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS s (name, place)
JOIN pg_namespace n ON n.nspname = s.name JOIN pg_class c ON c.relnamespace = n.oid
WHERE c.relname = %(relation)s::text AND c.relkind = ANY ('{r,p,v,m,f}') ORDER BY s.place LIMIT 1
"""


class _Connection(Protocol):
    """psycopg's connections, whatever their rows are."""

    def execute(self, query: str, /) -> Any: ...


def pin_search_path(connection: _Connection) -> tuple[str, ...]:
    """Take a new session off its user's search path. Returns the existing schemas on that path, in order."""
    (schemas,) = connection.execute(_CONFIGURED).fetchone()
    connection.execute(_PINNED)
    return tuple(schemas)


def find_table(
    execute: Callable[[str, dict[str, object]], Sequence[tuple[Any, ...]]], path: Sequence[str], name: str
) -> tuple[object, str, str] | None:
    """(oid, schema, table) of the table that ``name`` stands for now, None if there is none.

    ``execute`` runs a statement in a session that is off its user's search path; ``path`` is what that was.
    """
    schema, relation = split_table(name)
    schemas = list(path) if schema is None else [schema]
    rows = execute(_FOUND, {"schemas": schemas, "relation": relation})
    return (rows[0][0], str(rows[0][1]), str(rows[0][2])) if rows else None
