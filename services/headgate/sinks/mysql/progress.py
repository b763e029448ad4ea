"""The fence: one row per (cluster, feed, table, topic, partition) in ``headgate.progress``.

A row holds the epoch of the last claim, whether it is closed, and the next offset to apply. Every statement that
counts is conditional on what the row says now, under the row's lock; what it says is the truth, whatever log or lane
believe.

Locks are taken by writing: whoever locks a row puts its *holder* into it (session token, feed, epoch). InnoDB shows
uncommitted rows to whoever asks for them, so that somebody who waits for the lock can read who has it (contention).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import Claim, FeedIdentity, OffsetRange
from headgate.sinks.mysql.connection import Session
from headgate.sinks.mysql.source_tables import CREATE as CREATE_SOURCE_TABLES
from headgate.sinks.mysql.source_tables import forget_source_tables
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
    "Holder",
    "advance",
    "claim_rows",
    "ensure_progress",
    "forget_rows",
    "progress_exists",
    "read_holders",
    "read_positions",
    "refuse_strangers",
    "seal_rows",
]

# The widths are those of Kafka's topics, of MySQL's names, and of what the log writes; all in one index of 3072 bytes.
_CREATE: Final = (
    "CREATE DATABASE IF NOT EXISTS headgate",
    """
    CREATE TABLE IF NOT EXISTS headgate.tables (
        table_name  varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
        holder      varchar(600) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
    ) ENGINE = InnoDB COMMENT 'Headgate: one claim of a table at a time'
    """,
    """
    CREATE TABLE IF NOT EXISTS headgate.removed (
        cluster_id  varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        feed_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        feed        varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        removed_at  datetime(6) NOT NULL,
        PRIMARY KEY (cluster_id, feed_id)
    ) ENGINE = InnoDB COMMENT 'Headgate: feeds that must not come back'
    """,
    """
    CREATE TABLE IF NOT EXISTS headgate.progress (
        cluster_id  varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        feed_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        table_name  varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        topic       varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        part        int NOT NULL,
        feed        varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        owner_rev   bigint NOT NULL,
        n           bigint NOT NULL,
        incarnation bigint NOT NULL,
        next_offset bigint NOT NULL,
        closed      boolean NOT NULL DEFAULT FALSE,
        topic_id    varchar(64) CHARACTER SET ascii COLLATE ascii_bin,
        holder      varchar(600) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        claimed_at  datetime(6) NOT NULL,
        updated_at  datetime(6) NOT NULL,
        PRIMARY KEY (cluster_id, feed_id, table_name, topic, part),
        KEY by_table (table_name)
    ) ENGINE = InnoDB COMMENT 'Headgate: how far each table is, and who may write it. Remove with its last feed.'
    """,
    CREATE_SOURCE_TABLES,
)

_EXISTS: Final = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'headgate' AND table_name = %(table)s"
)
_NOW: Final = "UTC_TIMESTAMP(6)"
_MINE: Final = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND table_name = %(table)s AND topic = %(topic)s"
_THESE: Final = f"{_MINE} AND part IN %(partitions)s"

_READ: Final = f"""
SELECT part, owner_rev, n, incarnation, next_offset, closed, topic_id FROM headgate.progress
WHERE {_THESE} ORDER BY part
"""

_LOCK: Final = f"UPDATE headgate.progress SET holder = %(holder)s WHERE {_THESE} ORDER BY part"

_LOCK_TABLE: Final = """
INSERT INTO headgate.tables (table_name, holder) VALUES (%(table)s, %(holder)s)
ON DUPLICATE KEY UPDATE holder = VALUES(holder)
"""

_REMOVED: Final = "SELECT removed_at FROM headgate.removed WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s"

_STRANGERS: Final = """
SELECT DISTINCT cluster_id, feed_id, feed FROM headgate.progress
WHERE table_name = %(table)s AND NOT closed AND (cluster_id <> %(cluster)s OR feed_id <> %(feed_id)s)
ORDER BY cluster_id, feed_id
"""

_COLUMNS: Final = (
    "cluster_id, feed_id, table_name, topic, part, feed, owner_rev, n, incarnation, next_offset, topic_id, holder, "
    "claimed_at, updated_at"
)
# Assignments are made from left to right and see each other: next_offset is decided before incarnation changes.
_RAISE: Final = f"""
INSERT INTO headgate.progress ({_COLUMNS})
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(part)s, %(feed)s, %(owner_rev)s, %(n)s, %(incarnation)s,
        %(start)s, %(topic_id)s, %(holder)s, {_NOW}, {_NOW})
