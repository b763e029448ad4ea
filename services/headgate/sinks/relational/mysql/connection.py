"""Sessions at a MySQL or MariaDB sink.

This protocol has no application name. A session proves that it is alive by holding a user-level lock of a name of its
own, its *token*; a client that finds the token in a row (see progress) asks the server which session holds that lock.
"""

import uuid
from typing import Final

from headgate.databases.address import Address
from headgate.databases.mysql import session as database
from headgate.databases.mysql.address import address_of, parse_address
from headgate.sinks.contract import Claim, SinkUnavailableError
from headgate.sinks.relational.session import RelationalSettings, as_sink_errors

__all__ = ["MysqlSinkSession", "connect", "sink_address"]

WRITER_LOCK_SECONDS: Final = 30
"""When another session (an ALTER TABLE, for example) holds a lock longer, the batch fails and the lane tries again."""


SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"

_SETTINGS: Final = (
    f"SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {WRITER_LOCK_SECONDS}, "
    f"lock_wait_timeout = {WRITER_LOCK_SECONDS}, unique_checks = 1, sql_safe_updates = 0, sql_auto_is_null = 0, "
    "sql_notes = 0"
)
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
# READ COMMITTED: the fence is a condition re-read after a lock wait, and gaps between rows need no lock. sql_notes: a
# rounded decimal does not warn, so that every warning is a value that was not taken as it is.


class MysqlSinkSession(database.MysqlSession):
    """A session of a sink: the database's, with a token that shows others that it is alive."""

    token: str | None = None
    loads = True
    """Whether rows are staged by LOAD DATA LOCAL, or by INSERT."""

    def prove_life(self) -> str:
        """Hold the session's token from now on, and return it. Raises SinkUnavailableError."""
        if self.token is None:
            token = f"headgate {uuid.uuid4().hex}"
            ((held,),) = self.execute("SELECT GET_LOCK(%s, 0)", (token,))
            if held != 1:
                raise SinkUnavailableError("the sink gave no user-level lock (GET_LOCK) to a new session")
            self.token = token
        return self.token

    def mark(self, claim: Claim | None) -> None:
        """See Session. Does nothing: the rows that it locks name it (see progress)."""


def sink_address(dsn: str) -> Address:
    """See SinkPlug.address."""
    with as_sink_errors():
        return address_of(dsn)


def connect(settings: RelationalSettings) -> MysqlSinkSession:
    """A new session, set up as everything here expects it. Raises SinkError."""
    # No session can leave out triggers. They recognise ours by @headgate (docs/target-tables.md).
    ours = f"SET SESSION foreign_key_checks = {int(settings.foreign_keys)}, @headgate = 1"
    with as_sink_errors():
        target = settings.target
        session = database.open_session(
            target, MysqlSinkSession, settings=(_SETTINGS, _ISOLATION, ours), counts_found=True
        )
    session.loads = parse_address(target.dsn).bulk == "load"
    return session
