"""Who may write which rows: claims, seals, and taking rows over from a producer that is used no more.

One procedure serves all of them. The rules of every sink (sinks/fence.py) are applied to rows that no other process
can change until the answer is committed:

1. Take the transactional.id of all claimers of this target topic. Who had it before can commit no more.
2. Read the progress topic to its present end. What the rules refuse is refused here, and no holder is disturbed.
3. Take the ids of the open rows' holders, which ends their transactions, and read again: now these rows are final.
   Rows that this process holds itself are final while it has the mutex of its own producer.
4. Commit the rows with the first producer. If another claimer has taken its id since, start over.
5. Read once more: of a feed that was forgotten in between, nothing may be written.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from headgate.config.times import show_ts
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import CommitUncertainError, FencedError
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.records.ts import ts_of_ms
from headgate.sinks import fence
from headgate.sinks.contract import Claim, FeedIdentity, OffsetRange, SinkUnavailableError
from headgate.sinks.kafka.errors import as_sink_errors
from headgate.sinks.kafka.progress import (
    PARTITIONS,
    ProgressRecord,
    Removed,
    Row,
    SourceRow,
    View,
    claimer_id,
    feed_claimer_id,
    partition_of,
    place_of,
    progress_key,
    removed_key,
    source_key,
)
from headgate.sinks.kafka.target import TargetCluster, TargetProducer
from headgate.sinks.source_tables import check_same, source_table_of, text_of

__all__ = ["Claims", "check_held", "refuse_strangers"]

ATTEMPTS_MAX: Final = 5
"""Each is lost to another claimer of the same topic, which then has got further."""

T = TypeVar("T")

Rows = Mapping[int, Row]
Decide = Callable[[View, Rows, str], dict[int, Row]]
"""The rows to write, from all about the topic, the claim's rows and the id of this process's producer."""


class _OvertakenError(Exception):
    """Another claimer, or another producer of this process, came between."""


class Claims:
    """The claims on topics of one target cluster."""

    def __init__(self, target: TargetCluster) -> None:
        self._target = target

    def claim(self, claim: Claim, topic: str, target_id: str | None) -> Positions:
        """See Sink. ``topic`` is the target topic, ``target_id`` Kafka's id of it, if it exists."""

        def decide(view: View, rows: Rows, holder: str) -> dict[int, Row]:
            refuse_strangers(view, claim.identity, topic, self._target.progress)
            known = _known(rows)
            if not fence.is_same_claim(claim, known):
                fence.check_claim(claim, topic, known)
            return _raised(claim, rows, holder, target_id)

        return _positions(self._change(claim, topic, decide))

    def seal(self, claim: Claim, topic: str) -> Positions:
        """See Sink."""

        def decide(_view: View, rows: Rows, _holder: str) -> dict[int, Row]:
            fence.check_seal(claim, topic, _known(rows))
            return _raised(claim, rows, None, None)

        return _positions(self._change(claim, topic, decide))

    def take_over(self, claim: Claim, topic: str, ranges: Mapping[int, OffsetRange]) -> None:
        """Have this process's present producer hold the claim's rows, where a former one did."""

        def decide(_view: View, rows: Rows, holder: str) -> dict[int, Row]:
            check_held(claim, topic, ranges, rows)
            return {partition: msgspec.structs.replace(rows[partition], holder=holder) for partition in ranges}

        self._change(claim, topic, decide)

    def record_source(self, claim: Claim, topic: str, ranges: Mapping[int, OffsetRange], table: SourceTable) -> None:
        """Store the source table of the claim's topic. Raises SinkMovedError if another one is stored."""
        place, recorded = place_of(claim, topic), SourceRow(claim.incarnation, text_of(table))

        def record(producer: TargetProducer) -> None:
            view, rows = self._looked(claim, topic)
            check_held(claim, topic, ranges, rows)
            known = view.sources.get(place)
            if known is not None and known.incarnation >= claim.incarnation:
                check_same(claim, topic, table, known.table)
            else:
                value = msgspec.json.encode(recorded)
                producer.commit(topic, (), [ProgressRecord(partition_of(topic), source_key(place), value)])

        self._claiming(claim, topic, record)

    def source_table(self, claim: Claim, topic: str) -> SourceTable | None:
        """See Sink."""
        with as_sink_errors(f"reading the source table of {topic}"):
            known = self._target.ledger.read(topic).sources.get(place_of(claim, topic))
        return source_table_of(known.table) if known is not None and known.incarnation == claim.incarnation else None

    def positions(self, claim: Claim, topic: str) -> Positions:
        """See Sink."""
        with as_sink_errors(f"reading the positions of {topic}"):
            view = self._target.ledger.read(topic)
        return fence.start_or_rows(claim, topic, _known(_mine(view, claim, topic)))

    def forget(self, identity: FeedIdentity) -> None:
        """See Sink. Once its removal is on the topic, no row of the feed counts any more, whenever it was written."""
        target, feed = self._target, (identity.cluster_id, identity.feed_id)
        with as_sink_errors(f"forgetting feed {identity.feed}"):
            view = target.ledger.read(None)
            mine = [(place, rows) for place, rows in view.rows.items() if place[:2] == feed]
            unsealed = {place.target for place, rows in mine if any(not row.closed for row in rows.values())}
            if unsealed:
                raise fence.still_open(identity, unsealed)
            key, value = removed_key(identity), msgspec.json.encode(Removed(wall_ms()))
            facts = [ProgressRecord(number, key, value) for number in range(PARTITIONS)]
            for place, rows in mine:
                facts += [
                    ProgressRecord(partition_of(place.target), progress_key(place, number), None) for number in rows
                ]
            facts += [
                ProgressRecord(partition_of(place.target), source_key(place), None)
                for place in view.sources
                if place[:2] == feed
            ]
            with target.claiming(feed_claimer_id(target.progress, identity.feed_id)) as producer:
                producer.commit("", (), facts)
            # A claim that began before the removal may have committed since.
            for holder in sorted(target.ledger.holders(identity)):
                target.end(holder)

    # --- the procedure ------------------------------------------------------------------------------------------------

    def _change(self, claim: Claim, topic: str, decide: Decide) -> dict[int, Row]:
        """The rows that ``decide`` makes, once they are committed."""
        return self._claiming(claim, topic, lambda producer: self._changed(claim, topic, producer, decide))

    def _claiming(self, claim: Claim, topic: str, step: Callable[[TargetProducer], T]) -> T:
        """``step`` with the producer of all claimers of the topic, again if it was overtaken. Raises SinkError."""
        doing = f"{topic} under epoch {claim.epoch}, topic {claim.topic}"
        with as_sink_errors(doing):
            for _ in range(ATTEMPTS_MAX):
                try:
                    with self._target.claiming(claimer_id(self._target.progress, topic)) as producer:
                        return step(producer)
                except (FencedError, _OvertakenError):
                    continue
        raise SinkUnavailableError(
            f"{doing}: {ATTEMPTS_MAX} attempts to claim it were overtaken by other claimers. The claim is retried"
        )

    def _changed(self, claim: Claim, topic: str, producer: TargetProducer, decide: Decide) -> dict[int, Row]:
        target, place = self._target, place_of(claim, topic)
        view, rows = self._looked(claim, topic)
        with target.mutex:
            own = target.holder
        decide(view, rows, own.id)  # a refused claim must not disturb the holder
        foreign = {row.holder for row in rows.values() if not row.closed and row.holder != own.id}
        for theirs in sorted(foreign):
            target.end(theirs)
        if foreign:
            target.unpin(topic, foreign)
        with target.mutex:
            view, rows = self._looked(claim, topic) if foreign else (view, self._overlaid(claim, topic, view))
            if target.holder is not own:
                raise _OvertakenError
            made = decide(view, rows, own.id)
            changed = {partition: row for partition, row in made.items() if rows.get(partition) != row}
            if not changed:
                return made
            facts = [
                ProgressRecord(partition_of(topic), progress_key(place, partition), msgspec.json.encode(row))
                for partition, row in sorted(changed.items())
            ]
            try:
                producer.commit(topic, (), facts)
            except CommitUncertainError:
                target.retire()  # what it holds is not known
                raise
            own.keep(place, made)
        self._not_removed(claim, topic)
        return made

    def _looked(self, claim: Claim, topic: str) -> tuple[View, dict[int, Row]]:
        """All about the topic, and the claim's rows, as they are now. Raises SinkFencedError if the feed is removed."""
        view = self._not_removed(claim, topic)
        with self._target.mutex:
            return view, self._overlaid(claim, topic, view)

    def _overlaid(self, claim: Claim, topic: str, view: View) -> dict[int, Row]:
        """The claim's rows as they were read; those that this process holds as it has written them since."""
        rows = _mine(view, claim, topic)
        for partition, held in self._target.holder.held(place_of(claim, topic), claim.start).items():
            read = rows.get(partition)
            if read is None or read.holder != held.holder:
                self._target.retire()  # another process has taken this one's id, and then the row
                raise _OvertakenError
            rows[partition] = held
        return rows

    def _not_removed(self, claim: Claim, topic: str) -> View:
        view, identity = self._target.ledger.read(topic), claim.identity
        removed = view.removed.get((identity.cluster_id, identity.feed_id))
        if removed is not None:
            raise fence.removed(identity, topic, show_ts(ts_of_ms(removed.at_ms)))
        return view


