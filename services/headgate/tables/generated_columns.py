"""Columns that the source computes (PostgreSQL's generated columns), and what becomes of them at the sink.

PostgreSQL's log does not have their values, but a snapshot does: it selects all columns. So the sink computes them too,
or it does not have them. A plain column would keep what the snapshot brought, whatever the row becomes.
"""

from typing import Final

from headgate.config.feed import FeedSpec
from headgate.databases.postgresql.catalogue import PostgresColumn, PostgresDefinition
from headgate.records.name_lists import shown_names
from headgate.sinks.contract import TableShape
from headgate.tables.mapped import Mapped
from headgate.tables.postgresql_to_postgresql import to_postgresql
from headgate.tables.shaped import is_computable
from headgate.tables.statement import Definition

__all__ = ["why_stale"]

_COMPUTING: Final = frozenset({"postgresql", "mysql"})
"""Sinks whose tables can have generated columns."""


def why_stale(own: FeedSpec, name: str, source: Definition, sink: TableShape | None) -> str | None:
    """Why columns of the source's table ``name`` would keep former values, or stop its changes; None if none would.

    ``own``: the feed as it is for the table. ``sink``: its table there, None if it is created.
    """
    if not isinstance(source, PostgresDefinition) or (sink is not None and not sink.columns):
        return None  # MySQL's log has them; a topic has no columns, and its readers see what each event has
    stale = [
        column.name
        for column in source.form.columns
        if column.generated is not None and own.columns.goes(column.name) and not _is_computed(own, column, sink)
    ]
    if not stale:
        return None
    listed = ", ".join(stale)
    computed = ", or let the sink compute them (GENERATED ALWAYS AS … STORED)" if own.sink.type in _COMPUTING else ""
    return (
        f"table {name}: the source computes {shown_names(stale)}, and the connector writes these values in its "
        f"snapshot only, so the sink would keep former ones. Leave them out with columns: {{exclude: [{listed}]}} for "
        f"this table in `tables`{computed}"
    )


def _is_computed(own: FeedSpec, column: PostgresColumn, sink: TableShape | None) -> bool:
    """Whether the sink computes the column, or will once its table is created, or the feed does."""
    target = own.columns.target(column.name)
    if target in own.columns.set:
        return True
    if sink is not None:
        return target in sink.generated
    is_there = own.sink.type == "postgresql" and is_computable(column, own.columns)
    return is_there and isinstance(to_postgresql(column, None), Mapped)
