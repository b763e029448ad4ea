"""A database as managed servers have it: members of a role may use replication slots without the attribute for it.

Amazon RDS changes the check within the server. Here the functions of slots are wrapped by ones that check membership,
in one database alone: which functions there are is in its own catalogue.
"""

from typing import Final

import psycopg
from psycopg import sql

__all__ = ["replicating_by_membership"]

_WRAPPED: Final = (
    ("pg_drop_replication_slot", "slot name", "void", "slot"),
    (
        "pg_create_logical_replication_slot",
        "slot name, plugin name, temporary boolean, OUT slot_name name, OUT lsn pg_lsn",
        "record",
        "slot, plugin, temporary",
    ),
    (
        "pg_logical_slot_get_binary_changes",
        "slot name, upto pg_lsn, changes int, VARIADIC options text[], OUT lsn pg_lsn, OUT xid xid, OUT data bytea",
        "SETOF record",
        "slot, upto, changes, VARIADIC options",
    ),
)

_WRAPPER: Final = sql.SQL("""
CREATE FUNCTION pg_catalog.{function}({parameters}) RETURNS {result} LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
IF NOT pg_has_role(session_user, {role}, 'MEMBER') THEN
RAISE insufficient_privilege USING MESSAGE = 'permission denied to use replication slots'; END IF;
{call}; END $$
""")
_CALLS: Final = {
    "void": sql.SQL("PERFORM pg_catalog.{built_in}({given})"),
    "record": sql.SQL("SELECT * INTO slot_name, lsn FROM pg_catalog.{built_in}({given})"),
    "SETOF record": sql.SQL("RETURN QUERY SELECT * FROM pg_catalog.{built_in}({given})"),
}


def replicating_by_membership(dsn: str, role: str) -> None:
    """Let only members of ``role`` use slots in this database. ``dsn``: of a superuser."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET allow_system_table_mods = on")
        for function, parameters, result, given in _WRAPPED:
            built_in = f"built_in_{function}"
            connection.execute(
                "UPDATE pg_proc SET proname = %s WHERE oid = %s::regproc", (built_in, f"pg_catalog.{function}")
            )
            call = _CALLS[result].format(built_in=sql.Identifier(built_in), given=sql.SQL(given))
            connection.execute(
                _WRAPPER.format(
                    function=sql.Identifier(function),
                    parameters=sql.SQL(parameters),
                    result=sql.SQL(result),
                    role=sql.Literal(role),
                    call=call,
                )
            )
