"""A table that pt-osc or gh-ost changes: the outcome, and the removal of what the program has left.

The program makes a copy under a name that we give it, one for each attempt, and renames. InnoDB's number of the table
as it was before shows what has happened: while the table of that number has the table's name, nothing has; once it has
another one, and the copy's name is gone, the change is in force. Nothing is inferred from the program's reports.

Taking away is one step for clients, under a lock of the table and the copy: triggers and copy go together, so that no
statement meets one without the other, and a rename of the program's that waits then fails for want of the copy.
"""

from contextlib import suppress

import msgspec

from headgate.databases.mysql.sql import quoted
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import Memory, RefusedError
from headgate.migration.strategies.mariadb.server import DOLLAR, MariadbServer
from headgate.records.migration import Artifact

__all__ = ["ToolPlan", "is_changed", "numbers_of", "old_names", "take_away", "triggers_of"]


class ToolPlan(msgspec.Struct, frozen=True):
    """What a program does to one table: known before it is started.

    ``numbers`` are InnoDB's of the table before (one, or one per partition). ``copy`` is the name of the copy,
    ``beside`` of what else the program makes, ``triggers`` how names of its triggers begin, where it makes any.
    ``before`` and ``after`` are definitions.
    """

    schema: str
    table: str
    copy: str
    numbers: tuple[int, ...]
    before: str
    after: str
    rows: int
    beside: tuple[str, ...] = ()
    triggers: str = ""


def numbers_of(server: MariadbServer, schema: str, table: str) -> tuple[int, ...]:
    """InnoDB's numbers of a table. Raises RefusedError if it has none."""
    found = tuple(int(number) for number in server.identity(schema, table).split(",") if number)
    if not found:
        raise RefusedError(f"{schema}.{table} is not in InnoDB's catalogue: grant PROCESS to the migrations' user")
    return found


def old_names(server: MariadbServer, plan: ToolPlan) -> tuple[str, ...]:
    """Names in the schema that the table before has now: its own, another one, or none."""
    marks = ", ".join(["%s"] * len(plan.numbers))
    rows = server.sessions.main.run(
        f"SELECT name FROM information_schema.innodb_sys_tables WHERE table_id IN ({marks})", plan.numbers
    )
    names = {row[0].split("#")[0].partition("/")[2].replace(DOLLAR, "$") for row in rows}
    return tuple(sorted(names))


def is_changed(server: MariadbServer, plan: ToolPlan) -> bool:
    """Whether the copy is in the table's place."""
    there = _existing(server, plan, (plan.table, plan.copy, *plan.beside))
    if plan.table not in there or plan.copy in there:
        return False
    names = old_names(server, plan)
    if names:
        return plan.table not in names
    # The table before no longer exists: dropped since, or re-created by a client. Its form decides.
    now = server.look(Statement("alter", plan.schema, plan.table, "", ""))
    return now is not None and plan.after != plan.before and now.definition == plan.after


def finished(server: MariadbServer, plan: ToolPlan) -> tuple[Artifact, ...]:
    """After the change: its triggers, which went with the table before, are dropped; that table is what is left."""
    for name in triggers_of(server, plan):
        server.sessions.main.run(f"DROP TRIGGER IF EXISTS {quoted(plan.schema, name)}")
    old = [name for name in old_names(server, plan) if name != plan.table]
    rest = [name for name in _existing(server, plan, plan.beside) if name not in old]
    for name in rest:
        server.sessions.main.run(f"DROP TABLE IF EXISTS {quoted(plan.schema, name)}")
    return tuple(Artifact("table", f"{plan.schema}.{name}") for name in old)


def take_away(server: MariadbServer, plan: ToolPlan, lock_seconds: float) -> None:
    """Nothing of the program is left, and the table is as before. Raises LockUnavailableError: nothing was done."""
    main = server.sessions.main
    triggers = triggers_of(server, plan)
    left = _existing(server, plan, (plan.copy, *plan.beside))
    if not triggers and not left:
        return
    locked = _existing(server, plan, (plan.table, plan.copy, *plan.beside))
    main.wait_at_most(lock_seconds)
    main.run("LOCK TABLES " + ", ".join(f"{quoted(plan.schema, name)} WRITE" for name in locked))
    try:
        for name in triggers:
            main.run(f"DROP TRIGGER IF EXISTS {quoted(plan.schema, name)}")
        for name in left:
            main.run(f"DROP TABLE {quoted(plan.schema, name)}")
    finally:
        main.run("UNLOCK TABLES")


def triggers_of(server: MariadbServer, plan: ToolPlan) -> list[str]:
    """Those that the program has made: by their names, and by the copy that they write to."""
    if not plan.triggers:
        return []
    rows = server.sessions.main.run(
        "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = %s AND LEFT(trigger_name, %s) = "
        "%s AND INSTR(action_statement, %s) > 0",
        (plan.schema, len(plan.triggers), plan.triggers, plan.copy),
    )
    return sorted(row[0] for row in rows)


def _existing(server: MariadbServer, plan: ToolPlan, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    marks = ", ".join(["%s"] * len(names))
    rows = server.sessions.main.run(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_name IN ({marks})",
        (plan.schema, *names),
    )
    found = {row[0] for row in rows}
    return [name for name in names if name in found]


def noted(memory: Memory | None) -> ToolPlan | None:
    """The plan that the database remembers."""
    if memory is None or not memory.before:
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(memory.before, type=ToolPlan)
    return None
