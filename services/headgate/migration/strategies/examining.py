"""Checks of every copying strategy before it accepts a change: whether a plan exists, and the present rows fit."""

from typing import Any, Final

from headgate.migration.core.spec import MigrationSpec
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import CopyPlan, DescribedTable, RefusedError
from headgate.migration.strategies.planning import (
    check_added,
    check_columns,
    check_obstacles,
    check_order,
    columns_before,
    equal_rows,
    find_key,
    make_plan,
    shadow_name,
    unproven_keys,
)
from headgate.migration.strategies.room import check_room
from headgate.migration.strategies.row_rules import Misfit
from headgate.records.migration import MigrationStrategy

AT_SUBMISSION: Final = "the resulting types, and whether the rows fit, are checked when it is submitted"
"""What a plan that only reads reports about the rest."""


def checked_plan(server: Any, spec: MigrationSpec, feeds: Any = None) -> tuple[Statement, CopyPlan]:
    """The plan, once it is known that the rows fit. Raises RefusedError, StatementError, DatabaseUnavailableError.

    ``feeds``: those of the cluster, where there is one to be asked.
    """
    statement = parse_statement(spec.statement, server.dialect)
    plan = plan_copy(server, statement, spec)
    check_means(server, plan.before, spec)
    if feeds is not None:
        feeds.check_known(spec.feed_lags_max)
    check_rows(server, plan, is_followed=spec.strategy is MigrationStrategy.ONLINE)
    return statement, plan


def check_rows(server: Any, plan: CopyPlan, *, is_followed: bool) -> None:
    """Raise RefusedError if the new form does not accept rows that the table has: the copy would end with them."""
    table = f"table {plan.before.schema}.{plan.before.name}"
    if found := server.misfits(plan, is_followed=is_followed):
        told = "; ".join(f"{misfit.rows} rows {misfit.why}{_listed(misfit)}" for misfit in found)
        raise RefusedError(f"{table} has rows that the change does not accept: {told}")
    for key in unproven_keys(plan):
        misfit = server.duplicates(plan, key)
        if misfit is not None:
            raise RefusedError(
                f"{equal_rows(plan, key)}: a unique key over them would lose all but one of each. Remove the "
                f"duplicates first, {misfit.rows} rows are concerned{_listed(misfit)}"
            )


def _listed(misfit: Misfit) -> str:
    return f" (list them by: {misfit.listing})" if misfit.listing else ""


def plan_copy(server: Any, statement: Statement, spec: MigrationSpec) -> CopyPlan:
    """How the table would be copied. Raises RefusedError, DatabaseUnavailableError."""
    before, shadow = _looked_up(server, statement, spec)
    check_obstacles(before)
    after = server.rehearse(statement, before)
    was = columns_before(statement, before, after)
    is_followed = spec.strategy is MigrationStrategy.ONLINE
    return make_plan(was, before, after, shadow, allow_lossy=spec.allow_lossy, is_followed=is_followed)


def read_plan(server: Any, spec: MigrationSpec) -> tuple[Statement, DescribedTable]:
    """The statement and its table, as far as they can be judged by reading. Raises as ``checked_plan`` does."""
    statement = parse_statement(spec.statement, server.dialect)
    before, _ = _looked_up(server, statement, spec)
    check_obstacles(before)
    check_columns(statement, before)
    check_order(statement, before)
    find_key(before)
    check_means(server, before, spec)
    return statement, before


def check_means(server: Any, table: DescribedTable, spec: MigrationSpec) -> None:
    """Raise RefusedError if a copy has no room, or if a limit cannot be kept here."""
    check_room(f"{table.schema}.{table.name}", server.stored(table))
    if spec.threads_running_max is not None or spec.lag_seconds_max is not None:
        server.check_load(with_lag=spec.lag_seconds_max is not None)


def check_copied(statement: Statement) -> None:
    """Raise RefusedError for a clause that no copy carries out."""
    if (step := statement.direct_only()) is not None:
        raise RefusedError(f"{step.clause.form} is done by strategy direct only. {step.clause.why}")


def _looked_up(server: Any, statement: Statement, spec: MigrationSpec) -> tuple[DescribedTable, str]:
    """The table, and the name of its copy."""
    if statement.action != "alter":
        raise RefusedError(f"{statement.action.upper()} TABLE has nothing to copy: use strategy direct")
    check_copied(statement)
    if spec.strategy is MigrationStrategy.ONLINE:
        server.check_rights(statement, is_copied=True)
    before = server.look(statement)
    if before is None:
        raise RefusedError(f"table {statement.table} does not exist in the database")
    check_added(statement, before)
    return before, shadow_name(before.name, server.migration, server.name_bytes_max, server.shadow_prefix)