ON DUPLICATE KEY UPDATE
    next_offset = IF(incarnation < VALUES(incarnation), VALUES(next_offset), next_offset),
    topic_id = IF(incarnation < VALUES(incarnation), VALUES(topic_id), COALESCE(VALUES(topic_id), topic_id)),
    incarnation = VALUES(incarnation), owner_rev = VALUES(owner_rev), n = VALUES(n), closed = FALSE,
    feed = VALUES(feed), holder = VALUES(holder),
    claimed_at = VALUES(claimed_at), updated_at = VALUES(updated_at)
"""

_SEAL: Final = f"""
UPDATE headgate.progress SET closed = TRUE, updated_at = {_NOW}
WHERE {_THESE} AND owner_rev = %(owner_rev)s AND n = %(n)s AND NOT closed
"""

_HOLDERS: Final = f"""
SELECT holder FROM headgate.tables WHERE table_name = %(table)s
UNION SELECT holder FROM headgate.progress WHERE {_THESE}
"""


class Holder(msgspec.Struct, frozen=True):
    """Who locks a row: a session's token, for which feed and under which epoch."""

    token: str
    feed_id: str
    epoch: Epoch

    @classmethod
    def of(cls, session: Session, claim: Claim) -> "Holder":
        """This session, at work for ``claim``."""
        return cls(session.prove_life(), claim.identity.feed_id, claim.epoch)

    @classmethod
    def parse(cls, text: str) -> "Holder | None":
        """What ``str`` wrote; None for anything else."""
        match text.split("|"):
            case [token, feed_id, epoch]:
                owner_rev, _, n = epoch.partition(".")
                if owner_rev.isdecimal() and n.isdecimal():
                    return cls(token, feed_id, Epoch(int(owner_rev), int(n)))
        return None

    def __str__(self) -> str:
        return f"{self.token}|{self.feed_id}|{self.epoch}"


def _parameters(session: Session, claim: Claim, table: str) -> dict[str, object]:
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
        "partitions": tuple(sorted(claim.start)),
        "holder": str(Holder.of(session, claim)),
    }


def _read(session: Session, parameters: dict[str, object]) -> dict[int, FenceRow]:
    return {
        int(partition): FenceRow(Epoch(owner_rev, n), incarnation, next_offset, bool(closed), topic_id)
        for partition, owner_rev, n, incarnation, next_offset, closed, topic_id in session.execute(_READ, parameters)
    }


def progress_exists(session: Session) -> bool:
    """Whether Headgate has ever claimed anything on this server."""
    return session.execute(_EXISTS, {"table": "progress"}) == [(1,)]


def ensure_progress(session: Session) -> None:
    """Create database and tables on first use; two sessions may do so at once. Outside of any transaction."""
    if session.execute(_EXISTS, {"table": "source_tables"}) != [(1,)]:  # the newest of them
        for statement in _CREATE:
            session.execute(statement)


def refuse_strangers(session: Session, identity: FeedIdentity, table: str) -> None:
    """SinkConflictError if another feed, or a feed of another cluster, holds the table open."""
    parameters: dict[str, object] = {"table": table, "cluster": identity.cluster_id, "feed_id": identity.feed_id}
    for cluster_id, feed_id, feed in session.execute(_STRANGERS, parameters):
        raise stranger(identity, table, FeedIdentity(cluster_id, feed_id, feed))


