"""Plans how a table's rows are copied, from its descriptions before and after; or why they cannot be.

Pure: the server's descriptions come in, a plan or a refusal goes out. A copy needs a key that both tables have, so that
a row has one place; it must not lose values in silence, so a type that holds less is refused unless the operator names
the column (``--allow-lossy COLUMN``). Dropping a column implies that its values go.
"""

import operator
import shlex
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Final

from headgate.migration.core.spec import Lossy, may_lose
from headgate.migration.statements.mariadb_columns import origins, same_name
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import CopyPlan, DescribedTable, RefusedError
from headgate.migration.strategies.row_rules import RowCheck, UniqueKey
from headgate.migration.strategies.two_ways import converts_alike
from headgate.migration.strategies.widening import loss

_VALUED: Final = ("AT_ColumnDefault", "AT_AddIdentity", "AT_SetIdentity", "AT_DropIdentity", "AT_SetExpression")
"""Clauses of PostgreSQL that change which value a column has where a row does not give one."""


def shadow_name(table: str, migration: str, limit: int, prefix: str = "_") -> str:
    """The name of the copy. Raises RefusedError if the server cannot have such a long one."""
    name = f"{prefix}{table}_hg{sha256(migration.encode()).hexdigest()[:8]}"
    if len(name.encode()) > limit:
        raise RefusedError(
            f"table {table}: the copy's name {name} would be longer than the server's {limit} bytes; "
            "use strategy direct, or a shorter name"
        )
    return name


def columns_before(statement: Statement, before: DescribedTable, after: DescribedTable) -> dict[str, str]:
    """Which column each column afterwards was, by the catalogue: name after → name before. New ones are left out.

    Raises RefusedError if the statement, as it was read, does not lead to the table that the server has made of it.
    """
    if is_numbered(after):
        # PostgreSQL: a copy's columns are numbered as they come, and an ALTER keeps the numbers of those that stay.
        known = {number: column.name for number, column in enumerate(before.columns, start=1)}
        return {column.name: known[column.number] for column in after.columns if column.number in known}
    found = origins(statement, [column.name for column in before.columns])
    made = [column.name for column in after.columns]
    if len(found) != len(made) or not all(map(same_name, [origin.name for origin in found], made)):
        raise RefusedError(
            f"table {before.schema}.{before.name}: the statement was read as leading to the columns "
            f"{', '.join(origin.name for origin in found)}, and the server made "
            f"{', '.join(made)} of it. Use strategy direct"
        )
    return {
        column.name: before.columns[origin.before].name
        for origin, column in zip(found, after.columns, strict=True)
        if origin.before is not None
    }


def check_obstacles(table: DescribedTable) -> None:
    """Raise RefusedError if something prevents a copy of the table."""
    # The drivers take a percent sign in a statement for a parameter.
    strange = [
        f"column {c.name} has a percent sign in its name: use strategy direct" for c in table.columns if "%" in c.name
    ]
    if table.obstacles or strange:
        raise RefusedError(f"table {table.schema}.{table.name}: {'; '.join((*table.obstacles, *strange))}")


def check_columns(statement: Statement, table: DescribedTable) -> None:
    """Raise RefusedError if the statement names a column that the table does not have."""
    same = operator.eq if is_numbered(table) else same_name
    for step in statement.steps:
        if step.column is None or step.is_conditional:
            continue
        if not any(same(column.name, step.column) for column in table.columns):
            raise RefusedError(f"table {table.schema}.{table.name} has no column {step.column}")


def check_order(statement: Statement, table: DescribedTable) -> None:
    """Raise StatementError if it is not clear what becomes of the table's columns."""
    if not is_numbered(table):
        origins(statement, [column.name for column in table.columns])


def check_added(statement: Statement, table: DescribedTable) -> None:
    """Raise RefusedError if a clause changes what rows get in a column that another clause adds.

    The server gives existing rows the value of ADD COLUMN, and new ones that of the other clause. A copy has one form.
    """
    dropped = {step.column for step in statement.steps if step.clause.key == "AT_DropColumn"}
    present = {column.name for column in table.columns} - dropped
    added = {
        step.name
        for step in statement.steps
        if step.clause.key == "AT_AddColumn" and not (step.is_conditional and step.name in present)
    }
    for step in statement.steps:
        if step.column in added and step.clause.key in _VALUED:
            raise RefusedError(
                f"table {table.schema}.{table.name}: column {step.column} is added, and its default is changed by "
                "another clause: existing rows would get the second one. Add the column first, and change its default "
                "by another migration; or use strategy direct"
            )


def is_numbered(table: DescribedTable) -> bool:
    """Whether the server numbers columns: PostgreSQL does."""
    return any(column.number for column in table.columns)


def find_key(table: DescribedTable) -> None:
    """Raise RefusedError if the table has no key by which its rows could be copied."""
    _shared_key(table, table, [(column.name, column.name) for column in table.columns])


