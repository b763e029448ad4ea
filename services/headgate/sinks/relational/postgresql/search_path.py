"""Sessions that run none but the server's own functions and operators, whatever their user's search path is.

Whoever may create objects in a schema of the search path could otherwise put a function or an operator there that fits
a statement better than the server's own, and it would run with the rights of the session's user (CVE-2018-1058). So
every session is taken off that path before its first statement. The path's only remaining use is to find tables that a
feed names without a schema: by their names in the catalogue, never by running anything.

The server itself does the same for its subscriptions. Functions that a target table's triggers run must therefore
qualify the names they use, or set a search path of their own.
"""

from typing import Any, Final, Protocol

__all__ = ["pin_search_path"]

_CONFIGURED: Final = "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]"
_PINNED: Final = "SET search_path = pg_catalog, pg_temp"
"""``pg_temp`` last: it would come first if it was not named."""


class _Connection(Protocol):
    """psycopg's connections, whatever their rows are."""

    def execute(self, query: str, /) -> Any: ...


def pin_search_path(connection: _Connection) -> tuple[str, ...]:
    """Take a new session off its user's search path. Returns the existing schemas on that path, in order."""
    (schemas,) = connection.execute(_CONFIGURED).fetchone()
    connection.execute(_PINNED)
    return tuple(schemas)
