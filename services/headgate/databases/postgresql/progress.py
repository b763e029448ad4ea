"""The statements on the fence's tables at PostgreSQL (see databases/progress.py)."""

from collections.abc import Iterable
from typing import Final

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

__all__ = [
    "HOLD", "HOLD_SCHEMA", "MOVE", "PREPARED_FENCE", "PostgresProgressTables", "close_feed", "feed_rows",
    "fence_arguments",
]  # fmt: skip

HOLD_SCHEMA: Final = "SELECT pg_advisory_xact_lock(hashtextextended('headgate', 0))"
"""Of those who create the tables at the same moment, one does it: IF NOT EXISTS fails for the others."""

# Neither is done where an administrator has made the schema: IF NOT EXISTS would still need the right to make one.
_CREATE_SCHEMA: Final = """
CREATE SCHEMA headgate;
COMMENT ON SCHEMA headgate IS 'Headgate: how far each table is, and who may write it. Remove with its last feed.'
"""

_CREATE: Final = """
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
CREATE TABLE IF NOT EXISTS headgate.source_tables (
    cluster_id   text   NOT NULL,
    feed_id      text   NOT NULL,
    table_name   text   NOT NULL,
    topic        text   NOT NULL,
    incarnation  bigint NOT NULL,
    source_table text   NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
)
"""
# fillfactor: rows are updated with every batch and stay on their page.

_CREATE_ROW_COPIES: Final = """
CREATE TABLE IF NOT EXISTS headgate.row_copies (
    cluster_id text NOT NULL,
    feed_id    text NOT NULL,
    table_name text NOT NULL,
    topic      text NOT NULL,
    request    text NOT NULL,
    mark       text NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
)
"""

_CREATE_KNOWN_COLUMNS: Final = """
CREATE TABLE IF NOT EXISTS headgate.known_columns (
    cluster_id  text   NOT NULL,
    feed_id     text   NOT NULL,
    table_name  text   NOT NULL,
    topic       text   NOT NULL,
    incarnation bigint NOT NULL,
    known       text   NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
)
"""

_LOCK_KNOWN_COLUMNS: Final = """
INSERT INTO headgate.known_columns AS kept (cluster_id, feed_id, table_name, topic, incarnation, known)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(incarnation)s, %(empty)s)
ON CONFLICT (cluster_id, feed_id, table_name, topic) DO UPDATE SET incarnation = kept.incarnation
"""

_STORE_MARK: Final = """
INSERT INTO headgate.row_copies (cluster_id, feed_id, table_name, topic, request, mark)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(request)s, %(mark)s)
ON CONFLICT (cluster_id, feed_id, table_name, topic) DO UPDATE SET request = EXCLUDED.request, mark = EXCLUDED.mark
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
    incarnation = greatest(progress.incarnation, EXCLUDED.incarnation),
    claimed_at = clock_timestamp(), updated_at = clock_timestamp()
"""

_THESE: Final = "partition = ANY (%(partitions)s)"
_HOLD: Final = f"SELECT partition FROM headgate.progress WHERE {MINE} AND {_THESE} ORDER BY partition FOR UPDATE"

_MOVE: Final = f"""
UPDATE headgate.progress p SET next_offset = s.next, updated_at = clock_timestamp()
FROM unnest(%(partitions)s::int[], %(expected)s::bigint[], %(next)s::bigint[]) AS s (number, expected, next)
WHERE {MINE} AND p.partition = s.number
  AND (owner_rev, n) = (%(owner_rev)s, %(n)s) AND NOT closed AND p.next_offset = s.expected
"""

HOLD: Final = "headgate_hold"
MOVE: Final = "headgate_move"
"""Statements that a session keeps prepared."""

_ARGUMENTS: Final = {
    "cluster": "text",
    "feed_id": "text",
    "table": "text",
    "topic": "text",
    "partitions": "int[]",
    "owner_rev": "bigint",
    "n": "bigint",
    "expected": "bigint[]",
    "next": "bigint[]",
}
_PLACES: Final = {name: f"${place}" for place, name in enumerate(_ARGUMENTS, start=1)}
_HOLD_ARGUMENTS: Final = 5
"""The first ones."""

PREPARED_FENCE: Final = (
    f"PREPARE {HOLD} ({', '.join(list(_ARGUMENTS.values())[:_HOLD_ARGUMENTS])}) AS {_HOLD % _PLACES}",
    # All, or an error (a division by zero): what is sent behind it in one text is then not run.
    (
        f"PREPARE {MOVE} ({', '.join(_ARGUMENTS.values())}) AS WITH moved AS ({_MOVE % _PLACES} RETURNING p.partition) "
        f"SELECT 1 / (count(*) = cardinality({_PLACES['partitions']}))::int FROM moved"
    ),
)


def fence_arguments(rows: ClaimedRows, moves: Moves) -> tuple[list[str], list[str]]:
    """Those of HOLD and of MOVE, as texts that the server reads."""
    spans = [span for _, span in sorted(moves.items())]
    held = [rows.feed.cluster_id, rows.feed.feed_id, rows.table, rows.topic, _array(sorted(moves))]
    places = [_array(expected for expected, _ in spans), _array(after for _, after in spans)]
    return held, [*held, str(rows.epoch.owner_rev), str(rows.epoch.n), *places]


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


# The row's own text is returned, whichever session wrote it. A rewind's first batch replaces it with its own.
_STORE: Final = """
INSERT INTO headgate.source_tables AS known (cluster_id, feed_id, table_name, topic, incarnation, source_table)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(incarnation)s, %(source_table)s)
ON CONFLICT (cluster_id, feed_id, table_name, topic) DO UPDATE SET
    source_table = CASE WHEN known.incarnation < EXCLUDED.incarnation THEN EXCLUDED.source_table
                        ELSE known.source_table END,
    incarnation = greatest(known.incarnation, EXCLUDED.incarnation)
RETURNING source_table
"""

