"""What the owner of a searched world may do next: begin a term, read, fire timers, find silence, hear of effects."""

from collections.abc import Iterator
from typing import Any, Final

from headgate.coordinator.core.effects import FeedForgotten, ForgetFeed
from headgate.coordinator.core.machine import State
from headgate.coordinator.core.state import LEASE_SECONDS_DEFAULT
from headgate.records.base import Fact
from headgate.runtime.machine import EffectFinished, HolderSilent, TimerFired
from headgate.sinks.contract import SinkError
from headgate_lab.simulation.exhaustive.bounds import NOBODY, Frame, Step
from headgate_lab.simulation.exhaustive.owner import announcement, decide, take_over
from headgate_lab.simulation.exhaustive.parts import ModelParts

HOUSEKEEPING: Final = ("checkpoint", "sweep")
"""Timers that neither give nor take a role."""

WAITING_TIMERS: Final = ("barrier", "prepare", "start", "drain", "stop")
"""Timers longer than anything a session does: silence comes first, unless a session lives and is slow, a fault."""

DISCOVERY: Final = "discover"
"""The timer of the looks at a feed's source, which does not change in this world."""


class OwnerSteps:
    """See the module's docstring."""

    def __init__(self, parts: ModelParts) -> None:
        self._parts = parts

    def steps(self, frame: Frame) -> Iterator[Step]:
        """What may happen next to the owner."""
        if frame.owner == NOBODY:
            yield "owner: term begins", False, self._taken_over(frame)
            return
        if frame.faults:
            fallen = frame._replace(owner=NOBODY, faults=frame.faults - 1)
            yield (
                "FAULT owner falls",
                True,
                fallen._replace(unread=self._parts.nothing_unread(), effects=self._parts.tuples.of(())),
            )
        yield from self._reading_steps(frame)
        timers, heard = self._parts.once(("owner", frame.owner), lambda: self._outlook(frame.owner))
        silent = [session for session in heard if self._parts.is_lost(frame, *session)]
        for name in timers:
            fired = self._decided(frame, ("timer", name))
            if name.startswith(WAITING_TIMERS):
                if frame.faults:
                    yield f"FAULT owner: timer {name}", True, fired._replace(faults=frame.faults - 1)
            elif self._parts.bounds.housekeeping or not name.startswith(HOUSEKEEPING):
                yield f"owner: timer {name}", False, fired
        for agent, session in silent:
            yield f"owner: {agent}/{session} silent", False, self._decided(frame, ("silent", agent, session))
        for effect in self._parts.tuples.values[frame.effects]:
            yield from self._effect_steps(frame, effect)

    def _reading_steps(self, frame: Frame) -> Iterator[Step]:
        unread, lags = self._parts.tuples.values[frame.unread]
        for place in self._parts.readable(unread, lags):
            left = (*unread[:place], *unread[place + 1 :])
            after = frame._replace(unread=self._parts.tuples.of((left, lags if left else 0)))
            key = self._parts.facts.values[unread[place]].key
            yield f"owner reads {key.text()}", False, self._decided(after, ("read", unread[place]))
        if frame.faults and not lags and len(unread) > 1:
            lagging = self._parts.tuples.of((unread, 1))
            yield "FAULT topics lag for the owner", True, frame._replace(unread=lagging, faults=frame.faults - 1)

    def _taken_over(self, frame: Frame) -> Frame:
        """Take the id, which fences its last holder, replay to the end, announce, let the machine begin."""
        owner_rev = frame.terms + 1

        def make() -> Any:
            state = self._parts.logs.copy(frame.log)
            facts, effects = take_over(state, owner_rev)
            return self._kept(state, facts, effects)

        owner, facts, effects = self._parts.once(("term", frame.log, owner_rev), make)
        frame = frame._replace(owner=owner, terms=owner_rev, effects=self._parts.tuples.of(effects))
        return self._parts.commit(frame, [self._parts.number(announcement(owner_rev)), *facts])

    def _decided(self, frame: Frame, given: tuple[Any, ...]) -> Frame:
        def make() -> Any:
            state = self._parts.logs.copy(frame.owner)
            facts, effects = decide(state, self._input(given))
            return self._kept(state, facts, effects)

        owner, facts, effects = self._parts.once(("decide", frame.owner, given), make)
        frame = frame._replace(owner=owner)
        if effects:
            waiting = {*self._parts.tuples.values[frame.effects], *effects}
            frame = frame._replace(effects=self._parts.tuples.of(tuple(sorted(waiting))))
        return self._parts.commit(frame, facts) if facts else frame

    def _input(self, given: tuple[Any, ...]) -> Any:
        match given:
            case ("read", number):
                return self._parts.facts.values[number]
            case ("timer", name):
                return TimerFired(name)
            case ("silent", agent, session):
                return HolderSilent((agent, session), LEASE_SECONDS_DEFAULT)
            case ("forgotten", feed, feed_id):
                return EffectFinished(ForgetFeed(feed, feed_id, "{}"), FeedForgotten())
            case _:
                raise TypeError(f"unknown input: {given}")

    def _effect_steps(self, frame: Frame, effect: tuple[str, str]) -> Iterator[Step]:
        """ForgetFeed is run, which the sink may refuse, and answered at once."""
        feed, feed_id = effect

        def make() -> Any:
            sink = self._parts.sinks.copy(frame.sink)
            try:
                sink.forget(feed_id)
            except SinkError:
                return None
            return self._parts.sinks.keep(sink)

        left = tuple(other for other in self._parts.tuples.values[frame.effects] if other != effect)
        sink = self._parts.once(("forget", frame.sink, feed_id), make)
        if sink is not None:
            after = frame._replace(sink=sink, effects=self._parts.tuples.of(left))
            yield "owner: feed forgotten", False, self._decided(after, ("forgotten", feed, feed_id))

    def _kept(self, state: State, facts: list[Fact], effects: list[Any]) -> Any:
        asked = tuple(sorted((e.feed, e.feed_id) for e in effects if isinstance(e, ForgetFeed)))
        return self._parts.logs.keep(state), tuple(self._parts.number(fact) for fact in facts), asked

    def _outlook(self, owner: int) -> Any:
        state = self._parts.logs.copy(owner)
        timers = (
            ()
            if state.term is None
            else tuple(sorted(name for name in state.term.timers if not name.startswith(DISCOVERY)))
        )
        return timers, tuple(session for session in sorted(state.agents) if session not in state.ended)
