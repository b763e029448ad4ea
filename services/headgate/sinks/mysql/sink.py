"""The MySQL and MariaDB sink as coordinator and agent see it: check, claim, seal, positions, forget, writers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil

import pymysql

from headgate.formats.tables import SourceTable
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, FeedIdentity, TableShape
from headgate.sinks.mysql.catalog import check_database, load_table
from headgate.sinks.mysql.connection import MysqlSettings, Session, connect, sink_error
from headgate.sinks.mysql.contention import run_past_blockers
from headgate.sinks.mysql.naming import name_to_claim
from headgate.sinks.mysql.origin import read_own_id, read_published
from headgate.sinks.mysql.progress import (
    claim_rows,
    ensure_progress,
    forget_rows,
    progress_exists,
    read_positions,
    refuse_strangers,
    seal_rows,
)
from headgate.sinks.mysql.source_tables import read_source_table
from headgate.sinks.mysql.writer import MysqlWriter

__all__ = ["MysqlSettings", "MysqlSink"]


class MysqlSink:
    """A MySQL or MariaDB server as a sink. Every call has a session of its own; holds nothing, so it can be pickled."""

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See the contract. Makes the (empty) database ``headgate``, to see whether it may."""
        with self._session("checking the sink") as session:
            check_database(session)
            shapes = {}
            for name in tables:
                table = load_table(session, name, keyless=self._settings.keyless)
                shapes[name] = table.shape(name)
                if identity is not None and progress_exists(session):
                    refuse_strangers(session, identity, table.name)
        return shapes

    def claim(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions of lower epochs that block it; others are waited for, then named."""
        with self._session(f"claiming {claim.table} under epoch {claim.epoch}") as session:
            ensure_progress(session)
            return self._past_blockers(session, claim, claim_rows, lambda epoch: epoch < claim.epoch)

    def seal(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions that still write under this epoch or a lower one, if they block it."""
        with self._session(f"sealing {claim.table} under epoch {claim.epoch}") as session:
            ensure_progress(session)
            return self._past_blockers(session, claim, seal_rows, lambda epoch: epoch <= claim.epoch)

    def own_id(self) -> str | None:
        """See SelfAware."""
        with self._session("asking the sink who it is") as session:
            return read_own_id(session)

    def published(self, database: str, tables: Sequence[str]) -> list[str]:
        """See SelfAware."""
        with self._session("asking the sink what it publishes") as session:
            return read_published(session, database, tables)

    def positions(self, claim: Claim) -> Positions:
        """See the contract."""
        with self._session(f"reading positions of {claim.table}") as session:
            if not progress_exists(session):
                return dict(claim.start)
            return read_positions(session, claim, name_to_claim(session, claim))

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See the contract."""
        with self._session(f"reading the source table of {claim.table}") as session:
            return read_source_table(session, claim, name_to_claim(session, claim))

    def forget(self, identity: FeedIdentity) -> None:
        """See the contract."""
        with self._session(f"forgetting feed {identity.feed}") as session:
            forget_rows(session, identity)

    def writer(self) -> MysqlWriter:
        """A writer with a session of its own, opened at its first batch."""
        return MysqlWriter(self._settings)

    def close(self) -> None:
        """Nothing is kept between calls."""

    @contextmanager
    def _session(self, doing: str) -> Iterator[Session]:
        session = connect(self._settings)
        try:
            yield session
        except pymysql.Error as error:
            raise sink_error(error, doing) from error
        finally:
            session.close()

    def _past_blockers(
        self,
        session: Session,
        claim: Claim,
        work: Callable[[Session, Claim, str], Positions],
        over_at: Callable[[Epoch], bool],
    ) -> Positions:
        table = name_to_claim(session, claim)
        session.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, ceil(self._settings.lock_wait_seconds))}")
        return run_past_blockers(
            partial(work, session, claim, table),
            blocked=session,
            watcher=partial(connect, self._settings),
            claim=claim,
            table=table,
            over_at=over_at,
        )