def check_named(before: DescribedTable, after: DescribedTable, allowed: Lossy) -> None:
    """Raise RefusedError if ``--allow-lossy`` names a column that the table has neither before nor after."""
    for name in () if isinstance(allowed, bool) else allowed:
        if before.column(name) is None and after.column(name) is None:
            raise RefusedError(
                f"--allow-lossy names column {name}, which table {before.schema}.{before.name} does not have. Write "
                "the name as the table does"
            )


def allowing(columns: Iterable[str]) -> str:
    """The options that allow the columns' values to be lost."""
    return " ".join(f"--allow-lossy {shlex.quote(name)}" for name in columns)


def make_plan(
    was: Mapping[str, str],
    before: DescribedTable,
    after: DescribedTable,
    shadow: str,
    *,
    allow_lossy: Lossy,
    is_followed: bool = False,
) -> CopyPlan:
    """The plan of a copy; ``was`` maps columns afterwards to those before. Raises RefusedError.

    ``is_followed``: rows are found by the key that change events have, in the copy too. Else by a key of both tables.
    """
    check_obstacles(before)
    check_named(before, after, allow_lossy)
    if after.obstacles:
        raise RefusedError(f"table {before.schema}.{before.name}, after the change: {'; '.join(after.obstacles)}")
    pairs, loose, losses = [], [], {}
    for column in after.columns:
        old = before.column(was[column.name]) if column.name in was else None
        if old is None:
            if not (column.is_nullable or column.has_default or column.is_generated):
                losses[column.name] = "it is NOT NULL without a default, and existing rows do not have a value"
            continue
        if column.is_generated:
            continue
        pairs.append((old.name, column.name))
        reason = loss(old.type, column.type, is_enum=old.is_enum)
        if reason is None and old.is_nullable and not column.is_nullable:
            reason = "NULL is not allowed any more"
        if reason is not None:
            losses[column.name] = reason
            loose.append(column.name)
    if refused := {name: reason for name, reason in losses.items() if not may_lose(allow_lossy, name)}:
        raise RefusedError(
            f"table {before.schema}.{before.name}: values could be lost: "
            f"{'; '.join(f'{name}: {reason}' for name, reason in refused.items())}. If that is meant, add "
            f"{allowing(refused)}"
        )
    if is_followed:
        _check_two_ways(before, after, pairs, loose)
    key = _event_key(before, pairs) if is_followed else _shared_key(before, after, pairs)
    return CopyPlan(before, after, shadow, tuple(pairs), key, tuple(loose))


def _check_two_ways(
    before: DescribedTable, after: DescribedTable, pairs: list[tuple[str, str]], loose: list[str]
) -> None:
    """Raise RefusedError if a value could become another one by the feed than by the copy."""
    for old, new in ((before.column(old), after.column(new)) for old, new in pairs):
        if old is None or new is None or old.type == new.type:
            continue
        is_postgresql, is_wider = is_numbered(before), new.name not in loose
        if not converts_alike(old.type, new.type, is_postgresql=is_postgresql, is_enum=old.is_enum, is_wider=is_wider):
            raise RefusedError(
                f"table {before.schema}.{before.name}: {new.name}: {old.type} becomes {new.type}. A row that is copied "
                "and a row that the feed brings could get different values, because one is converted from the server's "
                "own value and the other from the text of an event. Use strategy direct, or add a column of the new "
                "type, fill it yourself, and drop the old one"
            )


