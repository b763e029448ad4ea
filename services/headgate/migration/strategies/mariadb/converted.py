"""Values as the server itself converts them to the narrower types: what columns that may lose are compared with.

A range of the table is put into a temporary table of the new form, as an INSERT … SELECT converts it. Columns that may
not lose values keep their own type there: that statement would also replace characters that a new character set does
not have, and the comparison must find those. On a revert the copy is the table before, which has kept what the change
has lost, so it is the copy's range that is converted, to the form of the table of now. It is read when the statement
begins, the other table a moment later: a row that changes in between is compared again, because the topic has it.
"""

from enum import StrEnum
from typing import Any, Final

from msgspec.structs import replace

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import CopyPlan
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.text import settings
from headgate.migration.strategies.online.lane_plan import LanePlan

__all__ = ["CONVERTED", "Side", "convert", "converted_plan", "converted_side", "make_room"]

CONVERTED: Final = "`headgate`.`headgate_converted`"


class Side(StrEnum):
    """Whose values are converted."""

    NEITHER = "neither"
    TABLE = "table"
    COPY = "copy"


def converted_side(plan: LanePlan) -> Side:
    """Whose values are compared as the other one's types would have them: those of the table with the wider types."""
    if not plan.held.loose:
        return Side.NEITHER
    return Side.COPY if plan.is_back else Side.TABLE


def make_room(session: Session, held: CopyPlan, side: Side) -> None:
    """The temporary table, empty: columns that may lose in the form of the other side, all others as they are.

    Until the cut-over both have the same column names.
    """
    key = ", ".join(quoted(new) for _, new in held.key)
    table, copy = quoted(held.before.schema, held.before.name), quoted(held.before.schema, held.shadow)
    own, other = (table, copy) if side is Side.TABLE else (copy, table)
    columns = ", ".join(f"{'f' if new in held.loose else 'o'}.{quoted(new)}" for _, new in held.pairs)
    session.run(f"DROP TEMPORARY TABLE IF EXISTS {CONVERTED}")
    session.run(
        f"CREATE TEMPORARY TABLE {CONVERTED} (PRIMARY KEY ({key})) AS SELECT {columns} FROM {own} o JOIN {other} f "
        "WHERE FALSE"
    )


def convert(session: Session, held: CopyPlan, where: tuple[str, Any], rows: str) -> None:
    """Fill it with those rows (``a``) of the table ``rows`` that meet the condition."""
    columns = ", ".join(quoted(new) for _, new in held.pairs)
    session.run(settings(strict=False))
    session.run(f"DELETE FROM {CONVERTED}")
    session.run(f"INSERT IGNORE INTO {CONVERTED} ({columns}) SELECT {columns} FROM {rows} a WHERE {where[0]}", where[1])


def converted_plan(held: CopyPlan, side: Side) -> CopyPlan:
    """The plan as it is between the temporary table and the other side."""
    own, other = (held.before, held.after) if side is Side.TABLE else (held.after, held.before)
    columns = tuple(
        found for column in own.columns if (found := (other if column.name in held.loose else own).column(column.name))
    )
    formed = replace(own, columns=columns)
    return replace(held, before=formed, loose=()) if side is Side.TABLE else replace(held, after=formed, loose=())
