"""Every step that a small world can take, from a state of it.

A state is a few numbers (bounds.py); ``steps`` gives what may happen next, each with its label: to the owner
(owner_steps.py), to the agents and their requests (agent_steps.py), by an operator. All of them work on the same parts
(parts.py).
"""

from collections.abc import Iterator

from headgate.agent.core.executor import SpanId
from headgate.coordinator.core.machine import COORDINATOR, State
from headgate.coordinator.core.signals import NOT_RETRIED
from headgate.coordinator.core.span_predicates import is_open
from headgate.records.base import Fact
from headgate.records.control import FeedRecorded, FeedState, ReplicationState, SpanPlan, WantedState
from headgate.records.keys import FeedKey, RequestKey, SpanKey
from headgate.records.spans import paused_table
from headgate_lab.simulation.exhaustive.agent_steps import AgentSteps
from headgate_lab.simulation.exhaustive.bounds import AGENTS, COMMANDS, FEED, FEED_ID, NOBODY, Frame, SearchBounds, Step
from headgate_lab.simulation.exhaustive.owner import WatchedSink, adopt
from headgate_lab.simulation.exhaustive.owner_steps import OwnerSteps
from headgate_lab.simulation.exhaustive.parts import ModelParts


class StateSpace:
    """The steps of all states within some bounds. Whatever finds a guarantee broken raises Violation."""

    def __init__(self, bounds: SearchBounds) -> None:
        self.parts = parts = ModelParts(bounds)
        self._owner, self._agents = OwnerSteps(parts), AgentSteps(parts)

    def first(self) -> Frame:
        """A feed was accepted, two sessions have started, the shard has no owner."""
        log = COORDINATOR.new_state(0)
        start = dict.fromkeys(range(self.parts.bounds.partitions), 0)
        plans = tuple(SpanPlan(span.span, f"db.{span.span}", span.span, start) for span in self.parts.spans)
        feed = FeedRecorded(
            FEED_ID, 0, 1, "{}", plans, WantedState.RUNNING, FeedState.NORMAL, None, None, None, changed_ms=0
        )
        adopt(log, Fact(FeedKey(FEED), feed))
        empty = self.parts.tuples.of(())
        gone = self.parts.tuples.of((NOBODY, (), 0, 0))
        frame = Frame(
            owner=NOBODY,
            unread=self.parts.nothing_unread(),
            effects=empty,
            log=self.parts.logs.keep(log),
            first=gone,
            second=gone,
            wire=empty,
            sink=self.parts.sinks.keep(WatchedSink()),
            terms=0,
            faults=self.parts.bounds.faults,
            commands=0,
        )
        for agent in range(len(AGENTS)):
            frame = self._agents.start(frame, agent)
        return frame

    def steps(self, frame: Frame) -> Iterator[Step]:
        """What may happen next."""
        yield from self._owner.steps(frame)
        for agent in range(len(AGENTS)):
            yield from self._agents.steps(frame, agent)
        yield from self._agents.late_steps(frame)
        if frame.commands < len(self.parts.bounds.commands):
            name = self.parts.bounds.commands[frame.commands]
            asked = Fact(RequestKey(f"r{frame.commands + 1}"), COMMANDS[name])
            after = self.parts.commit(frame._replace(commands=frame.commands + 1), [self.parts.number(asked)])
            yield f"operator: {name}", True, after

    def is_good(self, frame: Frame) -> bool:
        """What is wanted is so: every table replicates and is written to its end, or is sealed or paused."""
        found: bool = self.parts.once(
            ("good", frame.log, frame.sink, frame.first, frame.second, frame.owner),
            lambda: self._look(frame),
        )
        return found

    def _look(self, frame: Frame) -> bool:
        if frame.owner == NOBODY:
            return False
        log, sink = self.parts.logs.copy(frame.log), self.parts.sinks.copy(frame.sink)
        feed = log.feeds.get(FEED)
        if feed is None:
            return True
        if feed.wanted is not WantedState.RUNNING:
            return feed.state is FeedState.STOPPED
        return all(
            not is_open(log.spans.get(SpanKey(FEED, plan.span)))
            if (paused := paused_table(feed, plan.span)) is not None and paused.copy is None
            else self._replicates(frame, log, sink, plan)
            for plan in feed.spans
        )

    def _replicates(self, frame: Frame, log: State, sink: WatchedSink, plan: SpanPlan) -> bool:
        span = SpanId(FEED, plan.span)
        record = log.spans.get(SpanKey(span.feed, span.span))
        # A table that waits for an operator is at its end, too.
        if record is not None and record.state is ReplicationState.ABSENT and NOT_RETRIED in (record.last_error or ""):
            return True
        if record is None or record.primary is None or record.state is not ReplicationState.REPLICATING:
            return False
        part, _, _, life = self.parts.agent(frame, AGENTS.index(record.primary.agent))
        if part == NOBODY or record.primary.session != f"s{life}":
            return False
        if not self.parts.sessions.copy(part).replicates(span, record.primary.epoch):
            return False
        return all(sink.applied(FEED_ID, plan.table, partition) == self.parts.bounds.events for partition in plan.start)
