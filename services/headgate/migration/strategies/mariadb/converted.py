"""The table's values as the server itself converts them to the new types: what columns that may lose are compared with.

A range of the table is put into a temporary table of the new form, as an INSERT … SELECT converts it. It is read when
the statement begins, the copy a moment later: a row that changes in between is compared again, for the topic has it.
"""

from typing import Any, Final

from msgspec.structs import replace

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import Plan
from headgate.migration.strategies.mariadb.sessions import Session
from headgate.migration.strategies.mariadb.text import settings
from headgate.migration.strategies.online.lane_plan import LanePlan

__all__ = ["CONVERTED", "convert", "converted_plan", "is_converted", "make_room"]

CONVERTED: Final = "`headgate`.`headgate_converted`"


def is_converted(plan: LanePlan) -> bool:
    """Whether some columns may lose. On a revert the old table keeps what it had, so there they are left out."""
    return bool(plan.held.loose) and not plan.is_back


def make_room(session: Session, held: Plan) -> None:
    """The temporary table, empty."""
    columns = ", ".join(quoted(new) for _, new in held.pairs)
    key = ", ".join(quoted(new) for _, new in held.key)
    shadow = quoted(held.before.schema, held.shadow)
    session.run(f"DROP TEMPORARY TABLE IF EXISTS {CONVERTED}")
    session.run(
        f"CREATE TEMPORARY TABLE {CONVERTED} (PRIMARY KEY ({key})) AS SELECT {columns} FROM {shadow} WHERE FALSE"
    )


def convert(session: Session, held: Plan, where: tuple[str, Any]) -> None:
    """Fill it with the rows (``a``) that meet the condition."""
    session.run(settings(strict=False))
    session.run(f"DELETE FROM {CONVERTED}")
    session.run(
        f"INSERT IGNORE INTO {CONVERTED} ({', '.join(quoted(new) for _, new in held.pairs)}) "
        f"SELECT {', '.join(quoted(old) for old, _ in held.pairs)} FROM "
        f"{quoted(held.before.schema, held.before.name)} a WHERE {where[0]}",
        where[1],
    )


def converted_plan(held: Plan) -> Plan:
    """The plan as it is between two tables of the new form."""
    return replace(
        held,
        before=held.after,
        pairs=tuple((new, new) for _, new in held.pairs),
        key=tuple((new, new) for _, new in held.key),
        loose=(),
    )
