"""The fence: one row per (cluster, feed, table, topic, partition) in ``headgate.progress``.

A row holds the epoch of the last claim, whether it is closed, and the next offset to apply. Every statement that
counts is conditional on what the row says now, under the row's lock; what it says is the truth, whatever log or lane
believe.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from psycopg import sql

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import (
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkConflictError,
    SinkError,
    SinkFencedError,
    SinkMovedError,
)
from headgate.sinks.postgresql.catalog import Connection

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
    incarnation = EXCLUDED.incarnation, topic_id = coalesce(EXCLUDED.topic_id, progress.topic_id),
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


class _Row(msgspec.Struct, frozen=True):
    epoch: Epoch
    incarnation: int
    next_offset: int
    closed: bool
    topic_id: str | None


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


def _read(connection: Connection, parameters: dict[str, object], *, lock: bool = False) -> dict[int, _Row]:
    rows = connection.execute(_READ + ("FOR UPDATE" if lock else ""), parameters)
    return {
        int(partition): _Row(Epoch(owner_rev, n), incarnation, next_offset, closed, topic_id)
        for partition, owner_rev, n, incarnation, next_offset, closed, topic_id in rows
    }


def progress_exists(connection: Connection) -> bool:
    """Whether Headgate has ever claimed anything in this database."""
    row = connection.execute("SELECT to_regclass('headgate.removed') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def ensure_progress(connection: Connection) -> None:
    """Create schema and table on first use; two sessions may do so at once."""
    if progress_exists(connection):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate', 0))")
        connection.execute(_CREATE)


def refuse_strangers(connection: Connection, identity: FeedIdentity, table: str) -> None:
    """SinkConflictError if another feed, or a feed of another cluster, holds the table open."""
    parameters = {"table": table, "cluster": identity.cluster_id, "feed_id": identity.feed_id}
    for cluster_id, feed_id, feed in connection.execute(_STRANGERS, parameters):
        whose = f"feed {feed} ({feed_id})"
        if cluster_id != identity.cluster_id:
            whose += f" of another cluster ({cluster_id}; this one is {identity.cluster_id})"
        gone = f"cluster_id = '{cluster_id}' AND feed_id = '{feed_id}'"
        raise SinkConflictError(
            f"table {table} is being written by {whose}: two writers would undo each other's rows. Remove that feed, "
            f"or, if it is gone for good, its rows in headgate.progress (WHERE {gone})"
        )


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
        if _is_same_claim(claim, rows):  # answered without a lock: a late attempt of this epoch may hold it
            return {partition: row.next_offset for partition, row in rows.items()}
        rows = _read(connection, parameters, lock=True)
        for partition, row in rows.items():
            _refuse_claim(claim, table, partition, row)
        connection.execute(_RAISE, parameters)
        rows = _read(connection, parameters)
    return {partition: row.next_offset for partition, row in rows.items()}


def _hold_table(connection: Connection, table: str) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || %s, 0))", (table,))


def _refuse_removed(connection: Connection, identity: FeedIdentity, table: str) -> None:
    """A claim that was under way when its feed was removed would else find no row, and begin at ``start`` again."""
    mine = {"cluster": identity.cluster_id, "feed_id": identity.feed_id}
    row = connection.execute(_REMOVED, mine).fetchone()
    if row is not None:
        raise SinkFencedError(f"{table}: feed {identity.feed} ({identity.feed_id}) was removed at {row[0]}")


def _is_same_claim(claim: Claim, rows: Mapping[int, _Row]) -> bool:
    return rows.keys() == claim.start.keys() and all(
        row.epoch == claim.epoch and not row.closed and row.incarnation == claim.incarnation for row in rows.values()
    )


def _refuse_claim(claim: Claim, table: str, partition: int, row: _Row) -> None:
    where = f"{table}, {claim.topic}/{partition}"
    if row.epoch > claim.epoch:
        raise SinkFencedError(f"{where}: claimed under epoch {row.epoch}, which is above {claim.epoch}")
    if row.epoch == claim.epoch and row.closed:
        raise SinkFencedError(f"{where}: epoch {claim.epoch} is sealed; claim under a higher one")
    if row.incarnation > claim.incarnation or (row.epoch == claim.epoch and row.incarnation != claim.incarnation):
        raise SinkConflictError(
            f"{where}: the sink is at incarnation {row.incarnation}, the claim at {claim.incarnation}: "
            "the control topics are older than the sink; were they restored?"
        )
    if (
        claim.topic_id is not None
        and row.topic_id not in (None, claim.topic_id)
        and row.incarnation == claim.incarnation
    ):
        raise SinkConflictError(
            f"{where}: the topic was made anew (id {claim.topic_id}, was {row.topic_id}), its offsets are others: "
            "start the feed again from the beginning"
        )


def _limit_wait(connection: Connection, seconds: float) -> None:
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{int(seconds * 1000)}ms")))


def seal_rows(connection: Connection, claim: Claim, table: str, lock_wait_seconds: float) -> Positions:
    """Close the claim's epoch for good; the final positions. Sealing twice gives the same answer."""
    parameters = _parameters(claim, table)
    with connection.transaction():
        _limit_wait(connection, lock_wait_seconds)
        rows = _read(connection, parameters, lock=True)
        for partition in sorted(claim.start):
            row = rows.get(partition)
            if row is None or row.epoch < claim.epoch:
                raise SinkConflictError(
                    f"{table}, {claim.topic}/{partition}: epoch {claim.epoch} never claimed it "
                    f"({'no row' if row is None else f'the sink is at {row.epoch}'}): claim, then seal"
                )
            if row.epoch > claim.epoch:
                raise SinkFencedError(f"{table}, {claim.topic}/{partition}: claimed since under epoch {row.epoch}")
        connection.execute(_SEAL, parameters)
    return {partition: row.next_offset for partition, row in rows.items()}


