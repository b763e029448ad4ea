"""Settings and rights of a MySQL or MariaDB that matter for a source of changes."""

from collections.abc import Mapping

import msgspec

from headgate.capture.tables import SourceTable


class MysqlTable(SourceTable, frozen=True, kw_only=True):
    """A table, or a view."""

    engine: str | None = None
    """None for a view."""

    @property
    def is_view(self) -> bool:
        """See SourceTable."""
        return self.engine is None


class MysqlFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the rules ask for, read in one session."""

    account: str
    """The account that the session has, as ``'user'@'host'``."""
    version: str
    is_mariadb: bool
    database: str | None
    variables: Mapping[str, str]
    """Global variables by their names, as the server shows them."""
    rights: frozenset[str]
    """Privileges on ``*.*``, in capitals."""
    lockable: frozenset[str] = frozenset()
    """Databases (or patterns of them) on which the user has LOCK TABLES."""
    logged_only: tuple[str, ...] = ()
    not_logged: tuple[str, ...] = ()
    """Databases that binlog_do_db and binlog_ignore_db name."""
    tables: tuple[MysqlTable, ...] = ()
    own_id: str | None = None
    """The server's, the same however its address is spelled. None if it has none (MariaDB before 10.11.9)."""
