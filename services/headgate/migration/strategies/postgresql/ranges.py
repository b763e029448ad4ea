"""One range of a table, read and written in PostgreSQL's own text form: what Spark's tasks do at the database.

A row is one line of COPY, so a value arrives as the server has written it, whatever its type. Casts to the new types
are the reading server's.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from headgate.databases.postgresql import sql
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.key_ranges import IN_ORDER, listed, planned, within
from headgate.databases.postgresql.progress import feed_rows
from headgate.databases.postgresql.session import PostgresSession
from headgate.migration.strategies.contract import Chunk, CopyPlan
from headgate.migration.strategies.online.range_work import WRITE_LOCK_SECONDS, RangeWork, check_may_write
from headgate.migration.strategies.postgresql.copy import casted, table_of
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, named, translating

__all__ = ["is_ordered_alike", "read_range", "write_range"]

_STAGED: Final = sql.Identifier("headgate_rows")

_INTEGERS: Final = frozenset({"smallint", "integer", "bigint"})
_ORDERED: Final = frozenset({"uuid", "date", "timestamp with time zone", "timestamp without time zone", "bytea"})
"""Types whose order is the same in every table."""


def _opened(work: RangeWork) -> BoundedConnection:
    return PostgresSessions(work.migration, work.target).open()


def read_range(work: RangeWork, chunk: Chunk) -> Iterator[bytes]:
    """See ranges."""
    plan = work.plan
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT").format(
        sql.SQL(", ").join(casted(plan, sql.Identifier(old), new) for old, new in plan.pairs),
        table_of(plan),
        within([old for old, _ in plan.key], chunk),
    )
    with (
        closing(_opened(work)) as session,
        translating("reading a range"),
        session.transaction(),
        planned(session.execute, IN_ORDER),
        session.cursor() as cursor,
        cursor.copy(statement) as rows,
    ):
        for row in rows:
            yield bytes(row)


def write_range(work: RangeWork, chunk: Chunk, lines: Iterable[Sequence[bytes]]) -> int:
    """See ranges. Rows that the feed has brought before give way: the range is read later than all of them.

    Where both tables order keys alike, what the copy has of the range is deleted, and the rows are copied to their
    place at once; else they are staged and merged.
    """
    with closing(_opened(work)) as session, translating("writing a range"), session.transaction():
        session.execute(f"SET LOCAL lock_timeout = '{WRITE_LOCK_SECONDS}s'")
        _check(session, work)
        if is_ordered_alike(work.plan):
            shadow = named(work.plan.before.schema, work.plan.shadow)
            keys = [new for _, new in work.plan.key]
            with planned(session.execute, IN_ORDER):
                session.execute(sql.SQL("DELETE FROM {} WHERE {}").format(shadow, within(keys, chunk)))
            return _copy(session, work.plan, shadow, lines)
        return _merge(session, work.plan, lines)


def is_ordered_alike(plan: CopyPlan) -> bool:
    """Whether a range of the table's key has the same keys in the copy: a text's order is its collation's."""
    for old, new in plan.key:
        before, after = plan.before.column(old), plan.after.column(new)
        if before is None or after is None:
            return False
        kinds = {before.type, after.type}
        if not (kinds <= _INTEGERS or (len(kinds) == 1 and kinds <= _ORDERED)):
            return False
    return True


def _copy(session: BoundedConnection, plan: CopyPlan, table: sql.Composable, lines: Iterable[Sequence[bytes]]) -> int:
    count = 0
    columns = listed([new for _, new in plan.pairs])
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)
    with session.cursor() as cursor, cursor.copy(statement) as copy:
        for some in lines:
            copy.write(b"".join(some))
            count += len(some)
    return count


def _merge(session: BoundedConnection, plan: CopyPlan, lines: Iterable[Sequence[bytes]]) -> int:
    shadow = named(plan.before.schema, plan.shadow)
    columns = [new for _, new in plan.pairs]
    keys = [new for _, new in plan.key]
    others = [column for column in columns if column not in keys]
    update = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in others)
    session.execute(
        sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false").format(
            _STAGED, listed(columns), shadow
        )
    )
    count = _copy(session, plan, _STAGED, lines)
    session.execute(
        sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            shadow,
            listed(columns),
            listed(columns),
            _STAGED,
            listed(keys),
            sql.SQL("UPDATE SET {}").format(update) if others else sql.SQL("NOTHING"),
        )
    )
    return count


def _check(session: BoundedConnection, work: RangeWork) -> None:
    memory = session.execute(
        "SELECT owner_rev, attempt, stage FROM headgate.migration WHERE id = %s FOR SHARE", (work.migration,)
    ).fetchone()
    execute = PostgresSession(session).execute
    progress = feed_rows(execute, work.held.feed_id, work.table_name, locks=True)
    check_may_write(work, memory, progress)
