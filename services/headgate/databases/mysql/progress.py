"""The statements on the fence's tables at MySQL and MariaDB (see databases/progress.py).

Locks are taken by writing: a session that locks a row puts its *holder* into it (session token, feed, epoch). InnoDB
shows uncommitted rows to sessions that ask for them, so a session that waits for the lock can read who has it.
"""

from math import ceil
from typing import Final

import msgspec

from headgate.databases.progress import (
    FEED,
    MINE,
    ClaimedRows,
    Execute,
    FeedKey,
    FeedRow,
    Moves,
    ProgressRow,
    ProgressTables,
    values_of,
    values_of_feed,
)  # fmt: skip
from headgate.records.control import Epoch

__all__ = ["Holder", "MysqlProgressTables", "feed_rows"]

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
    """
    CREATE TABLE IF NOT EXISTS headgate.source_tables (
        cluster_id   varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        feed_id      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        table_name   varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        topic        varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        incarnation  bigint NOT NULL,
        source_table text CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        PRIMARY KEY (cluster_id, feed_id, table_name, topic)
    ) ENGINE = InnoDB COMMENT 'Headgate: the source table that the events of a topic are of'
    """,
)

# A mark has a key of the table, in JSON.
_CREATE_ROW_COPIES: Final = """
CREATE TABLE IF NOT EXISTS headgate.row_copies (
    cluster_id  varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    feed_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    table_name  varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    topic       varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request     varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    mark        mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
) ENGINE = InnoDB COMMENT 'Headgate: how far whole tables are copied'
"""

_CREATE_KNOWN_COLUMNS: Final = """
CREATE TABLE IF NOT EXISTS headgate.known_columns (
    cluster_id  varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    feed_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    table_name  varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    topic       varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    incarnation bigint NOT NULL,
    known       mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
) ENGINE = InnoDB COMMENT 'Headgate: columns of the tables that it alters'
"""

_LOCK_KNOWN_COLUMNS: Final = """
INSERT INTO headgate.known_columns (cluster_id, feed_id, table_name, topic, incarnation, known)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(incarnation)s, %(empty)s)
ON DUPLICATE KEY UPDATE incarnation = incarnation
"""

_STORE_MARK: Final = """
INSERT INTO headgate.row_copies (cluster_id, feed_id, table_name, topic, request, mark)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(request)s, %(mark)s)
ON DUPLICATE KEY UPDATE request = VALUES(request), mark = VALUES(mark)
"""

_EXISTS: Final = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'headgate' AND table_name = %s"
_NOW: Final = "UTC_TIMESTAMP(6)"
_THESE: Final = "part IN %(partitions)s"

_LOCK: Final = f"UPDATE headgate.progress SET holder = %(holder)s WHERE {MINE} AND {_THESE} ORDER BY part"

_LOCK_TABLE: Final = """
INSERT INTO headgate.tables (table_name, holder) VALUES (%(table)s, %(holder)s)
ON DUPLICATE KEY UPDATE holder = VALUES(holder)
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
    incarnation = GREATEST(incarnation, VALUES(incarnation)), owner_rev = VALUES(owner_rev), n = VALUES(n),
    closed = FALSE, feed = VALUES(feed), holder = VALUES(holder),
    claimed_at = VALUES(claimed_at), updated_at = VALUES(updated_at)
"""

_HOLDERS: Final = f"""
SELECT holder, MAX(of_partition) FROM (
    SELECT holder, 0 AS of_partition FROM headgate.tables WHERE table_name = %(table)s
    UNION ALL SELECT holder, 1 FROM headgate.progress WHERE {MINE} AND {_THESE}
) AS held GROUP BY holder ORDER BY holder
"""

# Assignments see each other, from left to right. A rewind's first batch replaces the old text with its own.
_STORE: Final = """
INSERT INTO headgate.source_tables (cluster_id, feed_id, table_name, topic, incarnation, source_table)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(incarnation)s, %(source_table)s)
ON DUPLICATE KEY UPDATE
    source_table = IF(incarnation < VALUES(incarnation), VALUES(source_table), source_table),
    incarnation = GREATEST(incarnation, VALUES(incarnation))
"""

_CLAIMED: Final = f"""
SELECT table_name FROM headgate.progress
WHERE {FEED} AND topic = %(topic)s AND LOWER(table_name) = LOWER(%(full)s)
ORDER BY table_name = %(full)s DESC, owner_rev DESC, n DESC, table_name LIMIT 1
"""


class Holder(msgspec.Struct, frozen=True):
    """Who locks a row: a session's token, for which feed and under which epoch."""

    token: str
    feed_id: str
    epoch: Epoch

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