_CLAIMED: Final = f"""
SELECT table_name, (owner_rev, n) = (%(owner_rev)s, %(n)s) FROM headgate.progress
WHERE {FEED} AND topic = %(topic)s ORDER BY owner_rev DESC, n DESC, table_name
"""

_RIGHTS: Final = """
SELECT t.name, c.oid IS NOT NULL,
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE c.oid IS NOT NULL AND NOT has_table_privilege(c.oid, p))
FROM unnest(ARRAY['progress', 'removed', 'source_tables']) AS t (name)
LEFT JOIN pg_class c ON c.relname = t.name AND c.relnamespace = to_regnamespace('headgate')
ORDER BY t.name
"""


class PostgresProgressTables(ProgressTables):
    """Locks are row locks and advisory locks."""

    PARTITION = "partition"
    THESE = _THESE
    NOW = "clock_timestamp()"
    BYTEWISE = ' COLLATE "C"'
    REMEMBER_REMOVED = (
        "INSERT INTO headgate.removed (cluster_id, feed_id, feed) VALUES (%(cluster)s, %(feed_id)s, %(feed)s) "
        "ON CONFLICT DO NOTHING"
    )

    def has(self, table: str) -> bool:
        """See ProgressTables."""
        return _exists(self.session.execute, table)

    def create(self) -> None:
        """See ProgressTables."""
        with self.session.transaction():
            self.session.execute(HOLD_SCHEMA)
            # Asked of the table: to_regnamespace may answer from before the lock was waited for.
            if not self.session.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'headgate'"):
                self.session.execute(_CREATE_SCHEMA)
            self.session.execute(_CREATE)

    def lacking_rights(self) -> list[tuple[str, bool, list[str]]]:
        """Of each table its name, whether it exists, and which rights to it this user lacks."""
        return [(str(name), bool(exists), list(missing)) for name, exists, missing in self.session.execute(_RIGHTS)]

    def claimed(self, rows: ClaimedRows) -> list[tuple[str, bool]]:
        """Tables that the feed has claimed for the topic, last first, and whether by the claim's epoch."""
        return [(str(name), bool(is_mine)) for name, is_mine in self.session.execute(_CLAIMED, values_of(rows))]

    def limit_wait(self, seconds: float) -> None:
        """See ProgressTables."""
        self.session.execute(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")

    def hold_table(self, feed: FeedKey, table: str) -> None:
        """See ProgressTables."""
        self.session.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || %(table)s, 0))",
            values_of_feed(feed) | {"table": table},
        )

    def read_locked(self, rows: ClaimedRows) -> dict[int, ProgressRow]:
        """See ProgressTables."""
        return self._read(rows, suffix="FOR UPDATE")

    def raise_to(self, rows: ClaimedRows) -> None:
        """See ProgressTables."""
        self.session.execute(_RAISE, values_of(rows) | {"starts": [start for _, start in sorted(rows.start.items())]})

    def move(self, rows: ClaimedRows, moves: Moves) -> int:
        """See ProgressTables."""
        values, spans = values_of(rows, list(moves)), [span for _, span in sorted(moves.items())]
        if len(spans) > 1:
            self.session.execute(_HOLD, values)
        places = {"expected": [expected for expected, _ in spans], "next": [after for _, after in spans]}
        return self.session.count(_MOVE, values | places)

    def create_row_copies(self) -> None:
        """See ProgressTables."""
        self._create_late("row_copies", _CREATE_ROW_COPIES)

    def _create_late(self, table: str, statement: str) -> None:
        if not self.has(table):
            with self.session.transaction():
                self.session.execute(HOLD_SCHEMA)
                self.session.execute(statement)

    def store_copy_mark(self, rows: ClaimedRows, request: str, mark: str) -> None:
        """See ProgressTables."""
        self.session.execute(_STORE_MARK, values_of(rows) | {"request": request, "mark": mark})

    def create_known_columns(self) -> None:
        """See ProgressTables."""
        self._create_late("known_columns", _CREATE_KNOWN_COLUMNS)

    def lock_known_columns(self, rows: ClaimedRows, empty: str) -> None:
        """See ProgressTables."""
        self.session.execute(_LOCK_KNOWN_COLUMNS, values_of(rows) | {"empty": empty})

    def store_source_table(self, rows: ClaimedRows, text: str) -> str:
        """See ProgressTables."""
        ((stored,),) = self.session.execute(_STORE, values_of(rows) | {"source_table": text})
        return str(stored)


_EXISTS: Final = "SELECT to_regclass('headgate.' || %s) IS NOT NULL"

_OF_FEED: Final = "feed_id = %s AND table_name = %s"
"""A feed's id is unique, whatever its cluster is."""


def _exists(execute: Execute, table: str) -> bool:
    return execute(_EXISTS, (table,)) == [(True,)]


def feed_rows(execute: Execute, feed_id: str, table: str, *, locks: bool = False) -> list[FeedRow]:
    """A feed's rows of one table; ``locks``: no other session changes them until the transaction's end."""
    if not _exists(execute, "progress"):
        return []
    rows = execute(
        f"SELECT partition, next_offset, closed, topic_id FROM headgate.progress WHERE {_OF_FEED}"
        f"{' FOR SHARE' if locks else ''}",
        (feed_id, table),
    )
    return [FeedRow(*row) for row in rows]


def close_feed(execute: Execute, feed_id: str, table: str) -> None:
    """Close a feed's rows of one table: its present epoch writes nothing there any more."""
    execute(
        f"UPDATE headgate.progress SET closed = true, updated_at = clock_timestamp() WHERE {_OF_FEED}",
        (feed_id, table),
    )