def _event_key(before: DescribedTable, pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The columns by which change events name a row, and what they become; one that is dropped keeps its name.

    Events have the primary key, or else the first unique key, as Debezium takes it.
    """
    to_new = dict(pairs)
    for name, columns in before.keys.items():
        if name not in before.unordered and _is_present(before, columns):
            return tuple((column, to_new.get(column, column)) for column in columns)
    raise _keyless(before)


def _is_present(table: DescribedTable, columns: Iterable[str]) -> bool:
    """Whether none of the columns may be NULL."""
    found = [table.column(name) for name in columns]
    return all(column is not None and not column.is_nullable for column in found)


def _shared_key(
    before: DescribedTable, after: DescribedTable, pairs: list[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    to_new = dict(pairs)
    theirs = {frozenset(columns) for columns in after.keys.values()}
    for name, columns in before.keys.items():
        if name in before.unordered:
            continue
        mapped = [to_new.get(column) for column in columns]
        if None in mapped or frozenset(mapped) not in theirs:
            continue
        if _is_present(before, columns):
            return tuple((column, to_new[column]) for column in columns)
    if any(name not in before.unordered and _is_present(before, columns) for name, columns in before.keys.items()):
        raise RefusedError(
            f"table {before.schema}.{before.name}: no unique key without NULLs exists both before and after "
            "the change. Use strategy online, or change the key in two steps: add the new one, then drop "
            "the old one"
        )
    raise _keyless(before)


def _keyless(table: DescribedTable) -> RefusedError:
    """Why no row of the table can be found."""
    full = f"{table.schema}.{table.name}"
    if table.unordered:
        return RefusedError(
            f"table {full}: rows cannot be copied by key {', '.join(sorted(table.unordered))}, "
            "because its types are compared by operators of an extension. Use strategy direct, or add a unique key of "
            "another type first"
        )
    others = sorted({*table.keys, *table.weak_keys})
    weak = f" (a row is not found by {', '.join(others)})" if others else ""
    return RefusedError(
        f"table {full} has no primary or unique key of whole columns without NULLs, by which its rows could be "
        f"copied{weak}: add one with strategy direct first"
    )


def unproven_keys(plan: CopyPlan) -> list[UniqueKey]:
    """Unique keys after the change under which rows of the table may be equal.

    That is not so if the table has a key of the same parts, or of some of them, whose values stay what they are, or if
    a new column is different for each row.
    """
    valid = [key for key in plan.before.rules.unique if key.is_valid]
    return [
        key
        for key in plan.after.rules.unique
        if not _differs_by_new_column(plan, key) and not any(_proves(plan, theirs, key) for theirs in valid)
    ]


def _differs_by_new_column(plan: CopyPlan, key: UniqueKey) -> bool:
    """Whether a new column counts the rows, or is NULL for all of them where NULL is not equal to NULL."""
    kept = {new for _, new in plan.pairs}
    added = [plan.after.column(name) for name in key.columns if name not in kept]
    return any(
        column is not None
        and not column.expression
        and (column.is_counting or (column.given == "NULL" and not key.compares_nulls))
        for column in added
    )


def _proves(plan: CopyPlan, theirs: UniqueKey, key: UniqueKey) -> bool:
    """Whether rows that differ under ``theirs``, of the table, differ under ``key``, too."""
    to_new = {old: new for old, new in plan.pairs if new not in plan.loose}
    changed = changed_columns(plan)
    to_new |= {c.name: c.name for c in plan.before.columns if c.is_generated and c.name not in changed}
    mapped = set()
    for part in theirs.parts:
        if part.column and part.column in to_new:
            mapped.add((to_new[part.column], "", part.collation, part.prefix))
        elif not part.column and not _names_any(part.expression, changed):
            mapped.add(("", part.expression, part.collation, part.prefix))
        else:
            return False
    parts = {(part.column, "" if part.column else part.expression, part.collation, part.prefix) for part in key.parts}
    is_of_them = not theirs.predicate or (
        theirs.predicate == key.predicate and not _names_any(theirs.predicate, changed)
    )
    return mapped <= parts and is_of_them and (theirs.compares_nulls or not key.compares_nulls)


def changed_columns(plan: CopyPlan) -> frozenset[str]:
    """Columns of the table that have other values afterwards, compare in another way, or have another name."""
    stays = {old for old, new in plan.pairs if old == new and new not in plan.loose}
    changed: set[str] = set()
    for column in sorted(plan.before.columns, key=lambda column: column.is_generated):
        after = plan.after.column(column.name)
        is_kept = after is not None and (after.type, after.collation) == (column.type, column.collation)
        if column.is_generated:
            is_kept = is_kept and after is not None and after.expression == column.expression
            is_kept = is_kept and not _names_any(column.expression, changed)
        elif column.name not in stays:
            is_kept = False
        if not is_kept:
            changed.add(column.name)
    return frozenset(changed)


def unchanged_columns(plan: CopyPlan) -> frozenset[str]:
    """Columns of the table for which ``changed_columns`` has nothing: a condition on them is true before and after."""
    return frozenset(column.name for column in plan.before.columns) - changed_columns(plan)


def _names_any(expression: str, columns: Collection[str]) -> bool:
    """Whether the expression may name one of the columns. A text that only has the name in it counts as well."""
    text = _plainly(expression)
    return bool(columns) and (".*" in text or any(_plainly(column) in text for column in columns))


def _plainly(text: str) -> str:
    return text.lower().replace("`", "").replace('"', "")


def new_checks(plan: CopyPlan) -> list[RowCheck]:
    """Conditions that the table does not have yet, and those whose columns change."""
    changed = changed_columns(plan)
    valid = [check.expression for check in plan.before.rules.checks if check.is_valid]
    known = {expression for expression in valid if not _names_any(expression, changed)}
    return [check for check in plan.after.rules.checks if check.expression not in known]


def unknown_columns(plan: CopyPlan) -> frozenset[str]:
    """Columns after the change whose values for the present rows no query can give."""
    kept = {new for _, new in plan.pairs}
    found = {
        column.name
        for column in plan.after.columns
        if column.name not in kept and not column.expression and column.given is None
    }
    return frozenset(found | {column.name for column in plan.after.columns if found and column.expression})


def equal_rows(plan: CopyPlan, key: UniqueKey) -> str:
    """What rows are called that are equal under a unique key."""
    where = f"({', '.join(key.columns)})" if key.is_plain else f"the parts of key {key.name}"
    nulls = ", where NULL is equal to NULL" if key.compares_nulls else ""
    return f"table {plan.before.schema}.{plan.before.name} has rows that are equal in {where}{nulls}"
