"""What the driver tells a task about one batch, and what the task tells the driver: small values, pickled or JSON.

The driver knows, per span, the claim and the position at the sink, and that is where the task begins to read; the task
knows which rows came. The end of the log that the driver has heard of is only a hint: it may lie behind markers and
compaction gaps, where the sink's position never stands. A position is always "last offset seen + 1", so what is
expected is exactly what the sink has.

Python workers import this module for every batch's closure: it stays light.
"""

from collections.abc import Mapping

import msgspec

from headgate.agent.executor import SpanId
from headgate.changes.transactions import Tail
from headgate.records.control import Positions
from headgate.sinks.contract import Claim
from headgate.sources.reader import Reading

__all__ = ["BatchPlan", "Letterbox", "SpanResult", "SpanWork", "TaskPlan", "TaskResult"]


class Letterbox(msgspec.Struct, frozen=True):
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
    refuses is not set aside yet (see sinks.contract.Aside).

    ``source_table`` is the span's among several of its topic; None where the topic has one. Of such a span ``begin`` is
    up to where, beyond ``expected``, its partitions have been read and had nothing of it; with ``settle`` the sink's
    positions are to follow.
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

    def start(self, partition: int) -> int:
        """The first offset that is wanted."""
        return max(self.expected[partition], self.begin.get(partition, 0))


class BatchPlan(msgspec.Struct, frozen=True):
    """One batch of a lane: what may be written. ``waiting``: some of its spans cannot be written yet, but will be.

    ``spec`` is the feed's JSON; a worker opens decoder and sink from it once and keeps them. Without a ``letterbox`` a
    bad change ends its span's batch.
    """

    spec: str
    works: tuple[SpanWork, ...]
    letterbox: Letterbox | None = None
    waiting: bool = False


class TaskPlan(msgspec.Struct, frozen=True):
    """One batch as its tasks see it: ``readings[i]`` is what task ``i`` reads, at most ``rows_max`` rows of it.

    ``lane`` and ``source`` (librdkafka's properties) name the reader that a worker keeps for the lane. A warm lane has
    readings without works: their rows are dropped. ``shares``, where all workers share one file system, is a path: the
    task that first creates it with a share's number behind it has that share, so that a worker can keep to its own.
    """

    batch: BatchPlan
    lane: str
    source: Mapping[str, str]
    readings: tuple[tuple[Reading, ...], ...]
    rows_max: int
    shares: str | None = None


class SpanResult(msgspec.Struct, frozen=True):
    """What one task did for one span: positions after it, and an error (beside which a prefix may have been written).

    ``oldest_append_ms`` and ``visible_ms`` are wall clock, for the lag only. ``decode_cpu_us`` and ``apply_cpu_us`` are
    this thread's, so that the bench can say where the microseconds per row go. ``resolved`` is, per partition, the
    newest watermark all before which is at the sink. ``quarantined`` counts the changes below the positions that were
    set aside, ``wall_ms`` the time that decoding and applying took, waits at the sink included. ``tail``: the newest
    transaction that is applied up to some change; ``cut``: partitions whose next change is one after the feed's target.
    ``held`` are the partitions that ``error`` keeps from going on.
    Of a span whose topic carries others, ``read_to`` is up to where nothing of it has been left out, be it beyond the
    sink's positions; ``passed_over`` counts changes of tables that nobody named, ``passed_over_table`` is the last
    one's.
    """

    id: SpanId
    positions: Positions
    rows: int
    bytes: int
    oldest_append_ms: int | None
    newest_source_ms: int | None
    visible_ms: int
    error_code: str | None
    error: str | None
    retryable: bool
    decode_cpu_us: int
    apply_cpu_us: int
    resolved: dict[int, int] = {}
    quarantined: int = 0
    wall_ms: int = 0
    tail: Tail | None = None
    cut: tuple[int, ...] = ()
    read_to: Positions = {}
    passed_over: int = 0
    passed_over_table: str | None = None
    held: tuple[int, ...] = ()


class TaskResult(msgspec.Struct, frozen=True):
    """All of one task: per topic and partition the last offset that came + 1, and where the log's end was met.

    ``ahead`` is up to where the log goes, as far as the reader has heard, where that is further than what came; open
    transactions count.
    """

    seen: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]
    spans: tuple[SpanResult, ...]
    ahead: dict[str, dict[int, int]] = {}
