"""The fence: one row per (cluster, feed, table, topic, partition) in ``headgate.progress``.

A row holds the epoch of the last claim, whether it is closed, and the next offset to apply. Every statement that
counts is conditional on what the row says now, under the row's lock; what it says is the truth, whatever log or lane
believe.
"""

from collections.abc import Mapping
from typing import Final

from psycopg import sql

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, FeedIdentity, OffsetRange
from headgate.sinks.postgresql.catalog import Connection
from headgate.sinks.postgresql.source_tables import CREATE as CREATE_SOURCE_TABLES
from headgate.sinks.postgresql.source_tables import forget_source_tables
from headgate.sinks.relational.fence import (
    FenceRow,
    check_advance,
    check_claim,
    check_seal,
    is_same_claim,
    positions_of,
    removed,
    start_or_rows,
    still_open,
    stranger,
)

__all__ = [
    "advance",
    "claim_rows",
    "ensure_progress",
    "forget_rows",
    "progress_exists",
    "read_positions",
    "refuse_strangers",
    "seal_rows",
]

_CREATE: Final = """
CREATE SCHEMA IF NOT EXISTS headgate;
CREATE TABLE IF NOT EXISTS headgate.progress (
    cluster_id  text    NOT NULL,
    feed_id     text    NOT NULL,
    table_name  text    NOT NULL,
    topic       text    NOT NULL,
    partition   integer NOT NULL,
    feed        text    NOT NULL,
    owner_rev   bigint  NOT NULL,
    n           bigint  NOT NULL,
    incarnation bigint  NOT NULL,
    next_offset bigint  NOT NULL CHECK (next_offset >= 0),
    closed      boolean NOT NULL DEFAULT false,
    topic_id    text,
    claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (cluster_id, feed_id, table_name, topic, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE IF NOT EXISTS headgate.removed (
    cluster_id  text NOT NULL,
    feed_id     text NOT NULL,
    feed        text NOT NULL,
    removed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (cluster_id, feed_id)
);
COMMENT ON SCHEMA headgate IS 'Headgate: how far each table is, and who may write it. Remove with its last feed.'
"""
# fillfactor: rows are updated with every batch and stay on their page.

_MINE: Final = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND table_name = %(table)s AND topic = %(topic)s"

_READ: Final = f"""
SELECT partition, owner_rev, n, incarnation, next_offset, closed, topic_id FROM headgate.progress
WHERE {_MINE} AND partition = ANY (%(partitions)s) ORDER BY partition
"""  # noqa: S608 - parts of our own

_REMOVED: Final = "SELECT removed_at FROM headgate.removed WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s"

_STRANGERS: Final = """
SELECT DISTINCT cluster_id, feed_id, feed FROM headgate.progress
WHERE table_name = %(table)s AND NOT closed AND (cluster_id, feed_id) <> (%(cluster)s, %(feed_id)s)
ORDER BY cluster_id, feed_id
"""

_RAISE: Final = """
INSERT INTO headgate.progress (cluster_id, feed_id, table_name, topic, partition, feed, owner_rev, n, incarnation,
                               next_offset, topic_id)
SELECT %(cluster)s, %(feed_id)s, %(table)s, %(topic)s, p, %(feed)s, %(owner_rev)s, %(n)s, %(incarnation)s,
       o, %(topic_id)s
FROM unnest(%(partitions)s::int[], %(starts)s::bigint[]) AS s (p, o) ORDER BY p
ON CONFLICT (cluster_id, feed_id, table_name, topic, partition) DO UPDATE SET
    owner_rev = EXCLUDED.owner_rev, n = EXCLUDED.n, closed = false, feed = EXCLUDED.feed,
    next_offset = CASE WHEN progress.incarnation < EXCLUDED.incarnation THEN EXCLUDED.next_offset
                       ELSE progress.next_offset END,
    topic_id = CASE WHEN progress.incarnation < EXCLUDED.incarnation THEN EXCLUDED.topic_id
                    ELSE coalesce(EXCLUDED.topic_id, progress.topic_id) END,
    incarnation = EXCLUDED.incarnation,
    claimed_at = clock_timestamp(), updated_at = clock_timestamp()
"""

_SEAL: Final = f"""
UPDATE headgate.progress SET closed = true, updated_at = clock_timestamp()
WHERE {_MINE} AND partition = ANY (%(partitions)s) AND (owner_rev, n) = (%(owner_rev)s, %(n)s) AND NOT closed
"""  # noqa: S608 - parts of our own

_HOLD: Final = f"""
SELECT partition FROM headgate.progress
WHERE {_MINE} AND partition = ANY (%(partitions)s) ORDER BY partition FOR UPDATE
"""  # noqa: S608 - parts of our own

_ADVANCE: Final = f"""
UPDATE headgate.progress p SET next_offset = s.next, updated_at = clock_timestamp()
FROM unnest(%(partitions)s::int[], %(expected)s::bigint[], %(next)s::bigint[]) AS s (number, expected, next)
WHERE {_MINE} AND p.partition = s.number
  AND (owner_rev, n) = (%(owner_rev)s, %(n)s) AND NOT closed AND p.next_offset = s.expected
"""  # noqa: S608 - parts of our own


def _parameters(claim: Claim, table: str) -> dict[str, object]:
    partitions = sorted(claim.start)
    return {
        "cluster": claim.identity.cluster_id,
        "feed_id": claim.identity.feed_id,
        "feed": claim.identity.feed,
        "table": table,
        "topic": claim.topic,
        "topic_id": claim.topic_id,
        "owner_rev": claim.epoch.owner_rev,
        "n": claim.epoch.n,
        "incarnation": claim.incarnation,
        "partitions": partitions,
        "starts": [claim.start[partition] for partition in partitions],
    }


