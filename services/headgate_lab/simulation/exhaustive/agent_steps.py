"""What an agent of a searched world may do next, and what may become of its requests to the sink."""

from collections.abc import Iterator
from typing import Any

from headgate.agent.core.announcements import announced
from headgate.agent.core.executor import SpanId
from headgate.records.base import Fact
from headgate.records.control import Liveness
from headgate.records.keys import AgentKey, FeedKey, RequestKey, SessionKey
from headgate.sinks.contract import SinkUnavailableError
from headgate_lab.simulation.exhaustive.agents import AgentPart, Outcome
from headgate_lab.simulation.exhaustive.bounds import AGENTS, NOBODY, Frame, Step
from headgate_lab.simulation.exhaustive.owner import announcement, is_read_by_agents
from headgate_lab.simulation.exhaustive.parts import ModelParts


class AgentSteps:
    """See the module's docstring."""

    def __init__(self, parts: ModelParts) -> None:
        self._parts = parts

    def steps(self, frame: Frame, agent: int) -> Iterator[Step]:
        """What may happen next to one of the agents."""
        name = AGENTS[agent]
        part, unread, lags, life = self._parts.agent(frame, agent)
        if part == NOBODY:
            if self._parts.agent(frame, 1 - agent)[0] == NOBODY:
                yield f"{name}: starts again", False, self.start(frame, agent)
            return
        worse = frame._replace(faults=frame.faults - 1)
        if frame.faults:
            lost = self._acted(worse, agent, ("lose",))
            yield f"FAULT {name} is lost", True, lost
            yield f"FAULT {name} is lost and starts again", True, self.start(lost, agent)
        for place in self._parts.readable(unread, lags):
            left = (*unread[:place], *unread[place + 1 :])
            after = self._parts.with_agent(frame, agent, (part, left, lags if left else 0, life))
            key = self._parts.facts.values[unread[place]].key
            yield f"{name} reads {key.text()}", False, self._acted(after, agent, ("read", unread[place]))
        if lags:
            compacted = self._compacted(unread)
            yield (
                f"compaction before {name}",
                False,
                self._parts.with_agent(frame, agent, (part, compacted, lags, life)),
            )
            told = self._acted(frame, agent, ("observe",))
            if not unread and self._parts.agent(told, agent)[0] != NOBODY:
                told = self._parts.with_agent(
                    told, agent, (self._parts.agent(told, agent)[0], self._parts.agent(told, agent)[1], 0, life)
                )
            yield f"{name}: observe", False, told
        elif frame.faults:
            slow = self._parts.with_agent(worse, agent, (part, unread, 1, life))
            yield f"FAULT topics and reports lag at {name}", True, slow
        if self._parts.bounds.housekeeping:
            yield f"{name}: progress", False, self._acted(frame, agent, ("progress",))
        steppable, waiting = self._parts.once(("session", part), lambda: self._session_outlook(part))
        for span in steppable:
            seen = self._parts.seen(frame.sink, span)
            yield f"{name}: {span.span} continues", False, self._acted(frame, agent, ("step", span, seen, ""))
            for kind in ("retryable", "final") if frame.faults else ():
                failed = self._acted(worse, agent, ("step", span, seen, kind))
                yield f"FAULT {name}: {span.span} fails ({kind})", True, failed
        for span, request in waiting:
            yield from self._request_steps(frame, agent, span, request)

    def _request_steps(self, frame: Frame, agent: int, span: SpanId, request: str) -> Iterator[Step]:
        name = f"{AGENTS[agent]}: {self._parts.requests[request].kind} of {span.span}"
        after, result = self._parts.executed(frame, request)
        yield name, False, self._acted(after, agent, ("settle", span, result))
        if frame.faults:
            unanswered = self._parts.number_result(SinkUnavailableError("no answer"))
            lost = self._acted(after, agent, ("settle", span, unanswered))
            yield f"FAULT {name}, answer lost", True, lost._replace(faults=frame.faults - 1)
            late = self._acted(self._parts.on_wire(frame, [request]), agent, ("settle", span, unanswered))
            yield f"FAULT {name}, late", True, late._replace(faults=frame.faults - 1)

    def start(self, frame: Frame, agent: int) -> Frame:
        """Its supervisor starts it: a session that has replayed the log, and announces itself."""
        name = AGENTS[agent]
        _, _, _, life = self._parts.agent(frame, agent)
        session = f"s{life + 1}"

        def make() -> Any:
            part = AgentPart(name, session, self._parts.bounds.events)
            log = self._parts.logs.copy(frame.log)
            replayed = [Fact(FeedKey(key), feed) for key, feed in sorted(log.feeds.items())]
            replayed += [Fact(key, record) for key, record in sorted(log.spans.items())]
            replayed += [Fact(SessionKey(*key), ended) for key, ended in sorted(log.ended.items())]
            asked = [Fact(RequestKey(name), placed.request) for name, placed in sorted(log.requests.items())]
            replayed += filter(is_read_by_agents, asked)
            if log.owner_rev >= 0:
                replayed.append(announcement(log.owner_rev))
            outcome = part.start(replayed)
            return self._parts.sessions.keep(part), tuple(self._parts.number(fact) for fact in outcome.facts)

        part, facts = self._parts.once(("start", name, session, frame.log), make)
        alive = announced(Liveness.ALIVE, 1, 0, capacity_spans=100, address="search", reads=1)
        frame = self._parts.with_agent(frame, agent, (part, (), 0, life + 1))
        return self._parts.commit(frame, [self._parts.number(Fact(AgentKey(name, session), alive)), *facts])

    def _acted(self, frame: Frame, agent: int, action: tuple[Any, ...]) -> Frame:
        part, unread, lags, life = self._parts.agent(frame, agent)

        def make() -> Any:
            session = self._parts.sessions.copy(part)
            outcome = self._act(session, action)
            while outcome.lives and not lags and session.has_news():
                outcome = outcome.then(session.observe())
            kept = self._parts.sessions.keep(session) if outcome.lives else NOBODY
            facts = tuple(self._parts.number(fact) for fact in outcome.facts)
            return kept, facts, tuple(self._parts.number_request(request) for request in outcome.orphans)

        kept, facts, orphans = self._parts.once(("act", part, lags, action), make)
        content = (NOBODY, (), 0, life) if kept == NOBODY else (kept, unread, lags, life)
        frame = self._parts.with_agent(frame, agent, content)
        if orphans:
            frame = self._parts.on_wire(frame, orphans)
        return self._parts.commit(frame, facts) if facts else frame

    def _act(self, session: AgentPart, action: tuple[Any, ...]) -> Outcome:
        match action:
            case ("lose",):
                return session.lose()
            case ("read", number):
                return session.read(self._parts.facts.values[number])
            case ("observe",):
                return session.observe()
            case ("progress",):
                return session.progress()
            case ("step", span, seen, failure):
                return session.step(span, dict(seen), failure)
            case ("settle", span, number):
                return session.settle(span, self._parts.results[number])
            case _:
                raise TypeError(f"unknown action: {action}")

    def _session_outlook(self, part: int) -> Any:
        session = self._parts.sessions.copy(part)
        waiting = [(span, self._parts.number_request(request)) for span, request in session.waiting()]
        return tuple(session.steppable()), tuple(waiting)

    def _compacted(self, unread: tuple[int, ...]) -> tuple[int, ...]:
        newest = {self._parts.facts.values[number].key: place for place, number in enumerate(unread)}
        return tuple(
            number for place, number in enumerate(unread) if newest[self._parts.facts.values[number].key] == place
        )

    def late_steps(self, frame: Frame) -> Iterator[Step]:
        """Requests that arrive when their caller no longer waits."""
        wire = self._parts.tuples.values[frame.wire]
        for request in sorted(set(wire)):
            left = list(wire)
            left.remove(request)
            after, _ = self._parts.executed(frame, request)
            yield f"late {request}", False, after._replace(wire=self._parts.tuples.of(tuple(left)))
