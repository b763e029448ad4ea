"""``headgate.source_tables``: which source table the events of a topic are of (see relational/source_tables.py)."""

from typing import Final

from headgate.formats.tables import SourceTable
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity
from headgate.sinks.postgresql.catalog import Connection
from headgate.sinks.relational.source_tables import check_same, source_table_of, text_of

__all__ = ["CREATE", "forget_source_tables", "read_source_table", "store_source_table"]

CREATE: Final = """
CREATE TABLE IF NOT EXISTS headgate.source_tables (
    cluster_id   text   NOT NULL,
    feed_id      text   NOT NULL,
    table_name   text   NOT NULL,
    topic        text   NOT NULL,
    incarnation  bigint NOT NULL,
    source_table text   NOT NULL,
    PRIMARY KEY (cluster_id, feed_id, table_name, topic)
);
"""

_READ: Final = """
SELECT source_table FROM headgate.source_tables
WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND table_name = %(table)s AND topic = %(topic)s
  AND incarnation = %(incarnation)s
"""

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

_FORGET: Final = "DELETE FROM headgate.source_tables WHERE cluster_id = %(cluster)s AND feed_id = %(feed_id)s"


def _parameters(claim: Claim, table: str) -> dict[str, object]:
    return {
        "cluster": claim.identity.cluster_id,
        "feed_id": claim.identity.feed_id,
        "table": table,
        "topic": claim.topic,
        "incarnation": claim.incarnation,
    }


def read_source_table(connection: Connection, claim: Claim, table: str) -> SourceTable | None:
    """See Sink.source_table."""
    row = connection.execute(_READ, _parameters(claim, table)).fetchone()
    return None if row is None else source_table_of(str(row[0]))


def store_source_table(connection: Connection, batch: ChangeBatch, table: str) -> None:
    """Within the batch's transaction, once its claim has been found to be the sink's. Raises SinkMovedError."""
    if batch.source_table is None:
        return
    parameters = _parameters(batch.claim, table) | {"source_table": text_of(batch.source_table)}
    row = connection.execute(_STORE, parameters).fetchone()
    assert row is not None  # noqa: S101 - an upsert without condition returns its row
    check_same(batch.claim, table, batch.source_table, str(row[0]))


def forget_source_tables(connection: Connection, identity: FeedIdentity) -> None:
    """Within the caller's transaction."""
    connection.execute(_FORGET, {"cluster": identity.cluster_id, "feed_id": identity.feed_id})
