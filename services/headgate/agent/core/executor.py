"""TableExecutor: the agent's contract with its data plane, whatever moves the rows.

The agent's service asks, the data plane answers at once and works in the background. No call blocks on Kafka, Spark
or the sink. The rule of the seed: two calls in a row of ``all_spans`` agree, whatever happens in the background,
unless an add, a remove (with close and forget, which belong to it) or an ``is_…_finished`` lies between; and every span
it names has a ``status``, whose positions are the checkpoint. A span is a table or a part of one: two parts of a table
are strangers to each other. Every executor passes tests/support/executor_contract.py.
"""

from typing import Protocol

import msgspec

from headgate.records.control import Epoch, Positions, SpanPlan, TaskState


class SpanId(msgspec.Struct, frozen=True, order=True):
    """A span of a feed."""

    feed: str
    span: str


class CopyOrder(msgspec.Struct, frozen=True):
    """Rows to be copied from the source after the claim and before the first batch (docs/adr/0110).

    ``rows`` is the text of request ``request`` (records/row_copies.py).
    """

    request: str
    rows: str


class SpanTask(msgspec.Struct, frozen=True):
    """All a data plane needs to run a span under one role. ``spec`` is the feed's JSON as accepted."""

    id: SpanId
    feed_id: str
    incarnation: int
    epoch: Epoch
    plan: SpanPlan
    spec: str
    copy: CopyOrder | None = None


class MaintenanceReport(msgspec.Struct, frozen=True):
    """How the latest maintenance of the sink's table ended: what was done, or why it failed.

    ``request``: what asked for it; None if it was due. ``number`` counts those of this run of the span.
    """

    request: str | None
    text: str
    has_failed: bool
    number: int


class TaskStatus(msgspec.Struct, frozen=True):
    """The status of a task: state, epoch, what is applied and, when failed, why.

    ``resolved_ts`` is claimed from evidence in the log only.
    ``positions`` are the sink's (next offsets); ``rows`` and ``bytes`` count since the claim; ``lag_ms``,
    ``passed_over`` and ``passed_over_table`` are as in SpanProgressed.
    """

    id: SpanId
    feed_id: str
    epoch: Epoch
    state: TaskState
    positions: Positions
    seen_ts: int | None
    rows: int
    bytes: int
    lag_ms: int
    error_code: str | None
    error: str | None
    retryable: bool
    resolved_ts: int | None = None
    passed_over: int = 0
    passed_over_table: str | None = None
    maintained: MaintenanceReport | None = None

    @property
    def has_claimed(self) -> bool:
        """Whether it knows how far the sink is, and so its lag: before its claim it has nothing to report."""
        return bool(self.positions) and self.state not in {TaskState.PREPARING, TaskState.PREPARED}


class TableExecutor(Protocol):
    """Runs spans. A span has at most one task; states go preparing → prepared → replicating → stopping → stopped."""

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        """Prepare the span, or replicate it (claim first). Idempotent per (epoch, prepare); True if already done.

        A task of a higher epoch takes over the warm parts of the present one; a lower epoch is refused (ValueError).
        """
        ...

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        """Whether the span is prepared (or further), respectively replicating."""
        ...

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:
        """Stop at a batch border; with ``seal`` close the epoch at the sink. True if there is nothing left to stop.

        Without ``seal`` a seal that was asked for before is not tried any more.
        """
        ...

    def close_table(self, task: SpanTask) -> bool:
        """Seal a span whose writer is lost, without running it. True if already done."""
        ...

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        """Final positions once the span is fully stopped, else None."""
        ...

    def drop_copy(self, request: str) -> None:
        """Copy no more rows for a request that was deleted. Whatever names it continues without it."""
        ...

    def maintain_table(self, span: SpanId, request: str) -> None:
        """Maintain the sink's table between two batches, once for ``request``, if the span is written here."""
        ...

    def forget_table(self, span: SpanId) -> None:
        """Release a stopped or failed task's last traces, after its last status was acknowledged by the log."""
        ...

    def all_spans(self) -> tuple[SpanId, ...]:
        """Every span being run, added or removed, sorted."""
        ...

    def status(self, span: SpanId) -> TaskStatus | None:
        """The status of the span's task; None if it does not exist."""
        ...

    def kill(self) -> None:
        """EndSession: stop every writer now, without sealing or waiting (the session is lost)."""
        ...
