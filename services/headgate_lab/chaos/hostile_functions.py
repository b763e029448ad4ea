"""Stored functions and views that are called like MariaDB's own, in the databases that sessions of Headgate use.

MariaDB has no search path. A name without its database means a built-in function, or a table of the session's database.
Only if a space precedes the parenthesis of a function that the parser knows, as in ``COUNT (x)``, the session's
database is asked first. So each built-in function gets a function of its name, and each table of ``information_schema``
a view. A session that runs one of them takes a number of a sequence, which no rollback takes back, and gets an error.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

HOSTILE_DATABASE: Final = "a_trap"

Execute = Callable[[str], Sequence[Sequence[Any]]]

# If the server has a binary log, a function must declare that it is deterministic.
_BODY: Final = f"""
DETERMINISTIC MODIFIES SQL DATA
BEGIN
    DECLARE taken bigint DEFAULT NEXTVAL({HOSTILE_DATABASE}.sprung);
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'hijacked';
    RETURN taken;
END
"""
_FUNCTIONS: Final = "SELECT DISTINCT function FROM information_schema.sql_functions"
_RELATIONS: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'information_schema'"


def plant(execute: Execute, databases: Sequence[str]) -> int:
    """Create them in these databases, as root; all users may run them. Returns their number."""
    execute(f"CREATE DATABASE {HOSTILE_DATABASE}")
    execute(f"CREATE SEQUENCE {HOSTILE_DATABASE}.sprung NOCACHE")
    execute(f"CREATE FUNCTION {HOSTILE_DATABASE}.spring() RETURNS bigint {_BODY}")
    functions = [str(row[0]) for row in execute(_FUNCTIONS)]
    relations = [name for row in execute(_RELATIONS) for name in {str(row[0]), str(row[0]).lower()}]
    for database in databases:
        for name in functions:
            execute(f"CREATE FUNCTION `{database}`.`{name}` (a text) RETURNS bigint {_BODY}")
        for name in relations:
            execute(f"CREATE VIEW IF NOT EXISTS `{database}`.`{name}` AS SELECT {HOSTILE_DATABASE}.spring() AS a")
        execute(f"GRANT EXECUTE, SELECT ON `{database}`.* TO PUBLIC")
    return len(databases) * (len(functions) + len(relations))


def is_sprung(execute: Execute) -> bool:
    """Whether any of them has been run."""
    ((following,),) = execute(f"SELECT next_not_cached_value FROM {HOSTILE_DATABASE}.sprung")  # noqa: S608 - a constant
    return int(following) > 1
