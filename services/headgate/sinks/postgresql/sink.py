"""The PostgreSQL sink as coordinator and agent see it: check, claim, seal, positions, forget, writers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import psycopg

from headgate.formats.tables import SourceTable
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, FeedIdentity, TableShape
from headgate.sinks.postgresql.catalog import Connection, check_database, load_table
from headgate.sinks.postgresql.connection import Label, PostgresSettings, connect, sink_error
from headgate.sinks.postgresql.contention import run_past_blockers
from headgate.sinks.postgresql.naming import name_to_claim, name_to_seal
from headgate.sinks.postgresql.origin import read_own_id, read_published
from headgate.sinks.postgresql.progress import (
    claim_rows,
    ensure_progress,
    forget_rows,
    progress_exists,
    read_positions,
    refuse_strangers,
    seal_rows,
)
from headgate.sinks.postgresql.source_tables import read_source_table
from headgate.sinks.postgresql.writer import PostgresWriter

__all__ = ["PostgresSettings", "PostgresSink"]


class PostgresSink:
    """A PostgreSQL database as a sink. Every call has a session of its own, or all have one, until ``close``.

    To open a session costs the server ten times what a claim does, and an agent may claim a thousand tables at once.
    With ``keeps_session`` a sink is for one thread at a time.
    """

    def __init__(self, settings: PostgresSettings, *, keeps_session: bool = False) -> None:
        self._settings = settings
        self._keeps_session = keeps_session
        self._kept: Connection | None = None

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See the contract."""
        with self._session("checking the sink") as connection:
            check_database(connection)
            shapes = {}
            for name in tables:
                table = load_table(connection, name, keyless=self._settings.keyless)
                shapes[name] = table.shape(name)
                if identity is not None and progress_exists(connection):
                    refuse_strangers(connection, identity, table.name)
        return shapes

    def own_id(self) -> str | None:
        """See SelfAware: cluster identifier and timeline, the database's oid. A copy that was promoted differs."""
        with self._session("asking the sink who it is") as connection:
            return read_own_id(connection)

    def published(self, database: str, tables: Sequence[str]) -> list[str]:
        """See SelfAware: in a publication, while a logical replication slot reads this database."""
        with self._session("asking the sink what it publishes") as connection:
            # What is published has nothing to do with keys: whoever may do without one has said so elsewhere.
            found = [load_table(connection, table, keyless=True).name for table in tables]
            return read_published(connection, database, found)

    def claim(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions of lower epochs that block it; others are waited for, then named."""
        with self._session(f"claiming {claim.table} under epoch {claim.epoch}") as connection:
            ensure_progress(connection)
            table = name_to_claim(connection, claim)
            return self._past_blockers(connection, claim, table, claim_rows, lambda epoch: epoch < claim.epoch)

    def seal(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions that still write under this epoch or a lower one, if they block it."""
        with self._session(f"sealing {claim.table} under epoch {claim.epoch}") as connection:
            ensure_progress(connection)
            table = name_to_seal(connection, claim)
            return self._past_blockers(connection, claim, table, seal_rows, lambda epoch: epoch <= claim.epoch)

    def positions(self, claim: Claim) -> Positions:
        """See the contract."""
        with self._session(f"reading positions of {claim.table}") as connection:
            if not progress_exists(connection):
                return dict(claim.start)
            return read_positions(connection, claim, name_to_claim(connection, claim))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See the contract."""
        with self._session(f"reading the source table of {claim.table}") as connection:
            return read_source_table(connection, claim, name_to_claim(connection, claim))

    def forget(self, identity: FeedIdentity) -> None:
        """See the contract."""
        with self._session(f"forgetting feed {identity.feed}") as connection:
            forget_rows(connection, identity)

    def writer(self) -> PostgresWriter:
        """A writer with a session of its own, opened at its first batch."""
        return PostgresWriter(self._settings)

    def close(self) -> None:
        """Let go of the session. Idempotent."""
        if self._kept is not None:
            with suppress(psycopg.Error):
                self._kept.close()
            self._kept = None

    @contextmanager
    def _session(self, doing: str) -> Iterator[Connection]:
        connection, self._kept = self._kept, None
        if connection is not None and not _is_usable(connection):
            connection.close()
            connection = None
        if connection is None:
            connection = connect(self._settings)
        is_good = False
        try:
            yield connection
            is_good = True
        except psycopg.Error as error:
            raise sink_error(error, doing) from error
        finally:
            if is_good and self._keeps_session:
                self._kept = connection
            else:
                connection.close()

    def _past_blockers(
        self,
        connection: Connection,
        claim: Claim,
        table: str,
        work: Callable[[Connection, Claim, str, float], Positions],
        over_at: Callable[[Epoch], bool],
    ) -> Positions:
        label = Label.of(claim)
        connection.execute("SELECT set_config('application_name', %s, false)", (str(label),))
        positions = run_past_blockers(
            partial(work, connection, claim, table, self._settings.lock_wait_seconds),
            blocked=connection,
            watcher=partial(connect, self._settings),
            mine=label,
            over_at=over_at,
        )
        if self._keeps_session:
            connection.execute("RESET application_name")  # what the session does next is not of this claim
        return positions


def _is_usable(connection: Connection) -> bool:
    """Whether a session that was kept is still there: the server may have been restarted since."""
    try:
        connection.execute("")
    except psycopg.Error:
        return False
    return True