def read_positions(connection: Connection, claim: Claim, table: str) -> Positions:
    """The positions a claim would go on from: the sink's, or ``start`` where it has none of this incarnation."""
    rows = _read(connection, _parameters(claim, table)) if progress_exists(connection) else {}
    positions = dict(claim.start)
    positions.update({p: row.next_offset for p, row in rows.items() if row.incarnation >= claim.incarnation})
    return positions


def forget_rows(connection: Connection, identity: FeedIdentity) -> None:
    """Delete a feed's rows, if none is open, and remember that it was removed: one small row for ever."""
    if not progress_exists(connection):
        return
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
        still_open = sorted({str(table) for table, closed in rows if not closed})
        if still_open:
            raise SinkConflictError(
                f"feed {identity.feed} ({identity.feed_id}) still writes {', '.join(still_open)}: seal them first"
            )
        connection.execute(
            "DELETE FROM headgate.progress WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s", mine
        )
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
        rows = _read(connection, parameters)
        for partition in partitions:
            refusal = _why_not(claim, table, partition, ranges[partition], rows.get(partition))
            if refusal is not None:
                raise refusal
        raise SinkMovedError(f"{table}, {claim.topic}: the sink changed while it was looked at")


def _why_not(claim: Claim, table: str, partition: int, wanted: OffsetRange, row: _Row | None) -> SinkError | None:
    where = f"{table}, {claim.topic}/{partition}"
    if row is None or row.epoch < claim.epoch:
        found = "no row" if row is None else f"epoch {row.epoch}"
        return SinkFencedError(
            f"{where}: the sink has {found} instead of this claim's {claim.epoch}: was it restored? Claim it again, "
            "the sink's positions count"
        )
    if row.epoch > claim.epoch:
        return SinkFencedError(f"{where}: claimed since under epoch {row.epoch}, {claim.epoch} is over")
    if row.closed:
        return SinkFencedError(f"{where}: epoch {claim.epoch} is sealed")
    if row.next_offset != wanted.expected:
        return SinkMovedError(
            f"{where}: the sink is at offset {row.next_offset}, the batch begins at {wanted.expected}: "
            "go on from the sink's"
        )
    return None
