"""What the driver tells a task about one batch, and what the task tells the driver: small values, pickled or JSON.

The driver knows, per span, the claim and the position at the sink; the task knows which rows came. Neither computes
with the end of Spark's offset range: that end may lie behind markers and compaction gaps, where the sink's position
never stands. A position is always "last offset seen + 1", so what is expected is exactly what the sink has.

Python workers import this module for every batch's closure: it stays light.
"""

import msgspec

from headgate.agent.executor import SpanId
from headgate.records.control import Positions
from headgate.sinks.contract import Claim

__all__ = ["BatchPlan", "SpanResult", "SpanWork", "TaskResult"]


class SpanWork(msgspec.Struct, frozen=True):
    """One span in one batch: write under ``claim`` from ``expected`` (the sink's next offsets) on."""

    id: SpanId
    topic: str
    claim: Claim
    expected: Positions


class BatchPlan(msgspec.Struct, frozen=True):
    """One batch of a lane. Rows of topics without work are read along: counted in ``seen`` and dropped.

    ``spec`` is the feed's JSON; a worker opens decoder and sink from it once and keeps them.
    """

    spec: str
    works: tuple[SpanWork, ...]


class SpanResult(msgspec.Struct, frozen=True):
    """What one task did for one span: positions after it, and an error (beside which a prefix may have been written).

    ``oldest_append_ms`` and ``visible_ms`` are wall clock, for the lag only. ``decode_cpu_us`` and ``apply_cpu_us`` are
    this thread's, so that the bench can say where the microseconds per row go. ``resolved`` is, per partition, the
    newest watermark all before which is at the sink.
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


class TaskResult(msgspec.Struct, frozen=True):
    """All of one task: per topic and partition the last offset seen + 1, written or not, and one result per span."""

    seen: dict[str, dict[int, int]]
    spans: tuple[SpanResult, ...]
