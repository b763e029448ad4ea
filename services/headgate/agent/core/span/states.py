"""The state of a span's run as a value, with derived properties. Only machine.py creates new ones."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from headgate.agent.core.executor import MaintenanceReport, SpanId, SpanTask, TaskStatus
from headgate.agent.core.span.failures import FAILURES_MAX, Failures
from headgate.agent.core.span.progress import SpanProgress
from headgate.records.control import Positions, TaskState
from headgate.records.error_codes import COPYING, COPYING_HELD, MAINTAINING
from headgate.records.row_copies import is_by_ranges
from headgate.records.ts import physical_ms, ts_of_ms

__all__ = ["ENDING", "OVER", "Span", "Stop", "TaskPhase"]

REST_SECONDS: Final = 10.0
"""A table of a topic that carries several moves its position at the sink with its rows. Without any it costs a
transaction for nothing, so it waits; the next agent of the table reads that much of the topic again."""


CATCH_UP_SECONDS_MIN: Final = 2.0
CATCH_UP_SECONDS_MAX: Final = 30.0
"""How long the log is applied between two turns of copying a whole table: a lane must have been asked for what there
is, and a table that never catches up gets half of the time (TURN_SECONDS, replication/row_copy.py)."""


BEGINNING: Final = "the copy is about to begin or continue"
"""Shown until how far the copy is has been read at the sink."""


class TaskPhase(StrEnum):
    """Where a span is in its life; the calls and batches that are under way are those named here, and no others."""

    ABSENT = "absent"
    """There is none."""
    OPENING = "opening"
    """On no lane; source and sink are being looked at, and claimed if it must be written."""
    WAITING = "waiting"
    """Open, on no lane yet."""
    READING = "reading"
    """On a lane, not claimed: warm, or about to be."""
    CLAIMING = "claiming"
    """As reading, and the claim is under way."""
    CLAIMED = "claimed"
    """On a lane, between two batches that write it."""
    WRITING = "writing"
    """Tasks of its lane's batch may be writing it."""
    SETTLING = "settling"
    """Its position at the sink is being moved, which no batch does in the meantime. Without lane, if that is gone."""
    RETRYING = "retrying"
    """On no lane; it failed, or its lane did, and it is opened again in a while."""
    DRAINING = "draining"
    """To be ended once its batch is over."""
    RECALLED = "recalled"
    """To be ended once the call under way is answered."""
    SEALING = "sealing"
    """Its epoch is being closed at the sink."""
    RESEALING = "resealing"
    """Closing it failed, and is retried after a while."""
    STOPPED = "stopped"
    """Over under this epoch."""
    FAILED = "failed"
    """Over under this epoch; the error contains the reason."""


class Stop(StrEnum):
    """How a span is to end."""

    NOT = ""
    PLAIN = "plain"
    SEAL = "seal"


ENDING: Final = frozenset({TaskPhase.DRAINING, TaskPhase.RECALLED, TaskPhase.SEALING, TaskPhase.RESEALING})

OVER: Final = frozenset({TaskPhase.STOPPED, TaskPhase.FAILED})
"""Nothing is running and nothing will be, under this epoch."""


