"""Every step that a small world can take, from a state of it.

A state is a few numbers (freezing.py); ``steps`` gives what may happen next, each with its label. The parts:

- ``owner`` what the serving coordinator knows, and ``unread`` what it has not read yet;
- ``log``   what a replay of the log gives now, and ``sink`` the sink with its books;
- ``first``, ``second`` the agents: the session's part, what it has not read yet, how many sessions there have been;
- ``wire``  requests on their way to the sink, for which nobody waits any more;
- budgets: terms so far, faults left, commands given.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from headgate.agent.executor import SpanId
from headgate.coordinator.effects import FeedForgotten, ForgetFeed
from headgate.coordinator.machine import COORDINATOR, State
from headgate.eventlog.machine import EffectFinished, HolderSilent, TimerFired
from headgate.records.control import (
    AgentAnnounced,
    FeedRecorded,
    FeedState,
    Liveness,
    OperationKind,
    OperationRequested,
    Positions,
    SetState,
    SpanPlan,
    WantedState,
)
from headgate.records.keys import AgentKey, Fact, FeedKey, RequestKey, SessionKey, SpanKey
from headgate.records.spans import table_of
from headgate.simulation.executor import Request
from headgate.simulation.exhaustive.agents import UNTOLD, AgentPart, Outcome
from headgate.simulation.exhaustive.freezing import Numbers, Pool
from headgate.simulation.exhaustive.owner import DERIVED, WatchedSink, adopt, announcement, decide, enthrone, judge
from headgate.sinks.contract import SinkError, SinkUnavailableError

__all__ = ["Bounds", "Frame", "Step", "World"]

AGENTS: Final = ("a1", "a2")
HOUSEKEEPING: Final = ("checkpoint", "sweep")
"""Timers that neither give nor take a role."""

PATIENCE: Final = ("barrier", "prepare")
"""Timers longer than anything a session does: silence comes first, unless a session lives and is slow, a fault."""

DISCOVERY: Final = "discover"
"""The timer of the looks at a feed's source, which does not change in this world."""

NOT_RETRIED: Final = "not tried again by itself"
"""In the error of a table that waits for an operator (coordinator/spans.py): that, too, is an end."""

NOBODY: Final = -1
FEED: Final = "f"
FEED_ID: Final = "0-1"
COMMANDS: Final = {
    "move": OperationRequested(OperationKind.MOVE_TABLE, FEED, None, "t1", "a2", "operator", 0),
    "split": OperationRequested(OperationKind.SPLIT_TABLE, FEED, None, "t1", None, "operator", 0, 2),
    "merge": OperationRequested(OperationKind.MERGE_TABLE, FEED, None, "t1", None, "operator", 0),
    "pause": OperationRequested(OperationKind.PAUSE_FEED, FEED, None, None, None, "operator", 0),
    "resume": OperationRequested(OperationKind.RESUME_FEED, FEED, None, None, None, "operator", 0),
    "remove": OperationRequested(OperationKind.REMOVE_FEED, FEED, None, None, None, "operator", 0),
}


class Bounds(msgspec.Struct, frozen=True):
    """How much may happen: tables, source partitions and changes in each, an operator's commands, faults in all.

    With ``housekeeping`` progress is told, checkpoints are written and the words of the dead are swept, at any time.
    """

    spans: int = 1
    events: int = 1
    commands: tuple[str, ...] = ()
    faults: int = 1
    housekeeping: bool = False
    partitions: int = 1


class Frame(NamedTuple):
    """A state of the world; see the module's docstring."""

    owner: int
    unread: int
    effects: int
    log: int
    first: int
    second: int
    wire: int
    sink: int
    terms: int
    faults: int
    commands: int


Step = tuple[str, bool, Frame]
"""Label, whether it is of the outside (a fault, or an operator's command), and the state after it."""


