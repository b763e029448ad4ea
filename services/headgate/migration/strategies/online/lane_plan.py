"""The plan of a copy that a lane keeps in step: until the cut-over the copy's columns are called as the table's are.

Change events have the columns of the table as it is. So a column that the change renames is renamed back in the copy,
and one that it drops is put there again; both are undone in the cut-over's transaction, where they take no time.
On the way back the copy is the table before (way_back.py). Pure: a plan goes in, a plan or a refusal comes out.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.migration.strategies.contract import Plan, RefusedError, Table
from headgate.migration.strategies.fingerprint import FormChange

_OLD: Final = "_old"
_ADDED: Final = "_hg_new"
_NAME_KEPT: Final = 48
"""Characters of a name, so that it is not too long with ``_ADDED`` behind it."""


class ChangeTopic(msgspec.Struct, frozen=True):
    """Which has a table's changes. ``registry`` names where the schemas are, if it is in Avro; else it is in JSON."""

    name: str
    registry: str | None = None


class LanePlan(msgspec.Struct, frozen=True):
    """``plan`` is what the change makes; ``held`` the same, with the copy's columns as they are until the cut-over.

    ``renamed`` are (name now, name after), ``dropped`` (name, type). ``publication`` is one that has the table.
    ``is_back``: the copy is the table that an earlier change has replaced. ``casts_copy``: values are compared in the
    form of the table, else in the copy's: in whichever the other's values all fit. ``keys`` are statements that add
    what the copy lacks while it is filled: its unique keys beside the primary one. ``registry``: its name, if
    the topic is in Avro. ``change``: what the statement does to the table's facts, None where that is not known (on the
    way back).
    """

    plan: Plan
    held: Plan
    renamed: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, str], ...]
    topic: str
    publication: str = ""
    is_back: bool = False
    casts_copy: bool = False
    keys: tuple[str, ...] = ()
    registry: str | None = None
    change: FormChange | None = None

    @property
    def source(self) -> ChangeTopic:
        """Where changes come from."""
        return ChangeTopic(self.topic, self.registry)


def lane_plan(plan: Plan, topic: str, *, name_bytes_max: int) -> LanePlan:
    """The plan, if a lane can fill such a copy. Raises RefusedError."""
    table = f"{plan.before.schema}.{plan.before.name}"
    primary = set(plan.before.primary), set(plan.after.primary)
    if not all(primary) or ({old for old, _ in plan.key}, {new for _, new in plan.key}) != primary:
        raise _no_primary(table)
    for old, _ in plan.pairs:
        column = plan.before.column(old)
        if column is not None and column.is_generated:
            raise RefusedError(
                f"table {table}: column {old} is computed by the server, so its value is not in change events, and the "
                "change makes it an ordinary one. Use strategy direct, or pt-osc at MariaDB"
            )
    if any("{" in part or "}" in part for part in (plan.before.schema, plan.shadow)):
        raise RefusedError(f"table {table}: a name with braces cannot be a feed's target. Use strategy direct")
    if len(aside_name(plan.shadow).encode()) > name_bytes_max:
        raise RefusedError(f"table {table}: the name {aside_name(plan.shadow)} would be too long; use a shorter name")
    return _held(plan, topic)


def check_primary(table: Table) -> None:
    """Raise RefusedError if the table has no primary key."""
    if not table.primary:
        raise _no_primary(f"{table.schema}.{table.name}")


def _no_primary(table: str) -> RefusedError:
    return RefusedError(
        f"table {table}: strategy online needs a primary key that the change leaves as it is: rows are found by it "
        "in change events. Use strategy direct, or pt-osc at MariaDB"
    )


def several_and_unique(plan: LanePlan) -> RefusedError:
    """A topic of several partitions cannot keep a unique key: rows of different partitions are of different moments."""
    before = plan.plan.before
    return RefusedError(
        f"table {before.schema}.{before.name} has unique keys beside the primary one, before or after the change, and "
        f"topic {plan.topic} several partitions: a value that goes from row to row could not be followed. Use "
        "strategy direct, or pt-osc at MariaDB"
    )


def aside_name(shadow: str) -> str:
    """What the table is called once the copy has taken its place: not as the copy was, which the feed still names.

    There and back again: the second name's is the first one.
    """
    return shadow.removesuffix(_OLD) if shadow.endswith(_OLD) else f"{shadow}{_OLD}"


def _held(plan: Plan, topic: str) -> LanePlan:
    table = f"{plan.before.schema}.{plan.before.name}"
    old_names = {old for old, _ in plan.pairs}
    renamed = tuple((old, new) for old, new in plan.pairs if old != new)
    for old, new in renamed:
        if new in old_names:
            raise RefusedError(
                f"table {table}: column {old} takes the name of column {new}, which stays under another one. Use "
                "two migrations, with a third name in between"
            )
    news = {new for _, new in plan.pairs}
    called = {column.name.lower() for column in plan.before.columns}
    # A column that is dropped and added again is another one: until the cut-over the new one has a name of its own.
    added = {c.name: f"{c.name[:_NAME_KEPT]}{_ADDED}" for c in plan.after.columns if c.name not in news}
    renamed += tuple(
        (held, new) for new, held in added.items() if new.lower() in called and not _is_computed(plan, new)
    )
    back = {new: old for old, new in renamed}
    columns = tuple(replace(column, name=back.get(column.name, column.name)) for column in plan.after.columns)
    present = {column.name for column in columns}
    if len(present) < len(columns):
        raise RefusedError(f"table {table}: two columns would be called alike until the cut-over: use strategy direct")
    dropped = tuple(
        (column.name, column.type)
        for column in plan.before.columns
        if column.name not in old_names and not column.is_generated and column.name not in present
    )
    held = replace(
        plan,
        after=replace(plan.after, columns=columns),
        pairs=tuple((old, old) for old, _ in plan.pairs),
        key=tuple((old, old) for old, _ in plan.key),
        loose=tuple(back.get(name, name) for name in plan.loose),
    )
    return LanePlan(plan, held, renamed, dropped, topic)


def _is_computed(plan: Plan, name: str) -> bool:
    """A generated column of the table before that goes on as one has no values to be mistaken for."""
    old, new = plan.before.column(name), plan.after.column(name)
    return old is not None and new is not None and old.is_generated and new.is_generated