class Span(msgspec.Struct, frozen=True):
    """One run of one span under one role.

    ``life`` distinguishes it from other runs of the span. ``primary``: writing is wanted. ``claimed``: the sink was
    claimed under the task's epoch. ``served`` is how far it has come to the owner's eye (preparing, prepared,
    replicating): a failure that is retried does not take that back. ``lane`` is the name of its lane. ``since`` is
    when it came to its phase, ``retry_at`` when it is retried, ``alone_until`` how long it shares no lane, being
    slow (monotonic seconds). ``losses``: how often in a row its lane was lost under it, nothing of it applied between.
    ``error``: code, text, whether trying again may help. ``target_ts`` is where the feed ends, if it does;
    ``commit_interval_seconds`` how long the sink's next commit is held back.
    ``lacking``: columns that the sink's table lacked for its last batch (see SpanResult), until it is opened again;
    ``advice`` what a user should do about them, as it was when the span was opened.
    ``copying``: how far the whole table is copied, in words, while rows are left; the latest were copied at
    ``copied_at`` (monotonic seconds). ``is_maintained``: the call under way maintains the sink's table. ``maintain_at``
    is when that is due, in monotonic seconds, if it is scheduled; ``maintain_for`` the request that asks for it;
    ``maintained`` how the latest one ended.
    """

    task: SpanTask
    life: int
    primary: bool
    phase: TaskPhase
    since: float
    target_ts: int | None = None
    commit_interval_seconds: float = 0.0
    served: TaskState = TaskState.PREPARING
    claimed: bool = False
    stop: Stop = Stop.NOT
    lane: str | None = None
    retry_at: float | None = None
    alone_until: float = 0.0
    losses: int = 0
    failures: Failures = {}
    failures_max: int = FAILURES_MAX
    error: tuple[str, str, bool] | None = None
    lacking: Mapping[str, str] = {}
    advice: str = ""
    progress: SpanProgress = SpanProgress()
    copying: str | None = None
    copied_at: float = 0.0
    is_maintained: bool = False
    maintain_at: float | None = None
    maintain_for: str | None = None
    maintained: MaintenanceReport | None = None

    @property
    def id(self) -> SpanId:
        """Its name."""
        return self.task.id

    @property
    def positions(self) -> Positions:
        """The sink's."""
        return self.progress.positions

    @property
    def state(self) -> TaskState:
        """The state that is reported to the owner for its phase."""
        if self.phase in OVER:
            return TaskState(self.phase.value)
        return TaskState.STOPPING if self.phase in ENDING else self.served

    @property
    def is_warm(self) -> bool:
        """A task of a higher epoch can take over what it has."""
        return self.served is TaskState.PREPARED and self.phase in _WARM

    @property
    def writable(self) -> bool:
        """May be part of the next batch of its lane."""
        return self.phase is TaskPhase.CLAIMED and not self.is_at_target

    @property
    def awaited(self) -> Positions:
        """Positions of the partitions of which more is wanted: all, but for those that have reached the target."""
        ended = self._ended()
        return {p: position for p, position in self.positions.items() if p not in ended} if ended else self.positions

    @property
    def readable(self) -> Positions:
        """Positions of the partitions that may be read now: those awaited, but for streams that wait for others."""
        limits = self.progress.limits
        if not limits:
            return self.awaited
        reached = self.progress.reached
        return {p: position for p, position in self.awaited.items() if p not in limits or reached(p) < limits[p]}

    @property
    def is_at_target(self) -> bool:
        """Nothing more of it is wanted; it waits for the rest of the feed."""
        ended = self._ended()
        return bool(ended) and ended.issuperset(self.positions)

    def _ended(self) -> frozenset[int]:
        cut, target_ts = self.progress.cut, self.target_ts
        if target_ts is None or not self.progress.resolved:
            return cut
        return cut | {partition for partition, ts in self.progress.resolved.items() if ts >= target_ts}

    def reached(self, partition: int) -> int:
        """The first offset that may have something of it that is not at the sink."""
        return self.progress.reached(partition)

    def owes(self, now: float) -> bool:
        """Whether it is time for the sink's positions to follow what has been read, though there was nothing of it."""
        rests_since = self.progress.rests_since
        rests = rests_since is not None and now - rests_since >= REST_SECONDS
        return self.writable and (rests or self._owes_an_end())

    def owes_rows(self, now: float, *, has_caught_up: bool) -> bool:
        """Whether more rows of the whole table can be copied: the log is applied, or has had its time."""
        if self.copying is None or not self.writable or self.served is not TaskState.REPLICATING:
            return False
        return now - self.copied_at >= (CATCH_UP_SECONDS_MIN if has_caught_up else CATCH_UP_SECONDS_MAX)

    def owes_maintenance(self, now: float) -> bool:
        """Whether the sink's table must be maintained now, by a request or because it is due."""
        if not self.writable or self.copying is not None or self.served is not TaskState.REPLICATING:
            return False
        return self.maintain_for is not None or (self.maintain_at is not None and now >= self.maintain_at)

    def _owes_an_end(self) -> bool:
        """A stream has been read to its end, which the sink does not show: others may wait for it."""
        progress = self.progress
        return any(progress.positions[p] < limit <= progress.reached(p) for p, limit in progress.limits.items())

    @property
    def batch_lag_ms(self) -> int:
        """By how much the last batch was late: its lag without the sink's commit interval."""
        return max(0, self.progress.lag_ms - round(self.commit_interval_seconds * 1000))

    def is_awaited(self, now_ms: int) -> bool:
        """Whether something waits for its next changes to be at the sink.

        That is the feed's end, if it is due; the rest of its copy; another stream of its change log.
        """
        is_due = self.target_ts is not None and physical_ms(self.target_ts) <= now_ms and not self.is_at_target
        limits = self.progress.limits
        is_ending = any(
            self.reached(partition) < limits[partition] for partition in self.positions if partition in limits
        )
        return is_due or is_ending or self.copying is not None

    def lag_ms(self, now_ms: int, now: float, *, lane_is_idle: bool = False) -> int:
        """The age of the oldest change that a batch has, or has failed to apply, as far as it is known.

        Without a change that failed it is at least ``batch_lag_ms``, or 0 while the lane finds nothing to read. Behind
        one that failed, that of an earlier batch does not count: it may be the age of a snapshot.
        ``now_ms``: by the clock of the change's append time, the broker's. ``now``: in monotonic seconds.
        """
        progress = self.progress
        if progress.unapplied_ms is not None:
            lags = [max(0, now_ms - progress.unapplied_ms)]
        else:
            lags = [0 if lane_is_idle else self.batch_lag_ms]
        if progress.waits_since is not None:
            lags.append(round((now - progress.waits_since) * 1000))
        return max(lags)

    def status(
        self, now_ms: int, now: float, *, lane_is_idle: bool = False, slowness: tuple[str, str] | None = None
    ) -> TaskStatus:
        """The status of the task; see ``lag_ms`` for the first three arguments.

        ``slowness``: code and text of why it waits or is slow, reported as an error unless it has one of its own.
        """
        slow = None if slowness is None else (*slowness, True)
        code, text, retryable = self.error or self._own_work() or slow or (None, None, False)
        copying = self._copying_text()
        if copying is not None:
            # The owner takes a word without this for the end of the copy, whatever else is the matter.
            text = copying if code is None else f"{copying}; {code}: {text}"
            code, retryable = COPYING if code is None else COPYING_HELD, True
        progress = self.progress
        return TaskStatus(
            id=self.id,
            feed_id=self.task.feed_id,
            epoch=self.task.epoch,
            state=self.state,
            positions=dict(progress.positions),
            seen_ts=None if progress.seen_ms is None else ts_of_ms(progress.seen_ms),
            rows=progress.rows,
            bytes=progress.bytes,
            lag_ms=self.lag_ms(now_ms, now, lane_is_idle=lane_is_idle),
            error_code=code,
            error=text,
            retryable=retryable,
            resolved_ts=self._resolved_ts(),
            passed_over=progress.passed_over,
            passed_over_table=progress.passed_over_table,
            maintained=self.maintained,
        )

    def _copying_text(self) -> str | None:
        """How far the copy of the whole table is, also before the call that begins it has an answer."""
        order = self.task.copy
        if self.phase in OVER or order is None:
            return None
        if self.copying is None and self.primary and self.served is not TaskState.REPLICATING:
            return BEGINNING if is_by_ranges(order.rows) else None
        return self.copying

    def _own_work(self) -> tuple[str, str, bool] | None:
        """Code and text of what it does between two batches, for which its sink may seem silent."""
        if not self.is_maintained or self.phase is not TaskPhase.OPENING:
            return None
        return MAINTAINING, f"the files of {self.task.plan.table} are being compacted, and old ones removed", True

    def _resolved_ts(self) -> int | None:
        """Least over the partitions, once each has one."""
        resolved = self.progress.resolved
        return min(resolved.values()) if resolved and resolved.keys() == self.task.plan.start.keys() else None


_WARM: Final = frozenset(
    {TaskPhase.OPENING, TaskPhase.WAITING, TaskPhase.READING, TaskPhase.CLAIMING, TaskPhase.RETRYING}
)
