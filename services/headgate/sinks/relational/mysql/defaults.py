"""Which of a table's columns may be NULL and have a default, as the source's, which a connector may write for NULL."""

from typing import Final

from headgate.sinks.relational.mysql.catalog import Column
from headgate.sinks.relational.mysql.connection import MysqlSession
from headgate.sinks.relational.table import Table

__all__ = ["nullable_defaults"]

# MariaDB has the word NULL for a column without a default.
_DEFAULTS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND is_nullable = 'YES' AND column_default <> 'NULL'
ORDER BY ordinal_position
"""


def nullable_defaults(session: MysqlSession, table: Table[Column]) -> tuple[str, ...]:
    """The columns' names, in the table's order."""
    rows = session.execute(_DEFAULTS, (table.schema, table.relation))
    return tuple(str(name) for (name,) in rows if name not in table.generated)
