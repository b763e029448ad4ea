"""What every TableExecutor must do (agent/core/executor.py), whatever moves its rows: run against each we have."""

from collections.abc import Callable
from typing import Protocol

import pytest

from headgate.agent.core.executor import SpanId, SpanTask, TableExecutor
from headgate.records.control import TaskState
from headgate.records.spans import table_of

__all__ = ["ExecutorBench", "ExecutorContract"]

PARTS = ("t~0", "t~1")


class ExecutorBench(Protocol):
    """An executor over a table ``t`` of two partitions, and a table ``u`` of one, that have changes to apply."""

    executor: TableExecutor

    def task(self, span: str, n: int) -> SpanTask:
        """The task of a span under the n-th epoch."""
        ...

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Let the executor work until ``fact``; fails with ``what``."""
        ...


class ExecutorContract:
    """Subclass it with a fixture ``bench``."""

    def test_what_was_never_added_is_nowhere(self, bench: ExecutorBench) -> None:
        executor, span = bench.executor, bench.task("t", 1).id
        assert executor.all_spans() == ()
        assert executor.status(span) is None
        assert not executor.is_add_table_finished(span, prepare=True)
        assert not executor.is_add_table_finished(span, prepare=False)
        assert executor.is_remove_table_finished(span) is None
        assert executor.remove_table(span, seal=True)
        executor.drop_copy("nobody's")
        executor.maintain_table(span, "nobody's")
        assert executor.status(span) is None
        executor.forget_table(span)

    def test_a_table_is_prepared_then_replicated_then_removed(self, bench: ExecutorBench) -> None:
        executor, warm, mine = bench.executor, bench.task("t", 1), bench.task("t", 2)
        executor.add_table(warm, prepare=True)
        bench.until(lambda: executor.is_add_table_finished(warm.id, prepare=True), "prepared")
        assert not executor.is_add_table_finished(warm.id, prepare=False)
        assert _state(executor, warm.id) is TaskState.PREPARED
        assert executor.is_remove_table_finished(warm.id) is None

        executor.add_table(mine, prepare=False)
        bench.until(lambda: executor.is_add_table_finished(mine.id, prepare=False), "replicating")
        assert executor.is_add_table_finished(mine.id, prepare=True)
        assert executor.add_table(mine, prepare=False), "what is done is done"
        status = executor.status(mine.id)
        assert status is not None
        assert (status.epoch, sorted(status.positions)) == (mine.epoch, [0, 1])
        with pytest.raises(ValueError, match="below"):
            executor.add_table(warm, prepare=False)

        executor.remove_table(mine.id, seal=True)
        bench.until(lambda: executor.is_remove_table_finished(mine.id) is not None, "stopped")
        stopped = executor.status(mine.id)
        assert stopped is not None
        assert (stopped.state, stopped.epoch) == (TaskState.STOPPED, mine.epoch)
        assert executor.is_remove_table_finished(mine.id) == stopped.positions
        assert executor.remove_table(mine.id, seal=True), "nothing is left to stop"
        assert not executor.is_add_table_finished(mine.id, prepare=True)
        executor.forget_table(mine.id)
        assert executor.all_spans() == ()

    def test_two_looks_agree_whatever_goes_on_between_them(self, bench: ExecutorBench) -> None:
        """All spans that run, come or go are named, until they are forgotten; and each has a status."""
        executor, tasks = bench.executor, [bench.task(span, 3) for span in (*PARTS, "u")]
        for count, task in enumerate(tasks, 1):
            executor.add_table(task, prepare=False)
            assert len(executor.all_spans()) == count
        self._watch(bench, TaskState.REPLICATING)
        for task in tasks:
            executor.remove_table(task.id, seal=True)
        self._watch(bench, TaskState.STOPPED)
        for count, task in enumerate(tasks, 1):
            executor.forget_table(task.id)
            assert len(executor.all_spans()) == len(tasks) - count

    def _watch(self, bench: ExecutorBench, state: TaskState) -> None:
        executor = bench.executor
        named = executor.all_spans()

        def look() -> bool:
            assert executor.all_spans() == named
            statuses = [executor.status(span) for span in named]
            assert [status.id for status in statuses if status is not None] == list(named)
            return all(status is not None and status.state is state for status in statuses)

        bench.until(look, f"every span is {state}")
        assert executor.all_spans() == named

    def test_parts_of_a_table_are_strangers(self, bench: ExecutorBench) -> None:
        executor, (one, other) = bench.executor, [bench.task(span, n) for n, span in enumerate(PARTS, 4)]
        assert table_of(one.id.span) == table_of(other.id.span)
        for task in (one, other):
            executor.add_table(task, prepare=False)
        bench.until(lambda: all(_written(executor, task) for task in (one, other)), "both parts are written")
        executor.remove_table(one.id, seal=True)
        bench.until(lambda: executor.is_remove_table_finished(one.id) is not None, "one part stopped")
        assert sorted(executor.is_remove_table_finished(one.id) or {}) == [0]
        assert _state(executor, other.id) is TaskState.REPLICATING
        executor.forget_table(one.id)
        assert executor.all_spans() == (other.id,)

    def test_a_span_whose_writer_is_lost_is_closed_without_being_run(self, bench: ExecutorBench) -> None:
        executor, task = bench.executor, bench.task("u", 6)
        executor.close_table(task)
        bench.until(lambda: executor.is_remove_table_finished(task.id) is not None, "sealed")
        assert executor.close_table(task), "what is done is done"
        status = executor.status(task.id)
        assert status is not None
        assert (status.state, status.epoch, sorted(status.positions)) == (TaskState.STOPPED, task.epoch, [0])


def _state(executor: TableExecutor, span: SpanId) -> TaskState | None:
    status = executor.status(span)
    return None if status is None else status.state


def _written(executor: TableExecutor, task: SpanTask) -> bool:
    """It has its own partitions, all of them with changes applied, and no others."""
    status = executor.status(task.id)
    if status is None or status.state is not TaskState.REPLICATING:
        return False
    assert sorted(status.positions) == sorted(task.plan.start)
    return all(status.positions[partition] > start for partition, start in task.plan.start.items())
