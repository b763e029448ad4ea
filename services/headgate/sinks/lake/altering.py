"""Alters tables of a lake: one commit, on the version of the table whose claim was checked (lake/claims.py).

So an agent that was overtaken alters nothing, and what another job has done to the table in the meantime is read
before anything is altered. The values of older rows are in the ledger before the table has the column: a process that
is killed in between leaves a ledger that knows of a column that does not exist, which changes nothing.
"""

from collections.abc import Callable

import pyarrow as pa

from headgate.config.crash_points import CrashPoint, reach
from headgate.records.control import Positions
from headgate.sinks.altering import AlteringRules, ColumnChanges, PresentColumn, PresentTable
from headgate.sinks.contract import Claim, OffsetRange, SinkRefusedError
from headgate.sinks.creating import LakeType
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.lake.claims import Claims, about_attempt, about_claim
from headgate.sinks.lake.creating import arrow_type, field_of, name_problem
from headgate.sinks.lake.first_values import first_value
from headgate.sinks.lake.shape import LakeShape, existing, shape_of
from headgate.sinks.lake.tables import Altered, ConflictError, Lake, Stamp, VersionedTable
from headgate.sinks.lake.type_names import lake_name

__all__ = ["LakeAlterer"]


class LakeAlterer:
    """Alters tables of one lake."""

    def __init__(self, lake: Lake, claims: Claims, *, appends: bool) -> None:
        self._lake = lake
        self._claims = claims
        self._appends = appends

    def rules(self, table: str) -> AlteringRules:
        """See AltersTables."""
        return AlteringRules(
            place=self._lake.sql_name(table),
            widens=self._lake.widens,
            renames=self._lake.renames,
            appends=self._appends,
            name_problem=lambda name: name_problem(name, appends=self._appends) or self._lake.name_problem(name),
        )

    def present(self, table: str) -> PresentTable | None:
        """See AltersTables."""
        with self._lake.as_sink_errors(f"reading table {table}"):
            if self._lake.table(table) is None:
                return None
            return _present(existing(self._lake, table, appends=self._appends))

    def change_known_columns(
        self, claim: Claim, positions: Positions, change: Callable[[KnownColumns], KnownColumns]
    ) -> None:
        """See ColumnKeepingSink."""
        with self._lake.as_sink_errors(f"storing what is known of the columns of {claim.table}"):
            table, ranges = self._held(claim, positions)
            self._claims.change_known_columns(claim, ranges, table, change)

    def _held(self, claim: Claim, positions: Positions) -> tuple[VersionedTable, dict[int, OffsetRange]]:
        """The table, read before its claim was found to be the sink's at ``positions``."""
        ranges = {partition: OffsetRange(at, at) for partition, at in sorted(positions.items())}
        return self._claims.held_table(claim, ranges), ranges

    def alter(self, claim: Claim, positions: Positions, before: PresentTable, changes: ColumnChanges) -> bool:
        """See AltersTables."""
        with self._lake.as_sink_errors(f"altering {about_attempt(claim)}"):
            table, ranges = self._held(claim, positions)
            if _present(shape_of(table, claim.table, appends=self._appends)) != before:
                return False
            _check_names(claim.table, table, changes)
            altered = _altered(claim.table, changes)
            first = {each.column.name: each.first for each in changes.added if each.first is not None}

            def with_first(known: KnownColumns) -> KnownColumns:
                return known.with_altered(first, changes.renamed)

            self._claims.change_known_columns(claim, ranges, table, with_first)
            reach(CrashPoint.ROWS_SENT)
            try:
                table.alter(altered, Stamp(about=about_claim(claim)))
            except ConflictError:
                return False
            reach(CrashPoint.COMMITTED)
            return True


def _check_names(name: str, table: VersionedTable, changes: ColumnChanges) -> None:
    """Raise SinkRefusedError for a column with the name of a partition field, before anything is changed."""
    added = (each.column.name for each in changes.added if table.is_name_of_field(each.column.name))
    renamed = (column for former, column in changes.renamed.items() if table.is_name_of_field(column, former))
    for column in (*added, *renamed):
        raise SinkRefusedError(
            f"table {name} cannot have a column {column}: a partition field has or had this name, and the format takes "
            "no column with the name of another one's field. Give the column another name with columns.rename, or "
            "leave it out with columns.exclude"
        )


def _present(shape: LakeShape) -> PresentTable:
    columns = [
        PresentColumn(name, _lake_type(type_), name not in shape.required)
        for name, type_ in shape.columns.items()
        if name not in shape.own_columns
    ]
    return PresentTable(tuple(columns), shape.key)


def _lake_type(type_: pa.DataType) -> LakeType:
    numbers = (type_.precision, type_.scale) if pa.types.is_decimal(type_) else ()
    return LakeType(name=lake_name(type_), numbers=numbers)


def _altered(table: str, changes: ColumnChanges) -> Altered:
    fields = [(field_of(each.column), each.first) for each in changes.added]
    return Altered(
        added=tuple(
            (field, pa.scalar(first_value(table, field.name, field.type, first), field.type)) for field, first in fields
        ),
        renamed=changes.renamed,
        types={name: arrow_type(type_) for name, type_ in changes.widened.items()},
        relaxed=frozenset(changes.relaxed),
    )
