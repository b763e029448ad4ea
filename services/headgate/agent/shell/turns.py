"""A session's turns around the machine, without a clock of their own, so that the simulator can drive them.

Inputs are decided one after the other, their facts are written, and only then effects run: nothing is done that
is not on the log. The lease is checked before every effect, so that a process which slept through it only dies.
Reading, waiting and heartbeats are the service's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headgate.agent.core.executor import SpanId, TableExecutor, TaskStatus
from headgate.agent.core.machine import decide
from headgate.agent.core.messages import (
    AddTable,
    AgentInput,
    CheckNotRun,
    CloseTable,
    DropCopy,
    EndSession,
    ForgetTable,
    MaintainTable,
    NotRun,
    ProgressDue,
    ReadProgress,
    RemoveTable,
    TaskObserved,
)
from headgate.agent.core.state import AgentState, evolve
from headgate.agent.shell.session import Clock, Lease, SessionLostError
from headgate.eventlog.log import Placed
from headgate.eventlog.sharding import place, shard_of
from headgate.records.base import Fact
from headgate.records.control import TaskState
from headgate.records.keys import AnswerKey, ProgressKey, TaskKey
from headgate.runtime.machine import OFFSET_UNKNOWN, Arrived, Decision, Now, SetTimer, TimerFired
from headgate.runtime.timers import Timers


def place_word(fact: Fact, shards: int) -> Placed:
    """A session's fact with its partition: an answer goes to the shard it answers, a span's word to its feed's."""
    key = fact.key
    if isinstance(key, AnswerKey):
        return place(fact, key.shard)
    if isinstance(key, TaskKey | ProgressKey):
        return place(fact, shard_of(key.feed, shards))
    raise TypeError(f"a session does not write {key!r}")


class Turns:
    """The loop of one session around its machine; one thread drives it."""

    def __init__(
        self,
        state: AgentState,
        executor: TableExecutor,
        lease: Lease,
        write: Callable[[list[Fact]], None],
        *,
        clock: Clock,
        wall_ms: Callable[[], int],
        on_progress: Callable[[Sequence[TaskStatus]], None],
        decide: Callable[[AgentState, AgentInput, Now], Decision] = decide,
    ) -> None:
        """``write`` returns once all is acknowledged, or raises SessionLostError; ``on_progress`` sees each reading."""
        self._decide = decide
        self._state = state
        self._executor = executor
        self._lease = lease
        self._write = write
        self._clock = clock
        self._wall_ms = wall_ms
        self._on_progress = on_progress
        self._timers = Timers()
        self._observed: dict[SpanId, tuple[Any, ...]] = {}

    def turn(self, inputs: deque[AgentInput]) -> None:
        """Decide all inputs one after the other; facts, then effects, whose answers are decided in the same turn."""
        while inputs:
            facts: list[Fact] = []
            effects: list[Any] = []
            while inputs:
                event = inputs.popleft()
                if isinstance(event, Arrived):
                    arrived = event.delivery
                    evolve(self._state, arrived.key, arrived.value, arrived.offset)
                decision = self._decide(self._state, event, Now(self._clock(), self._wall_ms()))
                for fact in decision.facts:
                    evolve(self._state, fact.key, fact.value, OFFSET_UNKNOWN)
                facts += decision.facts
                effects += decision.effects
            if facts:
                self._write(facts)
            for effect in effects:
                self._lease.check()
                inputs.extend(self._perform(effect))

    def changes(self) -> list[AgentInput]:
        """Tasks whose state, epoch or error differs from what was last reported."""
        inputs: list[AgentInput] = []
        for status in self._statuses():
            seen = (status.feed_id, status.epoch, status.state, status.error, status.maintained)
            if self._observed.get(status.id) != seen:
                self._observed[status.id] = seen
                inputs.append(TaskObserved(status))
        return inputs

    def due(self) -> list[AgentInput]:
        """Timers that have run out."""
        mark = self._timers.mark()
        names = iter(lambda: self._timers.take_due(self._clock(), mark), None)
        return [TimerFired(name) for name in names if name is not None]

    def _perform(self, effect: Any) -> list[AgentInput]:
        executor = self._executor
        match effect:
            case SetTimer(name=name, delay_seconds=delay):
                self._timers.set(name, self._clock() + delay)
            case AddTable(task=task, prepare=prepare):
                executor.add_table(task, prepare=prepare)
            case RemoveTable(span=span, seal=seal):
                executor.remove_table(span, seal=seal)
            case CloseTable(task=task):
                executor.close_table(task)
            case ForgetTable(span=span):
                executor.forget_table(span)
                self._observed.pop(span, None)
            case DropCopy(request=request):
                executor.drop_copy(request)
            case MaintainTable(span=span, request=request):
                executor.maintain_table(span, request)
            case ReadProgress():
                statuses = self._statuses()
                self._on_progress(statuses)
                return [ProgressDue(tuple(statuses))]
            case CheckNotRun(span=span, epoch=epoch):
                status = executor.status(span)
                if status is None or (status.epoch < epoch and status.state in (TaskState.STOPPED, TaskState.FAILED)):
                    return [NotRun(span, epoch)]
            case EndSession(reason=reason):
                raise SessionLostError(f"the owner has recorded the end of this session: {reason}")
            case _:
                raise TypeError(f"unknown effect: {effect!r}")
        return []

    def _statuses(self) -> list[TaskStatus]:
        found = (self._executor.status(span) for span in self._executor.all_spans())
        return [status for status in found if status is not None]
