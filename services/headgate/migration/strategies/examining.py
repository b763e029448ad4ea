"""What every copying strategy asks before it accepts a change: is there a plan, and do the rows that are there fit."""

from typing import Any

from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.contract import Plan, RefusedError
from headgate.migration.strategies.planning import added_unique_keys, make_plan, shadow_name
from headgate.migration.strategies.room import check_room
from headgate.migration.strategies.statement import Statement, parse_statement


def checked_plan(server: Any, migration: str, spec: MigrationSpec, feeds: Any = None) -> tuple[Statement, Plan]:
    """The plan, once it is known that the rows fit. Raises RefusedError, StatementError, DatabaseUnavailableError.

    ``feeds``: those of the cluster, where there is one to be asked.
    """
    statement = parse_statement(spec.statement, server.dialect)
    plan = plan_copy(server, migration, statement, spec)
    check_room(f"{plan.before.schema}.{plan.before.name}", server.stored(plan.before))
    if spec.threads_running_max is not None or spec.lag_seconds_max is not None:
        server.check_load(with_lag=spec.lag_seconds_max is not None)
    if feeds is not None:
        feeds.check_known(spec.feed_lags_max)
    for columns in added_unique_keys(statement, plan.before, plan.after):
        if server.duplicates(plan.before, columns):
            raise RefusedError(
                f"table {plan.before.schema}.{plan.before.name} has rows that are equal in ({', '.join(columns)}): "
                "a unique key over them would lose all but one; remove the duplicates first"
            )
    return statement, plan


def plan_copy(server: Any, migration: str, statement: Statement, spec: MigrationSpec) -> Plan:
    """How the table would be copied; nothing is changed. Raises RefusedError, DatabaseUnavailableError."""
    if statement.action != "alter":
        raise RefusedError(f"{statement.action.upper()} TABLE has nothing to copy: use strategy direct")
    if server.dialect == "postgres" and " USING " in statement.tail.upper():
        raise RefusedError("ALTER … USING computes values by an expression: use strategy direct")
    before = server.look(statement)
    if before is None:
        raise RefusedError(f"table {statement.table} does not exist in {server.address}")
    shadow = shadow_name(before.name, migration, server.name_bytes_max, server.shadow_prefix)
    if before.obstacles:
        return make_plan(statement, before, before, shadow, allow_lossy=spec.allow_lossy)
    after = server.rehearse(statement, before)
    return make_plan(statement, before, after, shadow, allow_lossy=spec.allow_lossy)
