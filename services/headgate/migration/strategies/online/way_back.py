"""The revert of a completed ``online`` change: the old table, kept up to date by a feed.

At the cut-over the table before and the new one are equal, as far as they have the same columns, and it is known behind
which offset of the topic the new one's changes begin. A feed from there into the table before makes it what it would be
had clients written to it all the while. Then the two change places again, as they did before.

Change events have the columns of the new table, so until then the table before is held in their form, as a copy is on
the way there (lane_plan.py): a renamed column has its new name, a new one is there without values, and goes in the end.
What the table before alone has, changes do not bring: rows inserted since get the column's default, or NULL.
Pure: what is known comes in, a plan or a refusal goes out.
"""

from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.migration.strategies.contract import CopyPlan, DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.online.lane_plan import LanePlan, aside_name

OPPOSITE: Final = "submit the opposite change"


class WayBack(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a completed change can be reverted, in its record.

    ``offsets``: partition → the offset of the topic at which the new table's changes begin. ``built``, ``definition``:
    what the new table is, to detect another one. ``table``: the table before, by its present name. ``feed``: the feed
    that keeps it up to date from the change on; empty if it starts with a revert. ``reason``: why the change
    cannot be reverted; empty if it can. ``topic_id``: Kafka's id of the topic that ``offsets`` belongs to, None if it
    is not known.
    """

    offsets: dict[int, int]
    built: str = ""
    definition: str = ""
    table: str = ""
    feed: str = ""
    reason: str = ""
    topic_id: str | None = None


def read_way_back(note: str) -> WayBack | None:
    """How to revert, from a record's note; None if it has nothing about it."""
    try:
        return msgspec.json.decode(note, type=WayBack)
    except msgspec.DecodeError:
        return None


def fingerprint(table: DescribedTable) -> str:
    """The same exactly for tables that are built the same."""
    return sha256(table.definition.encode()).hexdigest()


def plan_back(forth: LanePlan, now: DescribedTable) -> LanePlan:
    """The plan of a revert; ``now`` is the new table. Raises RefusedError if the change cannot be reverted."""
    past = forth.plan.before
    where = f"table {past.schema}.{past.name}: the change cannot be reverted, because"
    if forth.row_key:
        raise RefusedError(f"{where} it has replaced the primary key that the events have: {OPPOSITE}")
    to_past = {new: old for old, new in forth.plan.pairs}
    if len(to_past) < len(forth.plan.pairs) or len({old for old, _ in forth.plan.pairs}) < len(forth.plan.pairs):
        raise RefusedError(f"{where} two columns were made of one: {OPPOSITE}")
    pairs = tuple((column.name, to_past[column.name]) for column in now.columns if column.name in to_past)
    moved = tuple((new, old) for new, old in pairs if new != old)
    for new, old in moved:
        if past.column(new) is not None or now.column(old) is not None:
            raise RefusedError(
                f"{where} column {new} was {old}, and both names are columns before or after the change: {OPPOSITE}"
            )
    _check_left_behind(where, past, now, set(to_past.values()))
    added = tuple((column.name, column.type) for column in now.columns if _is_added(column, to_past, past))
    plan = CopyPlan(
        before=now,
        after=past,
        shadow=aside_name(forth.plan.shadow),
        pairs=pairs,
        key=tuple((new, old) for old, new in forth.plan.key),
        loose=tuple(to_past[name] for name in forth.plan.loose if name in to_past),
    )
    names = {old: new for new, old in moved}
    held = replace(
        plan,
        after=replace(past, columns=tuple(replace(c, name=names.get(c.name, c.name)) for c in past.columns)),
        pairs=tuple((new, new) for new, _ in pairs),
        key=tuple((new, new) for new, _ in plan.key),
        loose=tuple(names.get(name, name) for name in plan.loose),
    )
    is_to_be_cast = not forth.casts_copy
    return LanePlan(
        plan,
        held,
        moved,
        added,
        forth.topic,
        forth.publication,
        is_back=True,
        casts_copy=is_to_be_cast,
        registry=forth.registry,
        names=() if forth.change is None else forth.change.names_before,
    )


def _check_left_behind(where: str, past: DescribedTable, now: DescribedTable, kept: set[str]) -> None:
    """Columns that changes do not bring any more: rows that are written since must do without."""
    for column in past.columns:
        if column.name in kept or column.is_generated:
            continue
        another = now.column(column.name)
        if another is not None and not another.is_generated:
            raise RefusedError(
                f"{where} column {column.name} was dropped, and another one of that name was added: {OPPOSITE}"
            )
        if another is not None:
            raise RefusedError(
                f"{where} column {column.name} is computed by the server now, so changes do not have its "
                f"value: {OPPOSITE}"
            )
        if not column.is_nullable and not column.has_default:
            raise RefusedError(
                f"{where} column {column.name}, which was dropped, is NOT NULL without a default: rows "
                f"written since have no value for it. {OPPOSITE.capitalize()}; next time, give it a default, or allow "
                "NULL, before it is dropped"
            )


def _is_added(column: DescribedColumn, to_past: dict[str, str], past: DescribedTable) -> bool:
    """Events may have values that the server has computed (MariaDB's stored columns), so these are put up with, too."""
    return column.name not in to_past and past.column(column.name) is None
