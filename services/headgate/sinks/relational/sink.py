"""The sink as coordinators and agents use it: check, claim, seal, positions, forget, writers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from headgate.records.control import Epoch, Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import Claim, FeedIdentity, TableShape
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.relational.contention import run_past_blockers
from headgate.sinks.relational.copied import unmoved
from headgate.sinks.relational.dialect import Dialect
from headgate.sinks.relational.rights import RightsMissingError, all_missing
from headgate.sinks.relational.session import RelationalSettings, Session
from headgate.sinks.relational.writer import RelationalWriter
from headgate.sinks.row_copying import CopyMark

__all__ = ["RelationalSink"]

S = TypeVar("S", bound=Session)
C = TypeVar("C")
E = TypeVar("E", bound=Exception)


class RelationalSink(Generic[S, C, E]):
    """A database as a sink. Every call has a session of its own, or all have one, until ``close``.

    To open a session costs a server ten times what a claim does, and an agent may claim a thousand tables at once.
    With ``keeps_session`` (ignored where the dialect must not) a sink is for one thread at a time.
    """

    def __init__(self, dialect: Dialect[S, C, E], settings: RelationalSettings, *, keeps_session: bool = False) -> None:
        self._dialect = dialect
        self._settings = settings
        self._keeps_session = keeps_session and dialect.keeps_session
        self._kept: S | None = None

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """See the contract."""
        missing: list[RightsMissingError] = []
        with self._session("checking the sink") as session:
            try:
                self._dialect.check_database(session)
            except RightsMissingError as error:
                missing.append(error)
            progress, shapes = self._dialect.progress(session), {}
            for name in tables:
                try:
                    table = self._dialect.load_table(session, name, self._settings.keyless)
                except RightsMissingError as error:
                    missing.append(error)
                    continue
                shapes[name] = table.shape(name, self._dialect.firing(session, table))
                if identity is not None and not missing and progress.exists():
                    progress.refuse_strangers(identity, table.name)
        if missing:
            raise all_missing(missing)
        return shapes

    def own_id(self) -> str | None:
        """See SelfAware."""
        with self._session("asking the sink who it is") as session:
            return self._dialect.own_id(session)

    def published(self, database: str, tables: Sequence[str]) -> list[str]:
        """See SelfAware."""
        with self._session("asking the sink what it publishes") as session:
            return self._dialect.published(session, database, tables)

    def is_new(self, claim: Claim) -> bool:
        """See Untouched."""
        with self._session(f"reading positions of {claim.table}") as session:
            return self._dialect.progress(session).is_new(claim)

    def claim(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions of lower epochs that block it; others are waited for, then named."""
        with self._session(f"claiming {claim.table} under epoch {claim.epoch}") as session:
            progress = self._dialect.progress(session)
            progress.ensure()
            table = progress.name_to_claim(claim)
            return self._past_blockers(session, claim, table, progress.claim, lambda epoch: epoch < claim.epoch)

    def seal(self, claim: Claim) -> Positions:
        """See the contract. Ends sessions that still write under this epoch or a lower one, if they block it."""
        with self._session(f"sealing {claim.table} under epoch {claim.epoch}") as session:
            progress = self._dialect.progress(session)
            progress.ensure()
            table = progress.name_claimed(claim)
            return self._past_blockers(session, claim, table, progress.seal, lambda epoch: epoch <= claim.epoch)

    def positions(self, claim: Claim) -> Positions:
        """See the contract."""
        with self._session(f"reading positions of {claim.table}") as session:
            return self._dialect.progress(session).positions(claim)

    def source_table(self, claim: Claim) -> SourceTable | None:
        """See the contract."""
        with self._session(f"reading the source table of {claim.table}") as session:
            return self._dialect.progress(session).source_table(claim)

    def copied(self, claim: Claim, request: str) -> CopyMark:
        """See RowCopyingSink."""
        with self._session(f"reading how far {claim.table} is copied") as session:
            return self._dialect.progress(session).copied(claim, request)

    def known_columns(self, claim: Claim) -> KnownColumns:
        """See ColumnKeepingSink."""
        with self._session(f"reading what is known of the columns of {claim.table}") as session:
            return self._dialect.progress(session).known_columns(claim)

    def change_known_columns(
        self, claim: Claim, positions: Positions, change: Callable[[KnownColumns], KnownColumns]
    ) -> None:
        """See ColumnKeepingSink."""
        with self._session(f"storing what is known of the columns of {claim.table}") as session:
            session.mark(claim)
            progress = self._dialect.progress(session)
            progress.tables.create_known_columns()
            table = progress.name_claimed(claim)
            with session.transaction():
                progress.advance(claim, table, unmoved(positions))
                progress.change_known_columns(claim, table, change)
            if self._keeps_session:
                session.mark(None)  # what the session does next is not of this claim

    def forget(self, identity: FeedIdentity) -> None:
        """See the contract."""
        with self._session(f"forgetting feed {identity.feed}") as session:
            self._dialect.progress(session).forget(identity)

    def writer(self) -> RelationalWriter[S, C, E]:
        """A writer with a session of its own, opened at its first batch."""
        return RelationalWriter(self._dialect, self._settings)

    def close(self) -> None:
        """Let go of the session. Idempotent."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @contextmanager
    def _session(self, doing: str) -> Iterator[S]:
        session, self._kept = self._kept, None
        if session is not None and not self._is_usable(session):
            session.close()
            session = None
        session = session or self._dialect.connect(self._settings)
        is_good = False
        try:
            yield session
            is_good = True
        except self._dialect.error as error:
            raise self._dialect.sink_error(error, doing) from error
        finally:
            if is_good and self._keeps_session:
                self._kept = session
            else:
                session.close()

    def _is_usable(self, session: S) -> bool:
        """Whether a session that was kept is still there: the server may have been restarted since."""
        try:
            session.execute("SELECT 1")
        except self._dialect.error:
            return False
        return True

    def _past_blockers(
        self,
        session: S,
        claim: Claim,
        table: str,
        work: Callable[[Claim, str, float], Positions],
        over_at: Callable[[Epoch], bool],
    ) -> Positions:
        session.mark(claim)
        positions = run_past_blockers(
            partial(work, claim, table, self._settings.lock_wait_seconds),
            dialect=self._dialect,
            settings=self._settings,
            blocked=session,
            claim=claim,
            table=table,
            over_at=over_at,
        )
        if self._keeps_session:
            session.mark(None)  # what the session does next is not of this claim
        return positions
