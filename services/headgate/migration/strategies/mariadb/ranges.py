"""One range of a table, read and written as the server's own literals: what Spark's tasks do at MariaDB.

A row is one text, which the reading server makes and the writing one takes as it is, so a value arrives whatever its
type. Conversions to the new types are the writing server's, as in an INSERT … SELECT.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from headgate.databases.mysql.key_ranges import within
from headgate.databases.mysql.progress import feed_rows
from headgate.databases.mysql.sql import quoted
from headgate.migration.strategies.contract import Chunk
from headgate.migration.strategies.mariadb.sessions import MariadbSessions, Session
from headgate.migration.strategies.mariadb.text import inserts, row_text, settings, texts
from headgate.migration.strategies.online.range_work import WRITE_LOCK_SECONDS, RangeWork, check_may_write

__all__ = ["read_range", "write_range"]


def _opened(work: RangeWork) -> Session:
    session = MariadbSessions(work.migration, work.target).task()
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    session.run(settings(strict=not work.plan.loose))
    return session


def read_range(work: RangeWork, chunk: Chunk) -> Iterator[bytes]:
    """See ranges."""
    before = work.plan.before
    table = quoted(before.schema, before.name)
    where, parameters = within([old for old, _ in work.plan.key], chunk)
    text = row_text(before, [old for old, _ in work.plan.pairs])
    with closing(_opened(work)) as session:
        for row in texts(session.stream(f"SELECT {text} FROM {table} WHERE {where}", parameters)):
            yield row.encode()


def write_range(work: RangeWork, chunk: Chunk, lines: Iterable[Sequence[bytes]]) -> int:
    """See ranges. A row that the feed has brought before is written over, wherever it is."""
    del chunk
    plan = work.plan
    columns = [new for _, new in plan.pairs]
    keys = [new for _, new in plan.key]
    # With nothing beside the key, setting a part of the key to what it is does nothing.
    others = [column for column in columns if column not in keys] or keys[:1]
    update = ", ".join(f"{quoted(column)} = VALUES({quoted(column)})" for column in others)
    count = 0
    with closing(_opened(work)) as session:
        session.wait_at_most(WRITE_LOCK_SECONDS)
        session.run("START TRANSACTION")
        _check(session, work)
        rows = (line.decode() for some in lines for line in some)
        for statement, number in inserts(quoted(plan.before.schema, plan.shadow), columns, rows):
            session.run(f"{statement} ON DUPLICATE KEY UPDATE {update}")
            count += number
        session.run("COMMIT")
    return count


def _check(session: Session, work: RangeWork) -> None:
    memory = session.run(
        "SELECT owner_rev, attempt, stage FROM headgate.migration WHERE id = %s LOCK IN SHARE MODE", (work.migration,)
    )
    progress = feed_rows(session.run, work.held.feed_id, work.table_name, locks=True)
    check_may_write(work, memory[0] if memory else None, progress)
