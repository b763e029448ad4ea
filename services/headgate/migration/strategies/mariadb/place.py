"""Which database a session is at: the same however its address is spelled, so that its migrations form one queue."""

from typing import Final

from headgate.migration.strategies.mariadb.sessions import Session

_VARIABLES: Final = ("server_uid", "server_uuid", "hostname", "port", "datadir")


def server_id(session: Session) -> str:
    """The server's own id; if it has none (MariaDB before 10.11.9), its host, port and folder, as it reports them."""
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    found = dict(session.run(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})"))
    own = found.get("server_uid") or found.get("server_uuid")
    return f"mysql/{own}/" if own else f"mysql/{found['hostname']}:{found['port']}{found['datadir']}/"


def remembers(session: Session, migration: str) -> bool:
    """Whether this server's data has the migration: it is the same, or a replica that has become the primary.

    A server's id changes with its network card, as when a container is re-created.
    """
    schema = session.run(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'headgate' AND table_name = 'migration'"
    )
    return bool(schema and session.run("SELECT 1 FROM headgate.migration WHERE id = %s", (migration,)))
