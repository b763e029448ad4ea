"""One range of a table, read and written in PostgreSQL's own text form: what Spark's tasks do at the database.

A row is one line of COPY, so a value arrives as the server has said it, whatever its type. Casts to the new types are
the reading server's.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

from psycopg import sql

from headgate.migration.strategies.contract import Chunk
from headgate.migration.strategies.online.range_work import WRITE_LOCK_SECONDS, RangeWork, check_may_write
from headgate.migration.strategies.postgresql.copy import casted, listed, table_of, within
from headgate.migration.strategies.postgresql.sessions import PostgresSessions, named, translating

__all__ = ["read_range", "write_range"]

_STAGED: Final = sql.Identifier("headgate_rows")


def _opened(work: RangeWork) -> Any:
    return PostgresSessions(work.migration, work.database, work.password_file).open()


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
        session.cursor() as cursor,
        cursor.copy(statement) as rows,
    ):
        for row in rows:
            yield bytes(row)


def write_range(work: RangeWork, lines: Iterable[bytes]) -> int:
    """See ranges."""
    plan = work.plan
    shadow = named(plan.before.schema, plan.shadow)
    columns = [new for _, new in plan.pairs]
    keys = [new for _, new in plan.key]
    others = [column for column in columns if column not in keys]
    update = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in others)
    count = 0
    with closing(_opened(work)) as session, translating("writing a range"), session.transaction():
        session.execute(f"SET LOCAL lock_timeout = '{WRITE_LOCK_SECONDS}s'")
        _check(session, work)
        session.execute(
            sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false").format(
                _STAGED, listed(columns), shadow
            )
        )
        with session.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(_STAGED)) as copy:
            for line in lines:
                copy.write(line)
                count += 1
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


def _check(session: Any, work: RangeWork) -> None:
    memory = session.execute(
        "SELECT owner_rev, attempt, stage FROM headgate.migration WHERE id = %s FOR SHARE", (work.migration,)
    ).fetchone()
    progress = session.execute(
        "SELECT feed_id, partition, next_offset, closed FROM headgate.progress WHERE feed_id = %s AND table_name = %s "
        "FOR SHARE",
        (work.held.feed_id, work.table_name),
    ).fetchall()
    check_may_write(work, memory, progress)
