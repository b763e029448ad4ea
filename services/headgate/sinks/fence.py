"""The rules of the fence: pure decisions on a progress row that was read, the same in every database.

A sink reads its rows, under whatever lock it needs, and asks here; the texts are what people see.
"""

from collections.abc import Mapping

import msgspec

from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import (
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkConflictError,
    SinkFencedError,
    SinkMovedError,
    TopicReplacedError,
)


class FenceRow(msgspec.Struct, frozen=True):
    """One progress row: who may write this partition, and from where on."""

    epoch: Epoch
    incarnation: int
    next_offset: int
    closed: bool
    topic_id: str | None


Rows = Mapping[int, FenceRow]


def positions_of(rows: Rows) -> Positions:
    """The next offset of every partition."""
    return {partition: row.next_offset for partition, row in rows.items()}


def start_or_rows(claim: Claim, table: str, rows: Rows) -> Positions:
    """The positions a claim would resume from: the sink's, or ``start`` where it has none of this incarnation.

    Raises TopicReplacedError.
    """
    _check_topic(claim, table, rows)
    return dict(claim.start) | {p: row.next_offset for p, row in rows.items() if row.incarnation >= claim.incarnation}


def is_same_claim(claim: Claim, rows: Rows) -> bool:
    """Whether the claim holds the rows already: it is repeated."""
    return rows.keys() == claim.start.keys() and all(
        row.epoch == claim.epoch
        and not row.closed
        and row.incarnation == claim.incarnation
        and claim.topic_id in (None, row.topic_id)
        for row in rows.values()
    )


def is_at_epoch(claim: Claim, rows: Rows) -> bool:
    """Whether all the claim's rows are there, at its epoch or above."""
    return rows.keys() == claim.start.keys() and all(row.epoch >= claim.epoch for row in rows.values())


def check_claim(claim: Claim, table: str, rows: Rows) -> None:
    """Raise what keeps ``claim`` from taking its rows, which are locked."""
    for partition, row in rows.items():
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
    _check_topic(claim, table, rows)


def _check_topic(claim: Claim, table: str, rows: Rows) -> None:
    """The offsets of a row are of the topic with its id; a rewind brings others."""
    for partition, row in rows.items():
        is_other = claim.topic_id is not None and row.topic_id not in (None, claim.topic_id)
        if is_other and row.incarnation == claim.incarnation:
            raise TopicReplacedError(
                f"{table}, {claim.topic}/{partition}: the topic was deleted and re-created: its id is "
                f"{claim.topic_id}, the sink's offset {row.next_offset} is of {row.topic_id}. Nothing of it is read. "
                "To apply all that it holds now: `headgate feed pause`, then `headgate feed resume --from earliest` "
                "(what the old topic still held is lost; see `headgate verify`)"
            )


def check_seal(claim: Claim, table: str, rows: Rows) -> None:
    """Raise what keeps ``claim.epoch`` from being sealed; its rows are locked."""
    for partition, row in rows.items():
        if row.epoch > claim.epoch:
            raise SinkFencedError(f"{table}, {claim.topic}/{partition}: claimed since under epoch {row.epoch}")


def check_advance(claim: Claim, table: str, ranges: Mapping[int, OffsetRange], rows: Rows) -> None:
    """Raise why the positions could not be moved over ``ranges``, given the current rows."""
    for partition in sorted(ranges):
        where, wanted, row = f"{table}, {claim.topic}/{partition}", ranges[partition], rows.get(partition)
        if row is None or row.epoch < claim.epoch:
            found = "no row" if row is None else f"epoch {row.epoch}"
            raise SinkFencedError(
                f"{where}: the sink has {found} instead of this claim's {claim.epoch}: was it restored? Claim it again,"
                " the sink's positions count"
            )
        if row.epoch > claim.epoch:
            raise SinkFencedError(f"{where}: claimed since under epoch {row.epoch}, {claim.epoch} is over")
        if row.closed:
            raise SinkFencedError(f"{where}: epoch {claim.epoch} is sealed")
        if row.next_offset != wanted.expected:
            raise SinkMovedError(
                f"{where}: the sink is at offset {row.next_offset}, the batch starts at {wanted.expected}: "
                "continue from the sink's"
            )
    raise SinkMovedError(f"{table}, {claim.topic}: the sink changed while it was looked at")


def removed(identity: FeedIdentity, table: str, when: object) -> SinkFencedError:
    """A claim, or seal, that was under way when its feed was removed: it would else find no row, and make one."""
    return SinkFencedError(f"{table}: feed {identity.feed} ({identity.feed_id}) was removed at {when}")


def stranger(identity: FeedIdentity, table: str, theirs: FeedIdentity, kept: str | None = None) -> SinkConflictError:
    """Another feed, or a feed of another cluster, holds the table open.

    ``kept``: what the sink has of that feed, if it is not rows of a database.
    """
    whose = f"feed {theirs.feed} ({theirs.feed_id})"
    if theirs.cluster_id != identity.cluster_id:
        whose += f" of another cluster ({theirs.cluster_id}; this one is {identity.cluster_id})"
    if kept is None:
        where = f"cluster_id = '{theirs.cluster_id}' AND feed_id = '{theirs.feed_id}'"
        kept = f"its rows in headgate.progress (WHERE {where})"
    return SinkConflictError(
        f"table {table} is being written by {whose}: two writers would undo each other's rows. Remove that feed, "
        f"or, if it no longer exists, {kept}"
    )


def beside(claim: Claim, table: str, topic: str) -> SinkConflictError:
    """Another topic of the feed writes rows of a slice, or of the table that it is of."""
    return SinkConflictError(
        f"table {table}: topics {topic} and {claim.topic} of feed {claim.identity.feed} write the same rows, and name "
        "their table in two ways. Name it in one way, with its schema or database, and give each source another value "
        "(`into` in `tables`)"
    )


def still_open(identity: FeedIdentity, tables: set[str]) -> SinkConflictError:
    """A feed is being deleted, but some of its tables are not sealed."""
    return SinkConflictError(
        f"feed {identity.feed} ({identity.feed_id}) still writes {', '.join(sorted(tables))}: seal them first"
    )
