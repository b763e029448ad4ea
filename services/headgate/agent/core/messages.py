"""Inputs of an agent's machine, and the effects that it requests from its executor."""

import msgspec

from headgate.agent.core.executor import SpanId, SpanTask, TaskStatus
from headgate.records.control import Epoch
from headgate.runtime.machine import Arrived, TimerFired


class SessionStarted(msgspec.Struct, frozen=True):
    """The log has been read to an end captured after this session's first heartbeat."""


class TaskObserved(msgspec.Struct, frozen=True):
    """A task's state, epoch or error is no longer what it was."""

    status: TaskStatus


class ProgressDue(msgspec.Struct, frozen=True):
    """The answer to ReadProgress: the current status of every task."""

    statuses: tuple[TaskStatus, ...]


class NotRun(msgspec.Struct, frozen=True):
    """The answer to CheckNotRun: nothing runs under the epoch, and whatever asked for it was performed before."""

    span: SpanId
    epoch: Epoch


AgentInput = SessionStarted | Arrived | TaskObserved | ProgressDue | NotRun | TimerFired


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


class DropCopy(msgspec.Struct, frozen=True):
    """Executor.drop_copy."""

    request: str


class MaintainTable(msgspec.Struct, frozen=True):
    """Executor.maintain_table."""

    span: SpanId
    request: str


class ReadProgress(msgspec.Struct, frozen=True):
    """Read every task's status and give it back as ProgressDue."""


class CheckNotRun(msgspec.Struct, frozen=True):
    """Give back NotRun, unless a task of the span runs or has run under this epoch; its status then shows what it does.

    The executor is asked because an effect may have started a task that has not been observed yet.
    """

    span: SpanId
    epoch: Epoch


class EndSession(msgspec.Struct, frozen=True):
    """The log declares this session dead: stop every writer at once and end."""

    reason: str
