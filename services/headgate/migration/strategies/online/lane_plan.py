"""The plan of a copy that a lane keeps in step: until the cut-over the copy's columns are called as the table's are.

Change events have the columns of the table as it is. So a column that the change renames is renamed back in the copy,
and one that it drops is put there again; both are undone in the cut-over's transaction, where they take no time.
In a revert the copy is the table before (way_back.py). Pure: a plan goes in, a plan or a refusal comes out.
"""

from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.databases.catalogue import ROW_KEY_PREFIX
from headgate.migration.strategies.contract import CopyPlan, DescribedColumn, DescribedTable, RefusedError
from headgate.migration.strategies.fingerprint import FormChange, Named

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

    ``renamed`` are (name now, name after), ``dropped`` (name, type). ``row_key`` is the name of a unique index that the
    copy has until it takes the table's place, because its primary key is not the one that change events have; empty if
    it is. ``publication`` is one that has the table.
    ``is_back``: the copy is the table that an earlier change has replaced. ``casts_copy``: values are compared in the
    form of the table, else in the copy's: in whichever the other's values all fit. ``keys`` are statements that add
    what the copy lacks while it is filled: its unique keys beside the primary one. ``registry``: its name, if
    the topic is in Avro. ``change``: what the statement does to the table's facts, None where that is not known (in a
    revert).
    """

    plan: CopyPlan
    held: CopyPlan
    renamed: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, str], ...]
    topic: str
    publication: str = ""
    is_back: bool = False
    casts_copy: bool = False
    keys: tuple[str, ...] = ()
    registry: str | None = None
    change: FormChange | None = None
    row_key: str = ""
    names: tuple[Named, ...] = ()

    @property
    def wanted_names(self) -> tuple[Named, ...]:
        """What objects of the copy are called after the cut-over, as far as that is known."""
        return self.names or (() if self.change is None else self.change.names)

    @property
    def is_rekeyed_late(self) -> bool:
        """Whether the copy gets its own primary key when it has every row: until then two rows might have the same.

        Not where that key has all columns by which rows are found: then no two rows ever have the same.
        """
        return bool(self.row_key) and not {new for _, new in self.plan.key} <= set(self.plan.after.primary)

    @property
    def compares_rows(self) -> bool:
        """Whether a unique key of either table could keep a row out because of another one."""
        keys = {old for old, _ in self.plan.key}, {new for _, new in self.plan.key}
        tables = self.plan.before, self.plan.after
        return any(
            table.weak_keys or not all(key <= set(columns) for columns in table.keys.values())
            for key, table in zip(keys, tables, strict=True)
        )

    @property
    def source(self) -> ChangeTopic:
        """Where changes come from."""
        return ChangeTopic(self.topic, self.registry)


def lane_plan(plan: CopyPlan, topic: str, *, name_bytes_max: int) -> LanePlan:
    """The plan, if a lane can fill such a copy. Raises RefusedError."""
    table = f"{plan.before.schema}.{plan.before.name}"
    _check_key(table, plan)
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


def _check_key(table: str, plan: CopyPlan) -> None:
    """Raise RefusedError if rows cannot be found in the copy by the key that change events have."""
    for old, new in plan.key:
        before, after = plan.before.column(old), plan.after.column(new)
        is_computed = after is not None and after.is_generated and (old, new) not in plan.pairs
        if (before is not None and before.is_generated) or is_computed:
            raise RefusedError(
                f"table {table}: column {old}, by which change events name rows, is computed by the server. Use "
                "strategy direct"
            )
        if after is not None and (old, new) not in plan.pairs:
            raise RefusedError(
                f"table {table}: column {old}, by which change events name rows, is dropped, and another one of that "
                "name is added. Use two migrations, or strategy direct"
            )


def several_and_unique(plan: LanePlan) -> RefusedError:
    """A topic of several partitions cannot keep a unique key: rows of different partitions are of different moments."""
    before = plan.plan.before
    return RefusedError(
        f"table {before.schema}.{before.name} has unique keys beside the one by which change events name rows "
        f"({', '.join(old for old, _ in plan.plan.key)}), before or after the change, and "
        f"topic {plan.topic} several partitions: a value that goes from row to row could not be followed. Use "
        "strategy direct, or pt-osc at MariaDB"
    )


def aside_name(shadow: str) -> str:
    """What the table is called once the copy has taken its place: not as the copy was, which the feed still names.

    There and back again: the second name's is the first one.
    """
    return shadow.removesuffix(_OLD) if shadow.endswith(_OLD) else f"{shadow}{_OLD}"


def _held(plan: CopyPlan, topic: str) -> LanePlan:
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
        raise RefusedError(
            f"table {table}: two columns would have the same name until the cut-over: use strategy direct"
        )
    dropped = tuple(
        (column.name, column.type)
        for column in plan.before.columns
        if column.name not in old_names and not column.is_generated and column.name not in present
    )
    # Rows are found by a column of the key until the cut-over, so one that is dropped has its values until then.
    kept = [old for old, _ in plan.key if old not in old_names]
    held = replace(
        plan,
        after=replace(plan.after, columns=(*columns, *_columns_of(plan.before, kept))),
        pairs=(*((old, old) for old, _ in plan.pairs), *((name, name) for name in kept)),
        key=tuple((old, old) for old, _ in plan.key),
        loose=tuple(back.get(name, name) for name in plan.loose),
    )
    is_found = {new for _, new in plan.key} == set(plan.after.primary) and not kept
    return LanePlan(plan, held, renamed, dropped, topic, row_key="" if is_found else _row_key(plan.shadow))


def _columns_of(table: DescribedTable, names: list[str]) -> list[DescribedColumn]:
    return [column for column in table.columns if column.name in names]


def _row_key(shadow: str) -> str:
    """Names of indexes are a schema's at PostgreSQL, so every copy's is another one."""
    return f"{ROW_KEY_PREFIX}{sha256(shadow.encode()).hexdigest()[:8]}"


def _is_computed(plan: CopyPlan, name: str) -> bool:
    """Whether the column is generated before and after the change: then it has no values to be mistaken for."""
    old, new = plan.before.column(name), plan.after.column(name)
    return old is not None and new is not None and old.is_generated and new.is_generated
