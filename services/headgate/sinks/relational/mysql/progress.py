"""How the fence's rows name a table, and who locks them, at MySQL and MariaDB."""

from typing import Final

from headgate.databases.mysql.progress import Holder, MysqlProgressTables
from headgate.databases.progress import FeedKey
from headgate.records.control import Epoch
from headgate.records.identifiers import split_table, table_spelling
from headgate.records.slices import with_slice
from headgate.sinks.contract import Claim, FeedIdentity, SinkRefusedError
from headgate.sinks.relational.mysql.connection import MysqlSinkSession
from headgate.sinks.relational.progress import Progress, claimed_rows

__all__ = ["MysqlProgress"]

_FOUND: Final = (
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
)


class MysqlProgress(Progress[MysqlSinkSession]):
    """Who locks a row is written in it: the session proves that it lives (see contention)."""

    def __init__(self, session: MysqlSinkSession) -> None:
        super().__init__(session, tables := MysqlProgressTables(session))
        self._tables = tables

    def name_to_claim(self, claim: Claim) -> str:
        """See Progress. Letters are as the server has them.

        If the table does not exist any more, or we may not see it, it is the one that the feed has claimed before; if
        it never has, the name as given.
        """
        database, relation = split_table(claim.table)
        if database is None:
            ((database,),) = self.session.execute("SELECT DATABASE()")
            if database is None:
                raise SinkRefusedError(f"table {claim.table} has no database. Name one in sink.table or in sink.dsn")
        full = with_slice(table_spelling(str(database), relation), claim.table)
        for schema, table in self.session.execute(_FOUND, (database, relation)):
            return with_slice(table_spelling(str(schema), str(table)), claim.table)
        return self._tables.claimed(self.feed(claim.identity), claim.topic, full) or full

    def holders(self, claim: Claim, table: str) -> list[tuple[Holder, bool]]:
        """See MysqlProgressTables."""
        return self._tables.holders(claimed_rows(claim, table, super().feed(claim.identity)))

    def feed(self, identity: FeedIdentity, epoch: Epoch | None = None) -> FeedKey:
        """See Progress."""
        holder = Holder(self.session.prove_life(), identity.feed_id, epoch or Epoch(0, 0))
        return FeedKey(identity.cluster_id, identity.feed_id, identity.feed, str(holder))