def check_held(claim: Claim, topic: str, ranges: Mapping[int, OffsetRange], rows: Rows) -> None:
    """Raise SinkError unless ``rows`` are the claim's, open, and where ``ranges`` begin."""
    for partition, span in ranges.items():
        row = rows.get(partition)
        is_mine = row is not None and row.fence_row.epoch == claim.epoch and not row.closed
        if not is_mine or row is None or row.next != span.expected:
            fence.check_advance(claim, topic, ranges, _known(rows))


def refuse_strangers(view: View, identity: FeedIdentity, topic: str, progress: str) -> None:
    """Raise SinkConflictError if another feed holds the topic open. ``progress``: the topic that has the rows."""
    mine = (identity.cluster_id, identity.feed_id)
    for place, rows in sorted(view.rows.items()):
        if place.target == topic and place[:2] != mine:
            row = next((row for row in rows.values() if not row.closed), None)
            if row is not None:
                theirs = FeedIdentity(place.cluster, place.feed_id, row.feed)
                rest = f"the records of feed_id {place.feed_id} in topic {progress} (write a null for each key)"
                raise fence.stranger(identity, topic, theirs, rest)


def _raised(claim: Claim, rows: Rows, holder: str | None, target_id: str | None) -> dict[int, Row]:
    """The claim's rows at its epoch: open and held, or closed without a holder."""
    raised = {}
    for partition, start in claim.start.items():
        old = rows.get(partition)
        is_new = old is None or old.incarnation < claim.incarnation
        is_closed = holder is None
        topic_id, known_id = (None, None) if old is None or is_new else (old.topic_id, old.target_id)
        raised[partition] = Row(
            epoch=(claim.epoch.owner_rev, claim.epoch.n),
            incarnation=claim.incarnation if old is None or is_new else old.incarnation,
            next=start if old is None or is_new else old.next,
            closed=is_closed,
            holder=holder or "",
            feed=claim.identity.feed,
            topic_id=topic_id if is_closed else claim.topic_id or topic_id,  # who closes reads nothing
            target_id=known_id or target_id,
        )
    return raised


def _mine(view: View, claim: Claim, topic: str) -> dict[int, Row]:
    rows = view.rows.get(place_of(claim, topic), {})
    return {partition: rows[partition] for partition in sorted(claim.start) if partition in rows}


def _known(rows: Rows) -> fence.Rows:
    return {partition: row.fence_row for partition, row in rows.items()}


def _positions(rows: Rows) -> Positions:
    return {partition: row.next for partition, row in rows.items()}