def claim_rows(session: Session, claim: Claim, table: str) -> Positions:
    """Raise the epoch of the claim's rows to the claim's, in one transaction; the positions to go on from."""
    parameters = _parameters(session, claim, table)
    with session.transaction():
        # One claim per table at a time: two feeds must not both find it free.
        session.execute(_LOCK_TABLE, parameters)
        for (when,) in session.execute(_REMOVED, parameters):
            raise removed(claim.identity, table, when)
        refuse_strangers(session, claim.identity, table)
        rows = _read(session, parameters)
        if is_same_claim(claim, rows):  # answered without a lock: a late attempt of this epoch may hold it
            return positions_of(rows)
        session.execute(_LOCK, parameters)
        rows = _read(session, parameters)
        check_claim(claim, table, rows)
        for partition in sorted(claim.start):
            session.execute(_RAISE, parameters | {"part": partition, "start": claim.start[partition]})
        rows = _read(session, parameters)
    return positions_of(rows)


def seal_rows(session: Session, claim: Claim, table: str) -> Positions:
    """Close the claim's epoch for good; the final positions. Sealing twice gives the same answer."""
    parameters = _parameters(session, claim, table)
    with session.transaction():
        session.execute(_LOCK, parameters)
        rows = _read(session, parameters)
        check_seal(claim, table, rows)
        session.execute(_SEAL, parameters)
    return positions_of(rows)


def read_positions(session: Session, claim: Claim, table: str) -> Positions:
    """The positions a claim would go on from: the sink's, or ``start`` where it has none of this incarnation."""
    return start_or_rows(claim, table, _read(session, _parameters(session, claim, table)))


def read_holders(session: Session, claim: Claim, table: str) -> list[Holder]:
    """Who has locked, or was the last to lock, what ``claim`` needs; ``session`` must read uncommitted rows."""
    found = [Holder.parse(str(row[0])) for row in session.execute(_HOLDERS, _parameters(session, claim, table))]
    return [holder for holder in found if holder is not None]


def forget_rows(session: Session, identity: FeedIdentity) -> None:
    """Delete a feed's rows, if none is open, and remember that it was removed: one small row for ever."""
    if not progress_exists(session):
        return
    ensure_progress(session)
    mine: dict[str, Any] = {"cluster": identity.cluster_id, "feed_id": identity.feed_id, "feed": identity.feed}
    whose = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s"
    holder = str(Holder(session.prove_life(), identity.feed_id, Epoch(0, 0)))
    with session.transaction():
        tables = session.execute(
            f"SELECT DISTINCT table_name FROM headgate.progress WHERE {whose} ORDER BY table_name", mine
        )
        for (table,) in tables:
            # Before the rows' own locks, as claims do: a claim either comes first, or finds the feed removed.
            session.execute(_LOCK_TABLE, {"table": table, "holder": holder})
        rows = session.execute(
            f"SELECT table_name, closed FROM headgate.progress WHERE {whose} ORDER BY table_name, topic, part "
            "FOR UPDATE",
            mine,
        )
        unsealed = {str(table) for table, closed in rows if not closed}
        if unsealed:
            raise still_open(identity, unsealed)
        session.execute(f"DELETE FROM headgate.progress WHERE {whose}", mine)
        forget_source_tables(session, identity)
        if rows:
            session.execute(
                "INSERT IGNORE INTO headgate.removed (cluster_id, feed_id, feed, removed_at) "
                f"VALUES (%(cluster)s, %(feed_id)s, %(feed)s, {_NOW})",
                mine,
            )


def advance(session: Session, claim: Claim, table: str, ranges: Mapping[int, OffsetRange]) -> None:
    """Move every partition from exactly ``expected`` to ``next`` under the claim's open epoch, or raise.

    Within the caller's transaction, which must roll back on an error. Rows are locked in partition order.
    """
    parameters = _parameters(session, claim, table) | {"partitions": tuple(sorted(ranges))}
    moves = " ".join(f"WHEN {partition} THEN {span.next}" for partition, span in sorted(ranges.items()))
    expected = " ".join(f"WHEN {partition} THEN {span.expected}" for partition, span in sorted(ranges.items()))
    moved = session.count(
        f"UPDATE headgate.progress SET next_offset = CASE part {moves} END, holder = %(holder)s, updated_at = {_NOW} "
        f"WHERE {_THESE} AND owner_rev = %(owner_rev)s AND n = %(n)s AND NOT closed "
        f"AND next_offset = CASE part {expected} END ORDER BY part",
        parameters,
    )
    if moved != len(ranges):
        check_advance(claim, table, ranges, _read(session, parameters))
