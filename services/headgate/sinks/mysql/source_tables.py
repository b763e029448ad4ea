"""``headgate.source_tables``: which source table the events of a topic are of (see relational/source_tables.py)."""

from typing import Final

from headgate.formats.tables import SourceTable
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity
from headgate.sinks.mysql.connection import Session
from headgate.sinks.relational.source_tables import check_same, source_table_of, text_of

__all__ = ["CREATE", "forget_source_tables", "read_source_table", "store_source_table"]

CREATE: Final = """
    CREATE TABLE IF NOT EXISTS headgate.source_tables (
        cluster_id   varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        feed_id      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        table_name   varchar(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        topic        varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        incarnation  bigint NOT NULL,
        source_table text CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        PRIMARY KEY (cluster_id, feed_id, table_name, topic)
    ) ENGINE = InnoDB COMMENT 'Headgate: the source table that the events of a topic are of'
    """

_MINE: Final = "cluster_id = %(cluster)s AND feed_id = %(feed_id)s AND table_name = %(table)s AND topic = %(topic)s"
_STORED: Final = f"SELECT source_table FROM headgate.source_tables WHERE {_MINE}"
_READ: Final = f"{_STORED} AND incarnation = %(incarnation)s"

# Assignments see each other, from left to right. A rewind's first batch puts its own words in the old ones' place.
_STORE: Final = """
INSERT INTO headgate.source_tables (cluster_id, feed_id, table_name, topic, incarnation, source_table)
VALUES (%(cluster)s, %(feed_id)s, %(table)s, %(topic)s, %(incarnation)s, %(source_table)s)
ON DUPLICATE KEY UPDATE
    source_table = IF(incarnation < VALUES(incarnation), VALUES(source_table), source_table),
    incarnation = GREATEST(incarnation, VALUES(incarnation))
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


def read_source_table(session: Session, claim: Claim, table: str) -> SourceTable | None:
    """See Sink.source_table."""
    rows = session.execute(_READ, _parameters(claim, table))
    return source_table_of(str(rows[0][0])) if rows else None


def store_source_table(session: Session, batch: ChangeBatch, table: str) -> None:
    """Within the batch's transaction, once its claim has been found to be the sink's. Raises SinkMovedError."""
    if batch.source_table is None:
        return
    parameters = _parameters(batch.claim, table)
    session.execute(_STORE, parameters | {"source_table": text_of(batch.source_table)})
    # Locking, so that it is the row as it is and not as an older snapshot of this transaction has it.
    ((stored,),) = session.execute(f"{_STORED} FOR UPDATE", parameters)
    check_same(batch.claim, table, batch.source_table, str(stored))


def forget_source_tables(session: Session, identity: FeedIdentity) -> None:
    """Within the caller's transaction."""
    session.execute(_FORGET, {"cluster": identity.cluster_id, "feed_id": identity.feed_id})
