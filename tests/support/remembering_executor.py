"""A TableExecutor for tests of what is around it: it does at once whatever it is asked, and remembers."""

import threading

import msgspec

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.records.control import Positions, TaskState

__all__ = ["RememberingExecutor"]

WRITTEN = 2
"""Changes that each partition has had when a task is asked about."""


class RememberingExecutor:
    """Does at once whatever it is asked."""

    def __init__(self) -> None:
        self.tasks: dict[SpanId, TaskStatus] = {}
        self.killed = threading.Event()

    def _set(self, task: SpanTask, state: TaskState) -> bool:
        known = self.tasks.get(task.id)
        if known is not None and task.epoch < known.epoch:
            raise ValueError(f"{task.id}: epoch {task.epoch} is below {known.epoch}")
        positions = {partition: start + WRITTEN for partition, start in task.plan.start.items()}
        self.tasks[task.id] = TaskStatus(
            task.id, task.feed_id, task.epoch, state, positions, None, 2, 20, 1, None, None, False
        )
        return True

    def add_table(self, task: SpanTask, *, prepare: bool) -> bool:
        return self._set(task, TaskState.PREPARED if prepare else TaskState.REPLICATING)

    def is_add_table_finished(self, span: SpanId, *, prepare: bool) -> bool:
        state = self.tasks[span].state if span in self.tasks else None
        return state is TaskState.REPLICATING or (prepare and state is TaskState.PREPARED)

    def remove_table(self, span: SpanId, *, seal: bool) -> bool:  # noqa: ARG002
        if span in self.tasks:
            self.tasks[span] = msgspec.structs.replace(self.tasks[span], state=TaskState.STOPPED)
        return True

    def close_table(self, task: SpanTask) -> bool:
        return self._set(task, TaskState.STOPPED)

    def is_remove_table_finished(self, span: SpanId) -> Positions | None:
        status = self.tasks.get(span)
        return status.positions if status is not None and status.state is TaskState.STOPPED else None

    def drop_copy(self, request: str) -> None:
        """It copies nothing."""

    def maintain_table(self, span: SpanId, request: str) -> None:
        """It has no sink."""

    def forget_table(self, span: SpanId) -> None:
        if self.is_remove_table_finished(span) is not None:
            del self.tasks[span]

    def all_spans(self) -> tuple[SpanId, ...]:
        return tuple(sorted(self.tasks))

    def status(self, span: SpanId) -> TaskStatus | None:
        return self.tasks.get(span)

    def kill(self) -> None:
        self.killed.set()
