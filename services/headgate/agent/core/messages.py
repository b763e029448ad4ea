"""What goes in and out of an agent's machine: inputs, and the effects it asks its executor for."""

import msgspec

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.runtime.machine import Arrived, TimerFired

__all__ = [
    "AddTable",
    "AgentInput",
    "CloseTable",
    "EndSession",
    "ForgetTable",
    "ProgressDue",
    "ReadProgress",
    "RemoveTable",
    "SessionStarted",
    "TaskObserved",
]


class SessionStarted(msgspec.Struct, frozen=True):
    """The log has been read to an end captured after this session's first heartbeat."""


class TaskObserved(msgspec.Struct, frozen=True):
    """A task's state, epoch or error is no longer what it was."""

    status: TaskStatus


class ProgressDue(msgspec.Struct, frozen=True):
    """The answer to ReadProgress: every task as it stands."""

    statuses: tuple[TaskStatus, ...]


AgentInput = SessionStarted | Arrived | TaskObserved | ProgressDue | TimerFired


class AddTable(msgspec.Struct, frozen=True):
    """Executor.add_table."""

    task: SpanTask
    prepare: bool


class RemoveTable(msgspec.Struct, frozen=True):
    """Executor.remove_table."""

    span: SpanId
    seal: bool


class CloseTable(msgspec.Struct, frozen=True):
    """Executor.close_table."""

    task: SpanTask


class ForgetTable(msgspec.Struct, frozen=True):
    """Executor.forget_table."""

    span: SpanId


class ReadProgress(msgspec.Struct, frozen=True):
    """Read every task's status and give it back as ProgressDue."""


class EndSession(msgspec.Struct, frozen=True):
    """The log says this session is dead: stop every writer at once and end."""

    reason: str