class World:
    """The steps of all states within some bounds. Whatever finds a guarantee broken raises Violation."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.logs: Pool[State] = Pool(DERIVED)
        self.sessions: Pool[AgentPart] = Pool(UNTOLD)
        self.sinks: Pool[WatchedSink] = Pool(frozenset({"writes", "_witness"}))
        self.facts = Numbers()
        self.tuples = Numbers()
        self._requests: dict[str, Request] = {}
        self._results: dict[int, Positions | SinkError] = {}
        self._known: dict[Any, Any] = {}
        self._fact_numbers: dict[str, int] = {}
        self.spans = [SpanId(FEED, f"t{number}") for number in range(1, bounds.spans + 1)]

    # --- the beginning ----------------------------------------------------------------------------------------

    def first(self) -> Frame:
        """A feed was accepted, two sessions have begun, nobody owns the shard."""
        log = COORDINATOR.new_state(0)
        start = dict.fromkeys(range(self.bounds.partitions), 0)
        plans = tuple(SpanPlan(span.span, f"db.{span.span}", span.span, start) for span in self.spans)
        feed = FeedRecorded(
            FEED_ID, 0, 1, "{}", plans, WantedState.RUNNING, FeedState.NORMAL, None, None, None, changed_ms=0
        )
        adopt(log, Fact(FeedKey(FEED), feed))
        empty = self.tuples.of(())
        gone = self.tuples.of((NOBODY, (), 0, 0))
        frame = Frame(
            owner=NOBODY,
            unread=self._nothing_unread(),
            effects=empty,
            log=self.logs.keep(log),
            first=gone,
            second=gone,
            wire=empty,
            sink=self.sinks.keep(WatchedSink()),
            terms=0,
            faults=self.bounds.faults,
            commands=0,
        )
        for agent in range(len(AGENTS)):
            frame = self._start(frame, agent)
        return frame

    # --- all steps --------------------------------------------------------------------------------------------

    def steps(self, frame: Frame) -> Iterator[Step]:
        """What may happen next."""
        yield from self._owner_steps(frame)
        for agent in range(len(AGENTS)):
            yield from self._agent_steps(frame, agent)
        yield from self._wire_steps(frame)
        if frame.commands < len(self.bounds.commands):
            name = self.bounds.commands[frame.commands]
            asked = Fact(RequestKey(f"r{frame.commands + 1}"), COMMANDS[name])
            after = self._commit(frame._replace(commands=frame.commands + 1), [self._number(asked)])
            yield f"operator: {name}", True, after

    def is_good(self, frame: Frame) -> bool:
        """What is wanted is so: every table replicates and is written to its end, or is sealed."""
        found: bool = self._once(
            ("good", frame.log, frame.sink, frame.first, frame.second, frame.owner),
            lambda: self._look(frame),
        )
        return found

    def _look(self, frame: Frame) -> bool:
        if frame.owner == NOBODY:
            return False
        log, sink = self.logs.copy(frame.log), self.sinks.copy(frame.sink)
        feed = log.feeds.get(FEED)
        if feed is None:
            return True
        if feed.wanted is not WantedState.RUNNING:
            return feed.state is FeedState.STOPPED
        return all(self._replicates(frame, log, sink, plan) for plan in feed.spans)

    def _replicates(self, frame: Frame, log: State, sink: WatchedSink, plan: SpanPlan) -> bool:
        span = SpanId(FEED, plan.span)
        record = log.spans.get(SpanKey(span.feed, span.span))
        if record is not None and record.state is SetState.ABSENT and NOT_RETRIED in (record.last_error or ""):
            return True
        if record is None or record.primary is None or record.state is not SetState.REPLICATING:
            return False
        part, _, _, life = self._agent(frame, AGENTS.index(record.primary.agent))
        if part == NOBODY or record.primary.session != f"s{life}":
            return False
        if not self.sessions.copy(part).replicates(span, record.primary.epoch):
            return False
        return all(sink.applied(FEED_ID, plan.table, partition) == self.bounds.events for partition in plan.start)

    # --- owner ------------------------------------------------------------------------------------------------

    def _owner_steps(self, frame: Frame) -> Iterator[Step]:
        if frame.owner == NOBODY:
            yield "owner: throne", False, self._enthroned(frame)
            return
        if frame.faults:
            fallen = frame._replace(owner=NOBODY, faults=frame.faults - 1)
            yield "FAULT owner falls", True, fallen._replace(unread=self._nothing_unread(), effects=self.tuples.of(()))
        yield from self._reading_steps(frame)
        timers, heard = self._once(("owner", frame.owner), lambda: self._outlook(frame.owner))
        silent = [session for session in heard if self._is_lost(frame, *session)]
        for name in timers:
            fired = self._decided(frame, ("timer", name))
            if name.startswith(PATIENCE):
                if frame.faults:
                    yield f"FAULT owner: timer {name}", True, fired._replace(faults=frame.faults - 1)
            elif self.bounds.housekeeping or not name.startswith(HOUSEKEEPING):
                yield f"owner: timer {name}", False, fired
        for agent, session in silent:
            yield f"owner: {agent}/{session} silent", False, self._decided(frame, ("silent", agent, session))
        for effect in self.tuples.values[frame.effects]:
            yield from self._effect_steps(frame, effect)

    def _reading_steps(self, frame: Frame) -> Iterator[Step]:
        unread, lags = self.tuples.values[frame.unread]
        for place in self._readable(unread, lags):
            left = (*unread[:place], *unread[place + 1 :])
            after = frame._replace(unread=self.tuples.of((left, lags if left else 0)))
            key = self.facts.values[unread[place]].key
            yield f"owner reads {key.text()}", False, self._decided(after, ("read", unread[place]))
        if frame.faults and not lags and len(unread) > 1:
            lagging = self.tuples.of((unread, 1))
            yield "FAULT topics lag for the owner", True, frame._replace(unread=lagging, faults=frame.faults - 1)

    def _enthroned(self, frame: Frame) -> Frame:
        """Take the id, which fences whoever had it, replay to the end, announce, let the machine begin."""
        owner_rev = frame.terms + 1

        def make() -> Any:
            state = self.logs.copy(frame.log)
            facts, effects = enthrone(state, owner_rev)
            return self._kept(state, facts, effects)

        owner, facts, effects = self._once(("throne", frame.log, owner_rev), make)
        frame = frame._replace(owner=owner, terms=owner_rev, effects=self.tuples.of(effects))
        return self._commit(frame, [self._number(announcement(owner_rev)), *facts])

    def _decided(self, frame: Frame, given: tuple[Any, ...]) -> Frame:
        def make() -> Any:
            state = self.logs.copy(frame.owner)
            facts, effects = decide(state, self._input(given))
            return self._kept(state, facts, effects)

        owner, facts, effects = self._once(("decide", frame.owner, given), make)
        frame = frame._replace(owner=owner)
        if effects:
            waiting = {*self.tuples.values[frame.effects], *effects}
            frame = frame._replace(effects=self.tuples.of(tuple(sorted(waiting))))
        return self._commit(frame, facts) if facts else frame

    def _input(self, given: tuple[Any, ...]) -> Any:
        match given:
            case ("read", number):
                return self.facts.values[number]
            case ("timer", name):
                return TimerFired(name)
            case ("silent", agent, session):
                return HolderSilent(agent, session)
            case ("forgotten", feed, feed_id):
                return EffectFinished(ForgetFeed(feed, feed_id, "{}"), FeedForgotten())
            case _:
                raise TypeError(f"no such input: {given}")

    def _effect_steps(self, frame: Frame, effect: tuple[str, str]) -> Iterator[Step]:
        """ForgetFeed is run, which the sink may refuse, and answered at once."""
        feed, feed_id = effect

        def make() -> Any:
            sink = self.sinks.copy(frame.sink)
            try:
                sink.forget(feed_id)
            except SinkError:
                return None
            return self.sinks.keep(sink)

        left = tuple(other for other in self.tuples.values[frame.effects] if other != effect)
        sink = self._once(("forget", frame.sink, feed_id), make)
        if sink is not None:
            after = frame._replace(sink=sink, effects=self.tuples.of(left))
            yield "owner: feed forgotten", False, self._decided(after, ("forgotten", feed, feed_id))

    def _kept(self, state: State, facts: list[Fact], effects: list[Any]) -> Any:
        asked = tuple(sorted((e.feed, e.feed_id) for e in effects if isinstance(e, ForgetFeed)))
        return self.logs.keep(state), tuple(self._number(fact) for fact in facts), asked

    def _outlook(self, owner: int) -> Any:
        state = self.logs.copy(owner)
        timers = (
            ()
            if state.term is None
            else tuple(sorted(name for name in state.term.timers if not name.startswith(DISCOVERY)))
        )
        return timers, tuple(session for session in sorted(state.agents) if session not in state.ended)

    def _is_lost(self, frame: Frame, agent: str, session: str) -> bool:
        part, _, _, life = self._agent(frame, AGENTS.index(agent))
        return part == NOBODY or session != f"s{life}"

    # --- agents -----------------------------------------------------------------------------------------------

    def _agent_steps(self, frame: Frame, agent: int) -> Iterator[Step]:
        name = AGENTS[agent]
        part, unread, lags, life = self._agent(frame, agent)
        if part == NOBODY:
            if self._agent(frame, 1 - agent)[0] == NOBODY:
                yield f"{name}: starts again", False, self._start(frame, agent)
            return
        worse = frame._replace(faults=frame.faults - 1)
        if frame.faults:
            lost = self._acted(worse, agent, ("lose",))
            yield f"FAULT {name} is lost", True, lost
            yield f"FAULT {name} is lost and starts again", True, self._start(lost, agent)
        for place in self._readable(unread, lags):
            left = (*unread[:place], *unread[place + 1 :])
            after = self._with_agent(frame, agent, (part, left, lags if left else 0, life))
            key = self.facts.values[unread[place]].key
            yield f"{name} reads {key.text()}", False, self._acted(after, agent, ("read", unread[place]))
        if lags:
            compacted = self._compacted(unread)
            yield f"compaction before {name}", False, self._with_agent(frame, agent, (part, compacted, lags, life))
            told = self._acted(frame, agent, ("observe",))
            if not unread and self._agent(told, agent)[0] != NOBODY:
                told = self._with_agent(
                    told, agent, (self._agent(told, agent)[0], self._agent(told, agent)[1], 0, life)
                )
            yield f"{name}: observe", False, told
        elif frame.faults:
            slow = self._with_agent(worse, agent, (part, unread, 1, life))
            yield f"FAULT topics and reports lag at {name}", True, slow
        if self.bounds.housekeeping:
            yield f"{name}: progress", False, self._acted(frame, agent, ("progress",))
        steppable, waiting = self._once(("session", part), lambda: self._session_outlook(part))
        for span in steppable:
            seen = self._seen(frame.sink, span)
            yield f"{name}: {span.span} goes on", False, self._acted(frame, agent, ("step", span, seen, ""))
            for kind in ("retryable", "final") if frame.faults else ():
                failed = self._acted(worse, agent, ("step", span, seen, kind))
                yield f"FAULT {name}: {span.span} fails ({kind})", True, failed
        for span, request in waiting:
            yield from self._request_steps(frame, agent, span, request)

    def _request_steps(self, frame: Frame, agent: int, span: SpanId, request: str) -> Iterator[Step]:
        name = f"{AGENTS[agent]}: {self._requests[request].kind} of {span.span}"
        after, result = self._executed(frame, request)
        yield name, False, self._acted(after, agent, ("settle", span, result))
        if frame.faults:
            unanswered = self._number_result(SinkUnavailableError("no answer"))
            lost = self._acted(after, agent, ("settle", span, unanswered))
            yield f"FAULT {name}, answer lost", True, lost._replace(faults=frame.faults - 1)
            late = self._acted(self._on_wire(frame, [request]), agent, ("settle", span, unanswered))
            yield f"FAULT {name}, late", True, late._replace(faults=frame.faults - 1)

    def _start(self, frame: Frame, agent: int) -> Frame:
        name = AGENTS[agent]
        _, _, _, life = self._agent(frame, agent)
        session = f"s{life + 1}"

        def make() -> Any:
            part = AgentPart(name, session, self.bounds.events)
            log = self.logs.copy(frame.log)
            replayed = [Fact(FeedKey(key), feed) for key, feed in sorted(log.feeds.items())]
            replayed += [Fact(key, record) for key, record in sorted(log.spans.items())]
            replayed += [Fact(SessionKey(*key), ended) for key, ended in sorted(log.ended.items())]
            if log.owner_rev >= 0:
                replayed.append(announcement(log.owner_rev))
            outcome = part.start(replayed)
            return self.sessions.keep(part), tuple(self._number(fact) for fact in outcome.facts)

        part, facts = self._once(("start", name, session, frame.log), make)
        alive = AgentAnnounced("search", 1, 100, 0.0, Liveness.ALIVE, "here", 1, 0)
        frame = self._with_agent(frame, agent, (part, (), 0, life + 1))
        return self._commit(frame, [self._number(Fact(AgentKey(name, session), alive)), *facts])

    def _acted(self, frame: Frame, agent: int, action: tuple[Any, ...]) -> Frame:
        part, unread, lags, life = self._agent(frame, agent)

        def make() -> Any:
            session = self.sessions.copy(part)
            outcome = self._act(session, action)
            while outcome.lives and not lags and session.has_news():
                outcome = outcome.then(session.observe())
            kept = self.sessions.keep(session) if outcome.lives else NOBODY
            facts = tuple(self._number(fact) for fact in outcome.facts)
            return kept, facts, tuple(self._number_request(request) for request in outcome.orphans)

        kept, facts, orphans = self._once(("act", part, lags, action), make)
        content = (NOBODY, (), 0, life) if kept == NOBODY else (kept, unread, lags, life)
        frame = self._with_agent(frame, agent, content)
        if orphans:
            frame = self._on_wire(frame, orphans)
        return self._commit(frame, facts) if facts else frame

    def _act(self, session: AgentPart, action: tuple[Any, ...]) -> Outcome:
        match action:
            case ("lose",):
                return session.lose()
            case ("read", number):
                return session.read(self.facts.values[number])
            case ("observe",):
                return session.observe()
            case ("progress",):
                return session.progress()
            case ("step", span, seen, failure):
                return session.step(span, dict(seen), failure)
            case ("settle", span, number):
                return session.settle(span, self._results[number])
            case _:
                raise TypeError(f"no such action: {action}")

    def _session_outlook(self, part: int) -> Any:
        session = self.sessions.copy(part)
        waiting = [(span, self._number_request(request)) for span, request in session.waiting()]
        return tuple(session.steppable()), tuple(waiting)

    def _compacted(self, unread: tuple[int, ...]) -> tuple[int, ...]:
        newest = {self.facts.values[number].key: place for place, number in enumerate(unread)}
        return tuple(number for place, number in enumerate(unread) if newest[self.facts.values[number].key] == place)

    # --- sink and wire ----------------------------------------------------------------------------------------

    def _wire_steps(self, frame: Frame) -> Iterator[Step]:
        wire = self.tuples.values[frame.wire]
        for request in sorted(set(wire)):
            left = list(wire)
            left.remove(request)
            after, _ = self._executed(frame, request)
            yield f"late {request}", False, after._replace(wire=self.tuples.of(tuple(left)))

    def _executed(self, frame: Frame, request: str) -> tuple[Frame, int]:
        def make() -> Any:
            sink, asked = self.sinks.copy(frame.sink), self._requests[request]
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
                return frame.sink, self._number_result(error)
            return self.sinks.keep(sink), self._number_result(result)

        sink, result = self._once(("sink", frame.sink, request), make)
        return frame._replace(sink=sink), result

    def _on_wire(self, frame: Frame, requests: Any) -> Frame:
        return frame._replace(wire=self.tuples.of(tuple(sorted([*self.tuples.values[frame.wire], *requests]))))

    def _seen(self, sink: int, span: SpanId) -> tuple[tuple[int, int], ...]:
        found: tuple[tuple[int, int], ...] = self._once(
            ("seen", sink, span), lambda: self._look_up(self.sinks.copy(sink), table_of(span.span))
        )
        return found

    def _look_up(self, sink: WatchedSink, table: str) -> tuple[tuple[int, int], ...]:
        return tuple((p, sink.applied(FEED_ID, table, p)) for p in range(self.bounds.partitions))

    # --- the log ----------------------------------------------------------------------------------------------

    def _commit(self, frame: Frame, numbers: Any) -> Frame:
        log, sink = frame.log, frame.sink
        for number in numbers:
            log, sink = self._once(("commit", log, sink, number), partial(self._judged, log, sink, number))
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
        key = self.facts.values[number].key
        if not key.by_owner and frame.owner != NOBODY:
            unread, lags = self.tuples.values[frame.unread]
            frame = frame._replace(unread=self.tuples.of(((*unread, number), lags)))
        if key.by_owner and key.topic in ("announce", "dispatch"):
            for agent in range(len(AGENTS)):
                part, unread, lags, life = self._agent(frame, agent)
                if part != NOBODY and not (isinstance(key, SessionKey) and key.agent != AGENTS[agent]):
                    frame = self._with_agent(frame, agent, (part, (*unread, number), lags, life))
        return frame

    def _readable(self, unread: tuple[int, ...], lags: int) -> list[int]:
        """Places of the records that may be read next: the first, or, where topics lag, the first of each topic."""
        if not lags:
            return [0] if unread else []
        seen: dict[str, int] = {}
        for place, number in enumerate(unread):
            seen.setdefault(self.facts.values[number].key.topic, place)
        return list(seen.values())

    # --- numbers ----------------------------------------------------------------------------------------------

    def _agent(self, frame: Frame, agent: int) -> tuple[int, tuple[int, ...], int, int]:
        found: tuple[int, tuple[int, ...], int, int] = self.tuples.values[frame[4 + agent]]
        return found

    def _with_agent(self, frame: Frame, agent: int, content: tuple[Any, ...]) -> Frame:
        number = self.tuples.of(content)
        return frame._replace(second=number) if agent else frame._replace(first=number)

    def _nothing_unread(self) -> int:
        return self.tuples.of(((), 0))

    def _number(self, fact: Fact) -> int:
        text = repr(fact)
        number = self._fact_numbers.get(text)
        if number is None:
            number = self._fact_numbers[text] = len(self.facts.values)
            self.facts.values.append(fact)
        return number

    def _number_request(self, request: Request) -> str:
        text = f"{request.kind} {request.claim.table}@{request.claim.epoch} {request.ranges or ''}"
        self._requests.setdefault(text, Request(request.kind, request.claim, request.ranges, None))
        return text

    def _number_result(self, result: Positions | SinkError) -> int:
        text = f"{type(result).__name__} {result}"
        number = self.tuples.of(text)
        self._results[number] = result
        return number

    def _once(self, asked: Any, make: Callable[[], Any]) -> Any:
        found = self._known.get(asked)
        if found is None and asked not in self._known:
            found = self._known[asked] = make()
        return found
