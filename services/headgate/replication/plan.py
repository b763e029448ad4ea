"""Messages between driver and tasks about one batch, as MessagePack.

The driver knows, per span, the claim and the position at the sink, and from where to where the batch goes; the task
knows which rows came. The end of a batch may lie behind markers and compaction gaps, where there is nothing to write:
the sink's position is "last offset seen + 1", and what lies between is the driver's to remember (SpanProgress).

Python workers import this module for every batch's closure: it stays light.
"""

from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.records.control import Positions
from headgate.records.source_tables import SourceTable
from headgate.replication.bad_changes import SetAside
from headgate.sinks.contract import Claim, OffsetRange

__all__ = ["HEAD_ROWS_MIN", "BatchPlan", "DeadLetterTarget", "SpanWork", "StagedSpan", "TaskResult"]

HEAD_ROWS_MIN: Final = 1_000
"""So many rows of a topic in a batch save more without their head (3 µs each) than the longer query costs (5 ms)."""


class DeadLetterTarget(msgspec.Struct, frozen=True):
    """Where changes are set aside: a cluster's deadletter topic, and the Kafka that it and the source are on.

    ``kafka`` are client properties by librdkafka's names. Hashable: workers keep one connection for each.
    """

    bootstrap: str
    cluster: str
    shards: int
    kafka: tuple[tuple[str, str], ...] = ()


class SpanWork(msgspec.Struct, frozen=True):
    """One span in one batch: write under ``claim`` from ``expected`` (the sink's next offsets) on.

    ``quarantine_left`` is how many changes may still be set aside. With ``patient``, one that only a rule between rows
    refuses is not set aside yet (see sinks.contract.Quarantine).

    ``begin`` is up to where, beyond ``expected``, its partitions have been read and had nothing of it. ``source_table``
    is the span's among several of its topic; None where the topic has one. With ``settle`` the sink's positions of such
    a span are to follow, be there rows of it or not. ``known_table`` is the table, by its name at the source, that the
    topic's events are known to be of (formats/tables.py). ``limits``: from which offset on a partition of a change log
    may not be applied yet, where there is one. ``topic_id`` is Kafka's id of the topic, None if the broker has no ids.
    ``only``: (partition, offset) of the records that may be set aside, None for any.
    """

    id: SpanId
    topic: str
    claim: Claim
    expected: Positions
    quarantine_left: int = 0
    patient: bool = True
    source_table: str | None = None
    begin: Positions = {}
    settle: bool = False
    known_table: SourceTable | None = None
    limits: Positions = {}
    topic_id: str | None = None
    only: frozenset[tuple[int, int]] | None = None

    def sets_aside(self, partition: int, offset: int) -> bool:
        """Whether that record may be set aside, if the feed has a deadletter topic."""
        return self.only is None or (partition, offset) in self.only

    def start(self, partition: int) -> int:
        """The first offset that is wanted."""
        return max(self.expected[partition], self.begin.get(partition, 0))


class BatchPlan(msgspec.Struct, frozen=True):
    """One batch of a lane: the spans that have rows in it and may be written. All other rows are dropped.

    ``spec`` is the feed's JSON; a worker opens decoder and sink from it once, and keeps them. Without ``dead_letters``
    a bad change ends its span's batch. ``heads``: (topic, what is cut off its values on the way), see heads.py.
    """

    spec: str
    works: tuple[SpanWork, ...]
    dead_letters: DeadLetterTarget | None = None
    heads: tuple[tuple[str, bytes], ...] = ()


class StagedSpan(msgspec.Struct, frozen=True):
    """A part of a span's batch that the driver is to commit, in the order of the log (sinks/on_driver.py).

    ``payload`` is the stager's. ``set_aside`` are bad changes that must be kept before the commit.
    """

    id: SpanId
    ranges: dict[int, OffsetRange]
    payload: bytes
    source_table: SourceTable | None = None
    set_aside: tuple[SetAside, ...] = ()


class TaskResult(msgspec.Struct, frozen=True):
    """All of one task: per topic and partition the last offset that came + 1, written or not; a result per span.

    ``heads``: what values came with and need not, by topic (heads.py). ``ended_ms``: when the task was over, by the
    clock that its spans' ``visible_ms`` are by, which is the worker's. ``staged``: what the driver must commit before
    its spans' results are true (commits.py).
    """

    seen: dict[str, dict[int, int]]
    spans: tuple[SpanResult, ...]
    heads: dict[str, bytes] = {}
    ended_ms: int = 0
    staged: tuple[StagedSpan, ...] = ()