class MysqlProgressTables(ProgressTables):
    """Locks are rows that are written."""

    PARTITION = "part"
    THESE = _THESE
    NOW = _NOW
    BYTEWISE = ""  # the column's own collation
    REMEMBER_REMOVED = (
        "INSERT IGNORE INTO headgate.removed (cluster_id, feed_id, feed, removed_at) "
        f"VALUES (%(cluster)s, %(feed_id)s, %(feed)s, {_NOW})"
    )

    def has(self, table: str) -> bool:
        """See ProgressTables."""
        return _exists(self.session.execute, table)

    def create(self) -> None:
        """See ProgressTables."""
        for statement in _CREATE:
            self.session.execute(statement)

    def claimed(self, feed: FeedKey, topic: str, table: str) -> str | None:
        """The table of that name, whatever its letters' case, that the feed has claimed last for the topic."""
        rows = self.session.execute(_CLAIMED, values_of_feed(feed) | {"topic": topic, "full": table})
        return str(rows[0][0]) if rows else None

    def holders(self, rows: ClaimedRows) -> list[tuple[Holder, bool]]:
        """Who has locked, or was the last to lock, what a claim needs; the session must read uncommitted rows.

        With each whether that is a partition of the claim; else it is the table, which its other parts lock as well.
        Other slices of the table are waited for: their epochs do not precede the claim.
        """
        held = self.session.execute(_HOLDERS, values_of(rows))
        found = [(Holder.parse(str(holder)), bool(of_partition)) for holder, of_partition in held]
        return [(holder, of_partition) for holder, of_partition in found if holder is not None]

    def limit_wait(self, seconds: float) -> None:
        """See ProgressTables."""
        self.session.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, ceil(seconds))}")

    def hold_table(self, feed: FeedKey, table: str) -> None:
        """See ProgressTables."""
        self.session.execute(_LOCK_TABLE, values_of_feed(feed) | {"table": table})

    def read_locked(self, rows: ClaimedRows) -> dict[int, ProgressRow]:
        """See ProgressTables."""
        self.session.execute(_LOCK, values_of(rows))
        return self.read(rows)

    def raise_to(self, rows: ClaimedRows) -> None:
        """See ProgressTables."""
        for partition, start in sorted(rows.start.items()):
            self.session.execute(_RAISE, values_of(rows) | {"part": partition, "start": start})

    def move(self, rows: ClaimedRows, moves: Moves) -> int:
        """See ProgressTables."""
        places = " ".join(f"WHEN {partition} THEN {after}" for partition, (_, after) in sorted(moves.items()))
        expected = " ".join(f"WHEN {partition} THEN {place}" for partition, (place, _) in sorted(moves.items()))
        return self.session.count(
            f"UPDATE headgate.progress SET next_offset = CASE part {places} END, holder = %(holder)s, "
            f"updated_at = {_NOW} WHERE {MINE} AND {_THESE} AND owner_rev = %(owner_rev)s AND n = %(n)s "
            f"AND NOT closed AND next_offset = CASE part {expected} END ORDER BY part",
            values_of(rows, list(moves)),
        )

    def create_row_copies(self) -> None:
        """See ProgressTables."""
        if not self.has("row_copies"):
            self.session.execute(_CREATE_ROW_COPIES)

    def store_copy_mark(self, rows: ClaimedRows, request: str, mark: str) -> None:
        """See ProgressTables."""
        self.session.execute(_STORE_MARK, values_of(rows) | {"request": request, "mark": mark})

    def create_known_columns(self) -> None:
        """See ProgressTables."""
        if not self.has("known_columns"):
            self.session.execute(_CREATE_KNOWN_COLUMNS)

    def lock_known_columns(self, rows: ClaimedRows, empty: str) -> None:
        """See ProgressTables."""
        self.session.execute(_LOCK_KNOWN_COLUMNS, values_of(rows) | {"empty": empty})

    def store_source_table(self, rows: ClaimedRows, text: str) -> str:
        """See ProgressTables."""
        values = values_of(rows)
        self.session.execute(_STORE, values | {"source_table": text})
        # Locking, so that it is the row as it is and not as an older snapshot of this transaction has it.
        ((stored,),) = self.session.execute(
            f"SELECT source_table FROM headgate.source_tables WHERE {MINE} FOR UPDATE", values
        )
        return str(stored)


def _exists(execute: Execute, table: str) -> bool:
    return execute(_EXISTS, (table,)) == [(1,)]


def feed_rows(execute: Execute, feed_id: str, table: str, *, locks: bool = False) -> list[FeedRow]:
    """A feed's rows of one table; ``locks``: no other session changes them until the transaction's end."""
    if not _exists(execute, "progress"):
        return []
    # A feed's id is unique, whatever its cluster is.
    rows = execute(
        "SELECT part, next_offset, closed, topic_id FROM headgate.progress WHERE feed_id = %s AND table_name = %s"
        f"{' LOCK IN SHARE MODE' if locks else ''}",
        (feed_id, table),
    )
    return [FeedRow(partition, offset, bool(closed), topic_id) for partition, offset, closed, topic_id in rows]
