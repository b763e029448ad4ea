"""Sessions at a MySQL or MariaDB sink.

There is no application name in this protocol. A session proves that it lives by holding a user-level lock of a name of
its own, its *token*; whoever finds the token in a row (see progress) asks the server who holds that lock.
"""

import re
import uuid
from typing import Final

import pymysql

from headgate.databases.address import Address
from headgate.databases.mysql import session as database
from headgate.databases.mysql.address import address_of, parse_address
from headgate.sinks.contract import Claim, SinkUnavailableError
from headgate.sinks.relational.mysql.faults import sink_error
from headgate.sinks.relational.session import RelationalSettings, as_sink_errors

__all__ = ["MysqlSession", "connect", "quoted", "sink_address"]

WRITER_LOCK_SECONDS: Final = 30
"""When another session (an ALTER TABLE, for example) holds a lock longer, the batch fails and the lane tries again."""


class MysqlSession(database.MysqlSession):
    """A session of a sink: the database's, with a token by which others can tell that it lives."""

    token: str | None = None

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
        """See Session. The rows that it locks say it themselves (see progress)."""


def sink_address(dsn: str) -> Address:
    """See SinkPlug.address."""
    with as_sink_errors():
        return address_of(dsn)


def connect(settings: RelationalSettings) -> MysqlSession:
    """A new session, set up as everything here expects it. Raises SinkError."""
    with as_sink_errors():
        wire, number, version = database.open_wire(settings.target, lock_seconds=WRITER_LOCK_SECONDS)
        session = MysqlSession(wire, number=number, version=version, loads=parse_address(settings.dsn).bulk == "load")
        try:
            # No session can leave out triggers. They recognise ours by @headgate (docs/configuration.md).
            session.execute(f"SET SESSION foreign_key_checks = {int(settings.foreign_keys)}, @headgate = 1")
        except pymysql.Error as error:
            session.close()
            raise sink_error(error, "opening a session at the sink") from error
    return session


_TICK: Final = re.compile("`")


def quoted(*names: str) -> str:
    """An identifier, or one within another: `a`.`b`."""
    return ".".join(f"`{_TICK.sub('``', name)}`" for name in names)
