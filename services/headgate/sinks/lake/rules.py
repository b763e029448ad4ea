"""Finds which condition of a table rows do not meet, before they are committed."""

import pyarrow as pa
import pyarrow.compute as pc

from headgate.sinks.lake.shape import LakeShape
from headgate.sinks.lake.staged_rows import GONE, GatheredRows, absent_column, column
from headgate.sinks.lake.tables import Rule

__all__ = ["broken_rule"]


def broken_rule(shape: LakeShape, made: GatheredRows) -> Rule | None:
    """The first condition that one of the rows does not meet. Raises SinkRefusedError if that cannot be known.

    A row is left out that may keep a value of the table's for a column that the condition uses: the commit tries it.
    """
    if not shape.rules or not len(made):
        return None
    rows = made.table()
    return next((rule for rule in shape.rules if not _is_met(rule, rows, shape)), None)


def _is_met(rule: Rule, rows: pa.Table, shape: LakeShape) -> bool:
    flags = [GONE, *(absent_column(number) for number, name in enumerate(shape.columns) if rule.may_use(name))]
    for flag in flags:
        if flag in rows.column_names:
            rows = rows.filter(pc.invert(pc.fill_null(rows[flag], False)))
    named = rows.select([column(number) for number in range(len(shape.columns))]).rename_columns(list(shape.columns))
    return not named.num_rows or rule.is_met(named)
