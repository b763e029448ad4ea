"""What the steps of a searched world are made of: states, facts and answers by number, the log, the sink and its wire.

Nothing is done twice: what was asked once is known (``once``), because a search comes by the same way again and again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from headgate.agent.core.executor import SpanId
from headgate.coordinator.core.machine import State
from headgate.records.base import Fact
from headgate.records.control import Positions
from headgate.records.keys import SessionKey
from headgate.records.spans import table_of
from headgate.sinks.contract import SinkError
from headgate_lab.simulation.executor import Request
from headgate_lab.simulation.exhaustive.agents import UNTOLD, AgentPart
from headgate_lab.simulation.exhaustive.bounds import AGENTS, FEED, FEED_ID, NOBODY, Frame, SearchBounds
from headgate_lab.simulation.exhaustive.freezing import Numbers, Pool
from headgate_lab.simulation.exhaustive.owner import DERIVED, WatchedSink, adopt, is_read_by_agents, judge


class ModelParts:
    """See the module's docstring."""

    def __init__(self, bounds: SearchBounds) -> None:
        self.bounds = bounds
        self.logs: Pool[State] = Pool(DERIVED)
        self.sessions: Pool[AgentPart] = Pool(UNTOLD)
        self.sinks: Pool[WatchedSink] = Pool(frozenset({"writes", "_witness"}))
        self.facts = Numbers()
        self.tuples = Numbers()
        self.requests: dict[str, Request] = {}
        self.results: dict[int, Positions | SinkError] = {}
        self._known: dict[Any, Any] = {}
        self._fact_numbers: dict[str, int] = {}
        self.spans = [SpanId(FEED, f"t{number}") for number in range(1, bounds.spans + 1)]

    # --- sink and wire ---

    def executed(self, frame: Frame, request: str) -> tuple[Frame, int]:
        """The sink after a request, and the number of its answer."""

        def make() -> Any:
            sink, asked = self.sinks.copy(frame.sink), self.requests[request]
            result: Positions | SinkError
            try:
                match asked.kind:
                    case "claim":
                        result = sink.claim(asked.claim)
                    case "apply":
                        result = sink.apply(asked.claim, asked.ranges)
                    case _:
                        result = sink.seal(asked.claim)
            except SinkError as error:
                return frame.sink, self.number_result(error)
            return self.sinks.keep(sink), self.number_result(result)

        sink, result = self.once(("sink", frame.sink, request), make)
        return frame._replace(sink=sink), result

    def on_wire(self, frame: Frame, requests: Any) -> Frame:
        """Requests on their way, whose callers no longer wait."""
        return frame._replace(wire=self.tuples.of(tuple(sorted([*self.tuples.values[frame.wire], *requests]))))

    def seen(self, sink: int, span: SpanId) -> tuple[tuple[int, int], ...]:
        """How far a span's table is written, by partition."""
        found: tuple[tuple[int, int], ...] = self.once(
            ("seen", sink, span), lambda: self._look_up(self.sinks.copy(sink), table_of(span.span))
        )
        return found

    def _look_up(self, sink: WatchedSink, table: str) -> tuple[tuple[int, int], ...]:
        return tuple((p, sink.applied(FEED_ID, table, p)) for p in range(self.bounds.partitions))

    # --- the log ---

    def commit(self, frame: Frame, numbers: Any) -> Frame:
        """Records, by number, become facts: judged, in the log, and unread by all whom they concern."""
        log, sink = frame.log, frame.sink
        for number in numbers:
            log, sink = self.once(("commit", log, sink, number), partial(self._judged, log, sink, number))
        frame = frame._replace(log=log, sink=sink)
        for number in numbers:
            frame = self._delivered(frame, number)
        return frame

    def _judged(self, log: int, sink: int, number: int) -> tuple[int, int]:
        state, kept, fact = self.logs.copy(log), self.sinks.copy(sink), self.facts.values[number]
        judge(state, kept.books, fact)
        adopt(state, fact)
        return self.logs.keep(state), self.sinks.keep(kept)

    def _delivered(self, frame: Frame, number: int) -> Frame:
        fact = self.facts.values[number]
        key = fact.key
        if not key.by_owner and frame.owner != NOBODY:
            unread, lags = self.tuples.values[frame.unread]
            frame = frame._replace(unread=self.tuples.of(((*unread, number), lags)))
        if (key.by_owner and key.topic in ("announce", "dispatch")) or is_read_by_agents(fact):
            for agent in range(len(AGENTS)):
                part, unread, lags, life = self.agent(frame, agent)
                if part != NOBODY and not (isinstance(key, SessionKey) and key.agent != AGENTS[agent]):
                    frame = self.with_agent(frame, agent, (part, (*unread, number), lags, life))
        return frame

    def readable(self, unread: tuple[int, ...], lags: int) -> list[int]:
        """Places of the records that may be read next: the first, or, where topics lag, the first of each topic."""
        if not lags:
            return [0] if unread else []
        seen: dict[str, int] = {}
        for place, number in enumerate(unread):
            seen.setdefault(self.facts.values[number].key.topic, place)
        return list(seen.values())

    # --- numbers ---

    def agent(self, frame: Frame, agent: int) -> tuple[int, tuple[int, ...], int, int]:
        """An agent: the session's part (or ``NOBODY``), what it has not read, whether topics lag, its lives."""
        found: tuple[int, tuple[int, ...], int, int] = self.tuples.values[frame[4 + agent]]
        return found

    def with_agent(self, frame: Frame, agent: int, content: tuple[Any, ...]) -> Frame:
        """The frame with another content of one agent."""
        number = self.tuples.of(content)
        return frame._replace(second=number) if agent else frame._replace(first=number)

    def nothing_unread(self) -> int:
        """The number of an empty queue."""
        return self.tuples.of(((), 0))

    def number(self, fact: Fact) -> int:
        """The fact's number."""
        text = repr(fact)
        number = self._fact_numbers.get(text)
        if number is None:
            number = self._fact_numbers[text] = len(self.facts.values)
            self.facts.values.append(fact)
        return number

    def number_request(self, request: Request) -> str:
        """The name under which a request is kept."""
        text = f"{request.kind} {request.claim.table}@{request.claim.epoch} {request.ranges or ''}"
        self.requests.setdefault(text, Request(request.kind, request.claim, request.ranges, None))
        return text

    def number_result(self, result: Positions | SinkError) -> int:
        """The number of the sink's answer."""
        text = f"{type(result).__name__} {result}"
        number = self.tuples.of(text)
        self.results[number] = result
        return number

    def once(self, asked: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for all that ask the same."""
        found = self._known.get(asked)
        if found is None and asked not in self._known:
            found = self._known[asked] = make()
        return found

    def is_lost(self, frame: Frame, agent: str, session: str) -> bool:
        """The session is not that which runs under the agent's name now."""
        part, _, _, life = self.agent(frame, AGENTS.index(agent))
        return part == NOBODY or session != f"s{life}"
