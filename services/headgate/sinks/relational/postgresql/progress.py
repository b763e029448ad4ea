"""How the fence's rows name a table, where PostgreSQL's search path may find another one."""

from headgate.databases.postgresql.progress import PostgresProgressTables
from headgate.records.identifiers import split_table, table_spelling
from headgate.records.slices import slice_of, with_slice
from headgate.sinks.contract import Claim
from headgate.sinks.relational.postgresql.catalog import found_name
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.progress import Progress

__all__ = ["PostgresProgress"]


class PostgresProgress(Progress[PostgresSinkSession]):
    """Who holds a lock is asked of the server (see contention)."""

    def __init__(self, session: PostgresSinkSession) -> None:
        super().__init__(session, tables := PostgresProgressTables(session))
        self._tables = tables

    def name_to_claim(self, claim: Claim) -> str:
        """See Progress. A bare name keeps the table that its feed has claimed before, as long as that exists.

        So no user can put a table of the same name before it on the search path, and have it written. Otherwise it is
        the first on the path; if there is none, the one claimed before; if it never was, the one that would be made.
        """
        space, relation = split_table(claim.table)
        if space is not None:
            return with_slice(table_spelling(space, relation), claim.table)
        before = [name for name, _ in self._claimed(claim, relation)][:1]
        if before and found_name(self.session, before[0]) is not None:
            return before[0]
        found = found_name(self.session, claim.table)
        if found is None and before:
            return before[0]
        return with_slice(found or table_spelling(next(iter(self.session.path), "public"), relation), claim.table)

    def name_claimed(self, claim: Claim) -> str:
        """See Progress."""
        space, relation = split_table(claim.table)
        mine = {name for name, is_mine in self._claimed(claim, relation) if is_mine} if space is None else set()
        return mine.pop() if len(mine) == 1 else self.name_to_claim(claim)

    def _claimed(self, claim: Claim, relation: str) -> list[tuple[str, bool]]:
        """Tables of that bare name which the feed has claimed for the topic, last first, and whether by this epoch.

        With the claim's slice: a topic of several tables may go to several slices of one.
        """
        rows = self._tables.claimed(self.rows(claim, ""))
        part = _part(claim.table)
        claimed = [(split_table(name), name, is_mine) for name, is_mine in rows if _part(name) == part]
        # Without a schema it is an older version's, which _rename_rows moves.
        return [(name, mine) for (space, table), name, mine in claimed if space is not None and table == relation]


def _part(name: str) -> tuple[str, str] | None:
    found = slice_of(name)
    return None if found is None else (found.column, found.value)
