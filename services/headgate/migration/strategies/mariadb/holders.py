"""Who holds a table, or waits for it: the sessions that a forced cut-over ends.

MariaDB reports them in performance_schema, if that is on, or by the plugin metadata_lock_info. Old transactions prove
nothing: they may be those of a backup of another database.
"""

from contextlib import suppress
from typing import Final

from headgate.migration.strategies.contract import LockUnavailableError, RefusedError
from headgate.migration.strategies.mariadb.sessions import UNKNOWN_SESSION, Session

__all__ = ["end_holders"]

_INSTRUMENT: Final = "wait/lock/metadata/sql/mdl"

_BY_SCHEMA: Final = """
SELECT t.processlist_id, MAX(l.lock_status = 'GRANTED') FROM performance_schema.metadata_locks l
JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id
WHERE l.object_type = 'TABLE' AND l.object_schema = %s AND l.object_name = %s AND t.processlist_id IS NOT NULL
GROUP BY t.processlist_id
"""

_BY_PLUGIN: Final = """
SELECT thread_id, 1 FROM information_schema.metadata_lock_info WHERE table_schema = %s AND table_name = %s
GROUP BY thread_id
"""


def end_holders(session: Session, schema: str, table: str, ours: frozenset[int]) -> list[str]:
    """KILL them, the waiting ones first: ended after the one that they wait for, they would run in between.

    ``ours`` are sessions of the migration. Returns what was ended. Raises LockUnavailableError if the server does not
    show the holders.
    """
    found = session.run(_question(session, schema, table), (schema, table))
    ended = []
    for number, holds in sorted((int(number), bool(holds)) for number, holds in found):
        if number in ours:
            continue
        who = session.run("SELECT user, host FROM information_schema.processlist WHERE id = %s", (number,))
        try:
            session.run(f"KILL {number}")
        except RefusedError as error:
            if not str(error).endswith(UNKNOWN_SESSION):
                raise
            continue  # it has ended by itself
        name = f"{who[0][0]}@{who[0][1]}" if who else "?"
        ended.append(f"{number} ({name}; {'held' if holds else 'waited for'} it)")
    return ended


def _question(session: Session, schema: str, table: str) -> str:
    with suppress(RefusedError):  # its tables may not be ours to read
        is_on = session.run(
            "SELECT 1 FROM performance_schema.setup_instruments WHERE name = %s AND enabled = 'YES' AND "
            "@@performance_schema = 1",
            (_INSTRUMENT,),
        )
        if is_on:
            return _BY_SCHEMA
    plugin = "SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'METADATA_LOCK_INFO' AND plugin_status = %s"
    if session.run(plugin, ("ACTIVE",)):
        return _BY_PLUGIN
    raise LockUnavailableError(
        f"force-cutover: the server does not report which session holds {schema}.{table}, and no other "
        "session is ended. Turn on "
        f"performance_schema with its instrument {_INSTRUMENT}, or INSTALL SONAME 'metadata_lock_info'"
    )
