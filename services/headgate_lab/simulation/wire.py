"""What is under way: requests to the sink, and effects of coordinators. Slow, lost, unanswered, or far too late."""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedForgotten,
    FeedRefused,
    ForgetFeed,
    TablesDiscovered,
)
from headgate.records.control import Positions
from headgate.runtime.machine import EffectFailed, ResignOwner
from headgate.runtime.role import Role, TermEffect
from headgate.sinks.contract import SinkError, SinkUnavailableError
from headgate_lab.simulation.agents import AgentProcess
from headgate_lab.simulation.executor import Request
from headgate_lab.simulation.operator import resolve
from headgate_lab.simulation.processes import CoordinatorProcess
from headgate_lab.simulation.sink_audit import Violation

if TYPE_CHECKING:
    from headgate_lab.simulation.world import World

__all__ = ["Wire"]


GROWN_SHARE: Final = 0.3
"""Share of looks at a source, in worlds whose effects are refused at times, that find more partitions than planned."""


class Wire:
    """See the module's docstring."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._requests: list[Request] = []
        self._effects: deque[tuple[CoordinatorProcess, Role[Any], TermEffect]] = deque()

    def send(self, request: Request) -> None:
        """See Surroundings."""
        self._requests.append(request)

    def carry(self) -> None:
        """Requests arrive in any order, and are answered, or not."""
        wire, self._requests = self._requests, []
        for request in wire:
            if request.arrives_at > self._world.clock or not self._world.gets_on():
                self._requests.append(request)
            elif self._world.strikes("request_lost"):
                self._answer(request, SinkUnavailableError("the request was lost"))
            elif self._world.strikes("request_late") and request.run is not None:
                self._answer(request, SinkUnavailableError("no answer in time"))
                # It arrives all the same, some time: its caller no longer waits.
                request.run = None
                request.arrives_at = self._world.clock + self._world.faults.long_pause()
                self._requests.append(request)
            else:
                result = self._execute(request)
                lost = self._world.strikes("reply_lost")
                if lost:
                    self._world.marks[f"answer to {request.kind} lost"] += 1
                self._answer(request, SinkUnavailableError("the answer was lost") if lost else result)

    def _execute(self, request: Request) -> Positions | SinkError:
        try:
            match request.kind:
                case "claim":
                    result = self._world.sink.claim(request.claim)
                case "apply":
                    result = self._world.sink.apply(request.claim, request.ranges)
                case _:
                    result = self._world.sink.seal(request.claim)
        except SinkError as error:
            late = "late " if request.run is None else ""
            self._world.marks[f"{late}{request.kind} refused: {error.code}"] += 1
            return error
        self._check_abandoned(request)
        self._world.saw(
            (request.kind, request.claim.table, request.claim.epoch, result),
            lambda: f"sink {request.kind} {request.claim.table}@{request.claim.epoch} {result}",
        )
        return result

    def _check_abandoned(self, request: Request) -> None:
        """Once a feed is gone without its sink, no live session claims or writes: each has reported that it stopped."""
        feed_id, run = request.claim.identity.feed_id, request.run
        if request.kind == "seal" or run is None or feed_id not in self._world.sink_audit.abandoned:
            return
        for process in self._world.processes.values():
            if not isinstance(process, AgentProcess) or process.session is None:
                continue
            key = process.session.key
            if process.session.executor is run.executor and not self._world.sessions.is_lost((key.agent, key.session)):
                raise Violation(
                    f"1: {key.agent}/{key.session} does {request.kind} {request.claim.table} under "
                    f"{request.claim.epoch} for feed {feed_id}, which is gone without its sink"
                )
        self._world.marks["a dead session wrote for an abandoned feed"] += 1

    def _answer(self, request: Request, result: Positions | SinkError) -> None:
        if request.run is not None:
            request.run.executor.answer(request.run, request, result)

    def run_effect(self, process: CoordinatorProcess, role: Role[Any], effect: TermEffect) -> None:
        """See Stage."""
        self._effects.append((process, role, effect))

    def run_effects(self) -> None:
        """Some of the effects submitted are run, and answered if their process is awake."""
        for _ in range(len(self._effects)):
            process, role, submitted = self._effects.popleft()
            if process.is_over:
                continue
            if not self._world.gets_on() or process.is_frozen_inside or process.frozen_until > self._world.clock:
                self._effects.append((process, role, submitted))
                continue
            if isinstance(submitted.effect, ResignOwner):
                role.cede()
            else:
                role.finish(submitted, self._result(submitted.effect))

    def _result(self, effect: Any) -> Any:
        if self._world.strikes("effect_failed"):
            return EffectFailed("not now")
        if isinstance(effect, ForgetFeed):
            try:
                self._world.sink.forget(effect.feed_id)
            except SinkError as error:
                self._world.marks["forget refused"] += 1
                return EffectFailed(str(error))
            return EffectFailed("answer lost") if self._world.strikes("reply_lost") else FeedForgotten()
        if self._world.strikes("effect_refused", GROWN_SHARE) and isinstance(effect, DiscoverTables):
            return TablesDiscovered(grown="a topic has more partitions than before")
        if self._world.strikes("effect_refused"):
            return FeedRefused("unknown topic")
        return self._world.operator.discover(effect) if isinstance(effect, DiscoverTables) else resolve(effect)
