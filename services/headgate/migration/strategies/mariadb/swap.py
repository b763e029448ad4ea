"""How two tables of MariaDB change places while clients wait: a lock, a *sentry* table, and a rename that waits.

As gh-ost does it. One session locks the table and the sentry; a second one waits with a RENAME that needs the sentry's
name. Only when it is seen waiting does the first drop the sentry and unlock. If either session is lost before that,
the sentry is in the way of the rename, which therefore fails: no moment exists at which clients find no table.

Clients that wait for the table must come after the rename, or they write to the table that goes. The server lets a
rename pass before them if it already waits *for that table*; but it takes a rename's locks one by one, in the order of
the names, and may wait for another one first, with nothing held that keeps clients out. (Rows were lost by that: see
github/gh-ost#887.) So the sentry and the copy have names that begin with the table's: the table comes first in that
order, and a rename that is seen waiting for a table waits for this one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import DatabaseUnavailableError, LockUnavailableError, RefusedError
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.online.lane import LOCK_SHARE
from headgate.supervision.threads import BackgroundThread

__all__ = ["TableSwap"]

POLL_SECONDS: Final = 0.01
"""Between two checks whether the rename waits: writers wait in the meantime."""

COMMENT: Final = "headgate: a cut-over is under way"
"""Distinguishes a sentry from a table that is needed."""

ALIASES: Final = ("a", "b")
"""Under LOCK TABLES a table may be read only by names that were locked: those that comparisons give it."""

RENAME_SHARE: Final = 0.25
"""Of the time for which clients may wait: for the rename, which comes last. It needs milliseconds, unless the copy is
read by others."""

WAITING: Final = "Waiting for table metadata lock"


class TableSwap:
    """One try, under the sessions of one migration. Clients may wait for ``seconds`` in all."""

    def __init__(self, sessions: MariadbSessions, schema: str, table: str, sentry: str, seconds: float) -> None:
        self.sentry = quoted(schema, sentry)
        self._sessions = sessions
        self._schema, self._sentry_name = schema, sentry
        self._table = quoted(schema, table)
        self._seconds = seconds
        self._until = 0.0
        self._renamer: Session

    @contextmanager
    def locked(self) -> Iterator[Session]:
        """The session for ``lock`` and ``rename``. At its end all is as it was, but for a rename that came into force.

        Raises LockUnavailableError, DatabaseUnavailableError, SupersededError.
        """
        main = self._sessions.main
        main.wait_at_most(self._seconds)
        self.drop_sentry()
        main.run(f"CREATE TABLE {self.sentry} (id int) COMMENT '{COMMENT}'")
        try:
            with self._sessions.part("lock") as holder, self._sessions.part("rename") as self._renamer:
                holder.wait_at_most(self._seconds)
                self._renamer.wait_at_most(3 * self._seconds)
                yield holder
        finally:
            self.drop_sentry()

    def lock(self, holder: Session) -> float:
        """From here on clients wait, until ``locked`` is left or ``rename`` has come into force.

        Returns until when (monotonic) the caller may work under the lock, before it calls ``rename``. Raises
        LockUnavailableError.
        """
        self._until = time.monotonic() + self._seconds
        # The server counts whole seconds.
        holder.wait_at_most(int(self._seconds * LOCK_SHARE))
        aliases = "".join(f", {self._table} AS {alias} WRITE" for alias in ALIASES)
        holder.run(f"LOCK TABLES {self.sentry} WRITE, {self._table} WRITE{aliases}")
        return self._until - self._seconds * RENAME_SHARE

    def rename(self, holder: Session, names: str) -> None:
        """Let ``names`` ("a TO b, …") come into force in the one moment in which the lock goes.

        Raises LockUnavailableError, DatabaseUnavailableError, RefusedError: the caller checks which names hold.
        """
        rename = _Rename(self._renamer, f"RENAME TABLE {names}")
        rename.start()
        try:
            self._await_waiting(rename)
            holder.run(f"DROP TABLE {self.sentry}")
            holder.run("UNLOCK TABLES")
            rename.finish(max(0.0, self._until - time.monotonic()))
        except BaseException:
            # The sentry goes only when the rename is gone: one that still waits would then come into force.
            self._sessions.end_part(self._sessions.main, "rename")
            raise

    def _await_waiting(self, rename: "_Rename") -> None:
        while time.monotonic() < self._until:
            if rename.error is not None:
                raise rename.error
            rows = self._sessions.main.run(
                "SELECT state FROM information_schema.processlist WHERE id = %s AND info LIKE 'RENAME%%'",
                (rename.number,),
            )
            if rows and rows[0][0] == WAITING:
                return
            time.sleep(POLL_SECONDS)
        raise LockUnavailableError("the rename was not seen waiting for the table")

    def drop_sentry(self) -> None:
        """Drop the table of that name, if it is a sentry: the rename may have given the name to the table before."""
        found = self._sessions.main.run(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s AND table_comment = "
            "%s",
            (self._schema, self._sentry_name, COMMENT),
        )
        if found:
            self._sessions.main.run(f"DROP TABLE IF EXISTS {self.sentry}")


class _Rename:
    """The statement that waits, on a thread of its own."""

    def __init__(self, session: Session, statement: str) -> None:
        self.number = session.number
        self.error: Exception | None = None
        self._session = session
        self._statement = statement
        self._thread = BackgroundThread(self._run, name="rename", on_crash=self._on_crash)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._session.run(self._statement)
        except (DatabaseUnavailableError, LockUnavailableError, RefusedError) as error:
            self.error = error

    def _on_crash(self, error: BaseException) -> None:
        # Whether the rename took place is unknown: the caller must not count it as done.
        self.error = DatabaseUnavailableError(f"internal error in the rename: {type(error).__name__}: {error}")

    def finish(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise DatabaseUnavailableError("the rename does not return")
        if self.error is not None:
            raise self.error