def _read(connection: Connection, parameters: dict[str, object], *, lock: bool = False) -> dict[int, FenceRow]:
    rows = connection.execute(_READ + ("FOR UPDATE" if lock else ""), parameters)
    return {
        int(partition): FenceRow(Epoch(owner_rev, n), incarnation, next_offset, closed, topic_id)
        for partition, owner_rev, n, incarnation, next_offset, closed, topic_id in rows
    }


def progress_exists(connection: Connection) -> bool:
    """Whether Headgate has ever claimed anything in this database."""
    row = connection.execute("SELECT to_regclass('headgate.removed') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def ensure_progress(connection: Connection) -> None:
    """Create schema and table on first use; two sessions may do so at once."""
    row = connection.execute("SELECT to_regclass('headgate.source_tables') IS NOT NULL").fetchone()
    if row is not None and row[0]:  # the newest of them
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate', 0))")
        connection.execute(_CREATE)
        connection.execute(CREATE_SOURCE_TABLES)


def refuse_strangers(connection: Connection, identity: FeedIdentity, table: str) -> None:
    """SinkConflictError if another feed, or a feed of another cluster, holds the table open."""
    parameters = {"table": table, "cluster": identity.cluster_id, "feed_id": identity.feed_id}
    for cluster_id, feed_id, feed in connection.execute(_STRANGERS, parameters):
        raise stranger(identity, table, FeedIdentity(cluster_id, feed_id, feed))


def claim_rows(connection: Connection, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
    """Raise the epoch of the claim's rows to the claim's, in one transaction; the positions to go on from."""
    parameters = _parameters(claim, table)
    with connection.transaction():
        _limit_wait(connection, lock_wait_seconds)
        # One claim per table at a time: two feeds must not both find it free.
        _hold_table(connection, table)
        _refuse_removed(connection, claim.identity, table)
        refuse_strangers(connection, claim.identity, table)
        rows = _read(connection, parameters)
        if is_same_claim(claim, rows):  # answered without a lock: a late attempt of this epoch may hold it
            return positions_of(rows)
        rows = _read(connection, parameters, lock=True)
        check_claim(claim, table, rows)
        connection.execute(_RAISE, parameters)
        rows = _read(connection, parameters)
    return positions_of(rows)


def _hold_table(connection: Connection, table: str) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || %s, 0))", (table,))


def _refuse_removed(connection: Connection, identity: FeedIdentity, table: str) -> None:
    mine = {"cluster": identity.cluster_id, "feed_id": identity.feed_id}
    row = connection.execute(_REMOVED, mine).fetchone()
    if row is not None:
        raise removed(identity, table, row[0])


def _limit_wait(connection: Connection, seconds: float) -> None:
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{int(seconds * 1000)}ms")))


def seal_rows(connection: Connection, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
    """Close the claim's epoch for good; the final positions. Sealing twice gives the same answer."""
    parameters = _parameters(claim, table)
    with connection.transaction():
        _limit_wait(connection, lock_wait_seconds)
        rows = _read(connection, parameters, lock=True)
        check_seal(claim, table, rows)
        connection.execute(_SEAL, parameters)
    return positions_of(rows)


def read_positions(connection: Connection, claim: Claim, table: str) -> Positions:
    """The positions a claim would go on from: the sink's, or ``start`` where it has none of this incarnation."""
    return start_or_rows(claim, table, _read(connection, _parameters(claim, table)))


def forget_rows(connection: Connection, identity: FeedIdentity) -> None:
    """Delete a feed's rows, if none is open, and remember that it was removed: one small row for ever."""
    if not progress_exists(connection):
        return
    ensure_progress(connection)
    mine = {"cluster": identity.cluster_id, "feed_id": identity.feed_id, "feed": identity.feed}
    with connection.transaction():
        tables = connection.execute(
            "SELECT DISTINCT table_name FROM headgate.progress WHERE cluster_id = %(cluster)s AND "
            "feed_id = %(feed_id)s ORDER BY table_name",
            mine,
        ).fetchall()
        for (table,) in tables:
            # Before the rows' own locks, as claims do: a claim either comes first, or finds the feed removed.
            _hold_table(connection, str(table))
        rows = connection.execute(
            "SELECT table_name, closed FROM headgate.progress WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s "
            "ORDER BY table_name, topic, partition FOR UPDATE",
            mine,
        ).fetchall()
        unsealed = {str(table) for table, closed in rows if not closed}
        if unsealed:
            raise still_open(identity, unsealed)
        connection.execute(
            "DELETE FROM headgate.progress WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s", mine
        )
        forget_source_tables(connection, identity)
        if rows:
            connection.execute(
                "INSERT INTO headgate.removed (cluster_id, feed_id, feed) VALUES (%(cluster)s, %(feed_id)s, %(feed)s) "
                "ON CONFLICT DO NOTHING",
                mine,
            )


def advance(connection: Connection, claim: Claim, table: str, ranges: Mapping[int, OffsetRange]) -> None:
    """Move every partition from exactly ``expected`` to ``next`` under the claim's open epoch, or raise.

    Within the caller's transaction, which must roll back on an error. Rows are locked in partition order.
    """
    partitions = sorted(ranges)
    parameters = _parameters(claim, table) | {
        "partitions": partitions,
        "expected": [ranges[partition].expected for partition in partitions],
        "next": [ranges[partition].next for partition in partitions],
    }
    if len(partitions) > 1:
        connection.execute(_HOLD, parameters)
    if connection.execute(_ADVANCE, parameters).rowcount != len(partitions):
        check_advance(claim, table, ranges, _read(connection, parameters))
