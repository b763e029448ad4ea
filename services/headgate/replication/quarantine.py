"""Writes bad changes to the deadletter topic, as they were, before any position moves past them.

What is set aside is what the lane's query brought: bytes and headers are exact.

The record is written in its newest schema, whatever the log's level: only ``headgate deadletter`` reads it.

Lives in the process that applies the batch. A crash between the acknowledgement and the sink's commit leaves the record
twice, under one key.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import LogError
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.sharding import DEADLETTER, place, shard_of
from headgate.eventlog.writers import KafkaWriter
from headgate.records.base import Fact
from headgate.records.control import ChangeQuarantined, Header
from headgate.records.fitting import fitted
from headgate.records.keys import DeadLetterKey
from headgate.replication.bad_changes import BadChange, Original
from headgate.replication.plan import DeadLetterTarget, SpanWork
from headgate.sinks.contract import QuarantineUnavailableError

WRITE_SECONDS_MAX: Final = 10.0
"""For the broker to acknowledge: the sink's rows are locked in the meantime, so it must not be long."""


class DeadLetterWriter:
    """A way to one cluster's deadletter topic; connections are made when first needed. Not for more than one thread."""

    def __init__(self, dead_letters: DeadLetterTarget) -> None:
        self._dead_letters = dead_letters
        self._connection = KafkaConnection(dead_letters.bootstrap, dict(dead_letters.kafka))
        self._codec = Codec(schemas())

    def keep(
        self, work: SpanWork, bad: Sequence[BadChange], originals: Sequence[Original], table: str | None = None
    ) -> None:
        """Return once all of ``bad`` are acknowledged on the deadletter topic. Raises QuarantineUnavailableError.

        ``originals`` is what each came as. ``table``: under whose name, if not the span's.
        """
        box, claim = self._dead_letters, work.claim
        shard = shard_of(claim.identity.feed, box.shards)
        try:
            facts = [
                _fact(work, table or work.claim.table, each, original)
                for each, original in zip(bad, originals, strict=True)
            ]
            name = f"{DEADLETTER}/{claim.identity.feed}/{claim.table}"
            # A log writer each time: bad changes are rare, and an idle producer in every worker would stay permanently.
            with closing(KafkaWriter(self._connection, box.cluster, self._codec, lambda _: None, name)) as log_writer:
                log_writer.write([place(fact, shard) for fact in facts], WRITE_SECONDS_MAX)
        except LogError as error:
            first = min(bad, key=lambda each: (each.partition, each.offset))
            raise QuarantineUnavailableError(
                f"{claim.table}: {len(bad)} bad changes, the first at topic {work.topic}, partition {first.partition}, "
                f"offset {first.offset}, cannot be set aside: {error}"
            ) from error


def _fact(work: SpanWork, table: str, bad: BadChange, original: Original) -> Fact:
    claim = work.claim
    key = DeadLetterKey(claim.identity.feed, table, work.topic, bad.partition, bad.offset)
    value = ChangeQuarantined(
        feed_id=claim.identity.feed_id,
        incarnation=claim.incarnation,
        epoch=claim.epoch,
        error_code=bad.code,
        error=bad.reason,
        key=original.key,
        value=original.value,
        headers=tuple(Header(name, content) for name, content in original.headers),
        append_ms=original.append_ms,
        quarantined_ms=wall_ms(),
        topic_id=work.topic_id,
    )
    return Fact(key, fitted(value))
