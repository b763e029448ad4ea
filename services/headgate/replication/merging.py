"""Merges one span's results of one batch, whose partitions may have been in several tasks.

What is adopted is the batch, not one task after the other: else a task that went well would hide another's error, or
take its place.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import SpanResult
from headgate.replication.plan import TaskResult


def merge_results(tasks: Iterable[TaskResult], now_ms: int) -> tuple[SpanResult, ...]:
    """One result per span, sorted by span. ``now_ms``: when the batch was over, by the broker's clock.

    Workers' clocks may differ from it and from each other, so of a task only the time between two moments counts.
    """
    by_span: dict[SpanId, list[SpanResult]] = {}
    for task in tasks:
        for result in task.spans:
            visible_ms = now_ms - max(0, task.ended_ms - result.visible_ms)
            by_span.setdefault(result.id, []).append(msgspec.structs.replace(result, visible_ms=visible_ms))
    return tuple(_merged(by_span[span]) for span in sorted(by_span))


def _merged(results: Sequence[SpanResult]) -> SpanResult:
    if len(results) == 1:
        return results[0]
    worst = _worst(results)
    return msgspec.structs.replace(
        results[0],
        positions=_highest(result.positions for result in results),
        rows=sum(result.rows for result in results),
        bytes=sum(result.bytes for result in results),
        oldest_append_ms=min((ms for r in results if (ms := r.oldest_append_ms) is not None), default=None),
        newest_source_ms=max((ms for r in results if (ms := r.newest_source_ms) is not None), default=None),
        visible_ms=max(result.visible_ms for result in results),
        error_code=worst.error_code,
        error=worst.error,
        retryable=worst.retryable,
        decode_cpu_us=sum(result.decode_cpu_us for result in results),
        apply_cpu_us=sum(result.apply_cpu_us for result in results),
        resolved=_highest(result.resolved for result in results),
        quarantined=sum(result.quarantined for result in results),
        wall_ms=max(result.wall_ms for result in results),
        tail=next((result.tail for result in reversed(results) if result.tail is not None), None),
        cut=tuple(sorted({partition for result in results for partition in result.cut})),
        passed_over=sum(result.passed_over for result in results),
        passed_over_table=next((r.passed_over_table for r in reversed(results) if r.passed_over_table), None),
        known_table=next((r.known_table for r in results if r.known_table is not None), None),
        is_silent=any(result.is_silent for result in results),
        lacking={column: told for result in results for column, told in result.lacking.items()},
        held=tuple(sorted({partition for result in results for partition in result.held})),
    )


def _worst(results: Sequence[SpanResult]) -> SpanResult:
    """The result whose error is reported: one that retrying does not help, or else that of the lowest partition."""
    failed = [result for result in results if result.error_code is not None]
    return min(failed, key=lambda result: (result.retryable, result.held), default=results[0])


def _highest(found: Iterable[dict[int, int]]) -> dict[int, int]:
    highest: dict[int, int] = {}
    for values in found:
        for partition, value in values.items():
            highest[partition] = max(value, highest.get(partition, value))
    return highest
