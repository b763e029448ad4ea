"""One range of a table, read and written in PostgreSQL's own text form: what Spark's tasks do at the database.

A row is one line of COPY, so a value arrives as the server has said it, whatever its type. Casts to the new types are
the reading server's. A range is written in one transaction, which first looks, under the rows' locks, whether the copy
is still this one's to fill (``core/copy_steps.py``).
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import msgspec
from psycopg import sql

from headgate.migration.core.copy_steps import Position, may_write
from headgate.migration.strategies.contract import Chunk, Plan, RefusedError, SupersededError
from headgate.migration.strategies.postgresql_copy import casted, listed, table_of, within
from headgate.migration.strategies.postgresql_sessions import PostgresSessions, named, translating

__all__ = ["RangeWork", "read_range", "write_range"]

WRITE_LOCK_SECONDS: Final = 10
"""For the two rows that are asked whether the range may be written; nobody holds them for longer than a request."""

_STAGED: Final = sql.Identifier("headgate_rows")


class RangeWork(msgspec.Struct, frozen=True):
    """Which copy is filled, and what must still hold when a range of it is written."""

    migration: str
    database: str
    password_file: str | None
    plan: Plan
    owner_rev: int
    attempt: int
    held: Position


def _opened(work: RangeWork) -> Any:
    return PostgresSessions(work.migration, work.database, work.password_file).open()


def read_range(work: RangeWork, chunk: Chunk) -> Iterator[bytes]:
    """The range's rows, a line each. Raises DatabaseUnavailableError, RefusedError, LockUnavailableError."""
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
    """Write the rows, all or none; how many there were. Raises what ``read_range`` does, and SupersededError."""
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
    mine = session.execute(
        "SELECT owner_rev, attempt, stage FROM headgate.migration WHERE id = %s FOR SHARE", (work.migration,)
    ).fetchone()
    if mine != (work.owner_rev, work.attempt, "paused"):
        raise SupersededError(f"the copy is not this owner's to fill any more: {mine}")
    found = session.execute(
        "SELECT feed_id, next_offset, closed FROM headgate.progress WHERE feed_id = %s AND table_name = %s FOR SHARE",
        (work.held.feed_id, f"{work.plan.before.schema}.{work.plan.shadow}"),
    ).fetchone()
    seen = None if found is None else Position(*found)
    if not may_write(work.held, seen):
        raise RefusedError(
            f"the feed into the copy was to stand still at offset {work.held.next_offset} and does not ({seen}): "
            "somebody has resumed it, and what it has deleted might come back; submit the change again"
        )
