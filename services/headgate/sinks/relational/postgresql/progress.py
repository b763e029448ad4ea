"""The fence's tables and statements, where PostgreSQL's are its own."""

from collections.abc import Iterable, Mapping
from typing import Final

from headgate.records.identifiers import split_table, table_spelling
from headgate.sinks.contract import Claim, OffsetRange
from headgate.sinks.fence import FenceRow
from headgate.sinks.relational.postgresql.catalog import found_name
from headgate.sinks.relational.postgresql.connection import PostgresSession
from headgate.sinks.relational.progress import FEED, MINE, Progress, Values

__all__ = ["HOLD", "MOVE", "PREPARED_FENCE", "PostgresProgress", "fence_arguments"]

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


def fence_arguments(claim: Claim, table: str, ranges: Mapping[int, OffsetRange]) -> tuple[list[str], list[str]]:
    """Those of HOLD and of MOVE, as texts that the server reads."""
    spans = [span for _, span in sorted(ranges.items())]
    identity, epoch = claim.identity, claim.epoch
    held = [identity.cluster_id, identity.feed_id, table, claim.topic, _array(sorted(ranges))]
    moves = [_array(span.expected for span in spans), _array(span.next for span in spans)]
    return held, [*held, str(epoch.owner_rev), str(epoch.n), *moves]


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


# The row's own words come back, whoever made it. A rewind's first batch puts its own in their place.
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


class PostgresProgress(Progress[PostgresSession]):
    """Locks are row locks and advisory locks; who holds one is asked of the server (see contention)."""

    PARTITION = "partition"
    THESE = _THESE
    NOW = "clock_timestamp()"
    REMEMBER_REMOVED = (
        "INSERT INTO headgate.removed (cluster_id, feed_id, feed) VALUES (%(cluster)s, %(feed_id)s, %(feed)s) "
        "ON CONFLICT DO NOTHING"
    )

    def _has(self, table: str) -> bool:
        ((found,),) = self.session.execute("SELECT to_regclass('headgate.' || %s) IS NOT NULL", (table,))
        return bool(found)

    def _create(self) -> None:
        with self.session.transaction():
            self.session.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate', 0))")
            # Asked of the table: to_regnamespace may answer from before the lock was waited for.
            if not self.session.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'headgate'"):
                self.session.execute(_CREATE_SCHEMA)
            self.session.execute(_CREATE)

    def name_to_claim(self, claim: Claim) -> str:
        """See Progress. A bare name keeps the table that its feed has claimed before, as long as that exists.

        So nobody can put a table of the same name before it on the search path, and have it written. Otherwise it is
        the first on the path; if there is none, the one claimed before; if it never was, the one that would be made.
        """
        space, relation = split_table(claim.table)
        if space is not None:
            return table_spelling(space, relation)
        before = [name for name, _ in self._claimed(claim, relation)][:1]
        if before and found_name(self.session, before[0]) is not None:
            return before[0]
        found = found_name(self.session, claim.table) or next(iter(before), None)
        return found or table_spelling(next(iter(self.session.path), "public"), relation)

    def name_claimed(self, claim: Claim) -> str:
        """See Progress."""
        space, relation = split_table(claim.table)
        mine = {name for name, is_mine in self._claimed(claim, relation) if is_mine} if space is None else set()
        return mine.pop() if len(mine) == 1 else self.name_to_claim(claim)

    def _claimed(self, claim: Claim, relation: str) -> list[tuple[str, bool]]:
        """Tables of that bare name which the feed has claimed for the topic, last first, and whether by this epoch."""
        rows = self.session.execute(_CLAIMED, self._values(claim, ""))
        claimed = [(split_table(str(name)), str(name), bool(is_mine)) for name, is_mine in rows]
        # Without a schema it is an older version's, which _rename_rows moves.
        return [(name, mine) for (space, table), name, mine in claimed if space is not None and table == relation]

    def _limit_wait(self, seconds: float) -> None:
        self.session.execute(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")

    def _hold_table(self, values: Values) -> None:
        self.session.execute("SELECT pg_advisory_xact_lock(hashtextextended('headgate ' || %(table)s, 0))", values)

    def _read_locked(self, values: Values) -> dict[int, FenceRow]:
        return self._read(values, suffix="FOR UPDATE")

    def _raise(self, claim: Claim, values: Values) -> None:
        self.session.execute(_RAISE, values | {"starts": [start for _, start in sorted(claim.start.items())]})

    def _move(self, ranges: Mapping[int, OffsetRange], values: Values) -> int:
        spans = [span for _, span in sorted(ranges.items())]
        if len(spans) > 1:
            self.session.execute(_HOLD, values)
        moves = {"expected": [span.expected for span in spans], "next": [span.next for span in spans]}
        return self.session.count(_MOVE, values | moves)

    def _store_source_table(self, values: Values) -> str:
        ((stored,),) = self.session.execute(_STORE, values)
        return str(stored)
