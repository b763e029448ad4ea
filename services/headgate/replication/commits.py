"""Commits on the driver what the tasks of a batch have staged, and makes their results true (docs/adr/0118).

A task's results describe what holds once the driver has committed what came with them. Only this module does that, or
reports of a span that it was not written. Code that reads results after it need not know where a sink commits.
"""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.config.crash_points import CrashPoint, reach
from headgate.formats.tables import show_table
from headgate.records.source_tables import SourceTable
from headgate.replication.bad_changes import SetAside
from headgate.replication.feed_parts import FeedIncarnation, FeedParts, server_of_feed
from headgate.replication.kept_parts import KeptParts
from headgate.replication.plan import BatchPlan, SpanWork, StagedSpan, TaskResult
from headgate.replication.quarantine import DeadLetterWriter
from headgate.replication.rows import ERROR_LENGTH_MAX
from headgate.replication.silent_sinks import SilentSinks
from headgate.replication.sink_failures import SinkFailure, failure_of
from headgate.sinks.contract import OffsetRange, SinkMovedError
from headgate.sinks.on_driver import Commit

__all__ = ["commit_staged"]

KEPT_SECONDS: Final = 60.0
"""A committer that was not used for so long is closed, as sessions in workers are (task_run.py)."""

kept = KeptParts(KEPT_SECONDS)
"""Committers of this process, the driver's."""

silent_sinks = SilentSinks()
"""What this process knows of sinks that it commits to: a batch of many tables finds out once that theirs is silent."""

_Results = dict[tuple[int, SpanId], SinkFailure]
"""(number of the task, span) → why what the task has staged of it was not committed."""


def commit_staged(plan: BatchPlan, results: list[TaskResult]) -> list[TaskResult]:
    """The results, once everything that was staged is committed, or refused: then its span's result has the error."""
    if not any(task.staged for task in results):
        return results
    kept.expire_in_background()
    feed = FeedIncarnation.of_claim(plan.works[0].claim, plan.spec)
    with kept.lent(feed) as parts:
        commits = _Commits(plan, parts, results)
        for work in sorted(plan.works, key=lambda work: work.id):
            commits.commit(work)
        return commits.results()


class _Commits:
    """The commits of one batch, a table after the other."""

    def __init__(self, plan: BatchPlan, parts: FeedParts, tasks: Sequence[TaskResult]) -> None:
        self._plan = plan
        self._parts = parts
        self._tasks = tasks
        self._works = {work.id: work for work in plan.works}
        self._failures: _Results = {}
        self._spent_ns: dict[SpanId, tuple[int, int]] = {}
        """CPU time of this thread, and time on the clock."""

    def commit(self, work: SpanWork) -> None:
        """All that tasks have staged of one span."""
        staged = [(number, each) for number, task in enumerate(self._tasks) for each in task.staged]
        mine = [(number, each) for number, each in staged if each.id == work.id]
        if not mine:
            return
        met = next((each.source_table for _, each in mine if each.source_table is not None), None)
        strange = {number: each.source_table for number, each in mine if each.source_table not in (None, met)}
        for number, theirs in strange.items():
            self._failures[number, work.id] = failure_of(
                _two_tables(work, met, theirs), work.topic, alters_tables=False
            )
        taken = {number for number, _ in mine} - strange.keys()
        cpu, wall = time.thread_time_ns(), time.monotonic_ns()
        failure = self._committed(work, [each for number, each in mine if number in taken], met)
        self._spent_ns[work.id] = time.thread_time_ns() - cpu, time.monotonic_ns() - wall
        if failure is not None:
            self._failures |= {(number, work.id): failure for number in taken}

    def _committed(self, work: SpanWork, staged: Sequence[StagedSpan], met: SourceTable | None) -> SinkFailure | None:
        """Why it could not be; None if it is."""
        parts = self._parts.of_table(work.topic, work.source_table)
        aside = [each for part in staged for each in part.set_aside]
        try:
            reach(CrashPoint.BEFORE_COMMIT)
            with silent_sinks.asked(server_of_feed(self._plan.spec)):
                parts.committer().commit(
                    Commit(
                        claim=work.claim,
                        ranges=_joined(staged),
                        payloads=[part.payload for part in staged],
                        source_table=met,
                        keep=(lambda: self._keep(work, aside)) if aside else None,
                    )
                )
            reach(CrashPoint.COMMITTED)
        except Exception as error:  # noqa: BLE001 (an internal error with one table must not stop its neighbours)
            failure = failure_of(error, work.topic, alters_tables=self._parts.evolves_tables)
            if failure.spoils_session:
                parts.drop_writer()
            return failure
        return None

    def _keep(self, work: SpanWork, aside: Sequence[SetAside]) -> None:
        """Return once all are safely on the deadletter topic. Raises QuarantineUnavailableError."""
        assert self._plan.dead_letters is not None  # noqa: S101 - without them tasks set nothing aside
        writer = DeadLetterWriter(self._plan.dead_letters)
        for table in sorted({each.table for each in aside}):
            mine = [each for each in aside if each.table == table]
            writer.keep(work, [each.bad for each in mine], [each.original for each in mine], table)

    def results(self) -> list[TaskResult]:
        """Of each task, what is true now."""
        return [self._settled(number, task) for number, task in enumerate(self._tasks)]

    def _settled(self, number: int, task: TaskResult) -> TaskResult:
        staged = {each.id for each in task.staged}
        spans = tuple(self._true(number, task, result) if result.id in staged else result for result in task.spans)
        return msgspec.structs.replace(task, spans=spans, staged=())

    def _true(self, number: int, task: TaskResult, result: SpanResult) -> SpanResult:
        cpu_ns, wall_ns = self._spent_ns[result.id]
        result = msgspec.structs.replace(
            result,
            visible_ms=task.ended_ms,
            apply_cpu_us=result.apply_cpu_us + cpu_ns // 1000,
            wall_ms=result.wall_ms + wall_ns // 1_000_000,
        )
        failure = self._failures.get((number, result.id))
        if failure is None:
            return result
        held = {partition for each in task.staged if each.id == result.id for partition in each.ranges}
        return msgspec.structs.replace(
            result,
            positions={},
            rows=0,
            bytes=0,
            error_code=failure.code,
            error=failure.text[:ERROR_LENGTH_MAX],
            retryable=failure.retryable,
            resolved={},
            quarantined=0,
            tail=None,
            cut=(),
            held=tuple(sorted(held)),
            known_table=self._works[result.id].known_table,
            is_silent=failure.is_silent,
            lacking=failure.lacking,
        )


def _joined(staged: Sequence[StagedSpan]) -> dict[int, OffsetRange]:
    """From where the first part of each partition begins up to where the last one ends."""
    joined: dict[int, OffsetRange] = {}
    for part in staged:
        for partition, span in part.ranges.items():
            first = joined.get(partition, span)
            joined[partition] = OffsetRange(first.expected, span.next)
    return joined


def _two_tables(work: SpanWork, met: SourceTable | None, theirs: SourceTable | None) -> SinkMovedError:
    """Tasks that knew no table of the topic have met different ones: the second is read again, knowing the first."""
    named = [show_table(table) for table in (met, theirs) if table is not None]
    return SinkMovedError(
        f"{work.claim.table}: topic {work.topic} carries changes of {' and of '.join(named)}, in different partitions. "
        "The batch is read again"
    )
