"""Which of a table's triggers fire on the sink's writes: they may change rows, or write elsewhere."""

from typing import Final

from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.connection import MysqlSinkSession
from headgate.sinks.relational.table import RelationalTable

__all__ = ["firing"]

_FIRING: Final = """
SELECT trigger_name FROM information_schema.triggers
WHERE event_object_schema = %s AND event_object_table = %s ORDER BY trigger_name
"""


def firing(session: MysqlSinkSession, table: RelationalTable[MysqlSinkColumn]) -> tuple[str, ...]:
    """Each as ``trigger NAME``. A user without the right TRIGGER on the table sees none of them."""
    return tuple(f"trigger {name}" for (name,) in session.execute(_FIRING, (table.schema, table.relation)))
