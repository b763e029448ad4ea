"""The owner's side as frozen parts: the real coordinator in a term, and the log as the state that a replay of it gives.

Also the checks of docs/guarantees.md that concern the log: each record is judged at the moment it is committed, against
what is on the log and at the sink at that moment, and against no machine's own account.
"""

from typing import Any, Final

from headgate import SCHEMA_VERSION
from headgate.coordinator.core.machine import COORDINATOR, State
from headgate.coordinator.core.span_predicates import is_open
from headgate.eventlog.log import Delivery, Partition
from headgate.records.base import Fact
from headgate.records.control import (
    Epoch,
    FeedProgressed,
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OwnerAnnounced,
    SpanDispatched,
    TaskState,
    WantedState,
)
from headgate.records.keys import FeedKey, FeedProgressKey, OwnerKey, RequestKey, SpanKey
from headgate.records.spans import plan_of
from headgate.runtime.machine import OFFSET_UNKNOWN, Arrived, CancelTimer, Now, SetTimer, TermBegan, TimerFired
from headgate_lab.simulation.sink import SimulatedSink
from headgate_lab.simulation.sink_audit import SinkAudit, Violation

NOW: Final = Now(0.0, 0)

LATE_SECONDS: Final = 1_000.0
"""Beyond every deadline (coordinator/core/spans/waiting.py)."""

DERIVED: Final = frozenset(
    {"plans", "open_count", "broken_count", "waiting", "needy", "closing", "roles", "starting"}
    | {"words", "live", "stopping", "loads", "outdated", "parts"}
)
"""Indexes that follow from the records, and so distinguish no two states."""

OFFSETS: Final = {"request": 100}
"""Requests are ordered, and feeds named, by the offset of a request: r1 is at 101."""


class Books(SinkAudit):
    """What was written at the sink, by its own order."""

    def top(self, feed_id: str, table: str) -> Epoch | None:
        """The highest epoch that ever claimed any of the table."""
        return max((epoch for place, epoch in self._top.items() if place[:2] == (feed_id, table)), default=None)


class WatchedSink(SimulatedSink):
    """The fenced sink of the simulation with its books."""

    def __init__(self) -> None:
        self.books = Books()
        super().__init__(self.books)

    def applied(self, feed_id: str, table: str, partition: int) -> int:
        """How far a partition of the table is written."""
        return self.books.applied_to.get((feed_id, table), {}).get(partition, 0)


def offset_of(fact: Fact) -> int:
    """A record's place, as far as any machine cares."""
    if isinstance(fact.key, RequestKey):
        return OFFSETS["request"] + int(fact.key.request[1:])
    return OFFSET_UNKNOWN


def is_read_by_agents(fact: Fact) -> bool:
    """Whether it is a request that agents read: rows that one of them is to copy."""
    return isinstance(fact.value, OperationRequested) and fact.value.kind is OperationKind.RESYNC_TABLE


def announcement(owner_rev: int) -> Fact:
    """An owner's first word."""
    return Fact(OwnerKey(0), OwnerAnnounced("owner", owner_rev, "search", SCHEMA_VERSION, 5.0, 0, SCHEMA_VERSION))


def adopt(state: State, fact: Fact) -> None:
    """Fold a record."""
    COORDINATOR.evolve(state, fact.key, fact.value, offset_of(fact))


def take_over(state: State, owner_rev: int) -> tuple[list[Fact], list[Any]]:
    """A replayed state becomes an owner's: announce, then the machine's first decision."""
    adopt(state, announcement(owner_rev))
    return decide(state, TermBegan(owner_rev))


def decide(state: State, given: Any) -> tuple[list[Fact], list[Any]]:
    """One input, decided and evolved: the facts of its transaction, and the effects that others will see."""
    try:
        if isinstance(given, Fact):
            adopt(state, given)
            given = Arrived(Delivery(Partition(given.key.topic, 0), offset_of(given), given.key, given.value))
        passed = _passed_over(state)
        decision = COORDINATOR.decide(state, given, _now(state, given))
        _judge_passing(state, given, passed)
        for fact in decision.facts:
            _judge_successor(state, fact)
            adopt(state, fact)
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"owner at {given!r}: {type(error).__name__}: {error}") from error
    outside = [effect for effect in decision.effects if not isinstance(effect, SetTimer | CancelTimer)]
    return list(decision.facts), outside


def _now(state: State, given: Any) -> Now:
    """Time passes at a timer only, which is due: then it is later than every wait."""
    term = state.term
    if term is None or not isinstance(given, TimerFired):
        return NOW
    waits = [wait.since for wait in (*term.starting.values(), *term.draining.values())]
    return Now(max([0.0, *waits, *term.drained_at.values(), *term.stops.values()]) + LATE_SECONDS, 0)


def _judge_passing(state: State, given: Any, before: set[tuple[Any, ...]]) -> None:
    if not isinstance(given, TimerFired) and not _passed_over(state) <= before:
        raise Violation(f"1: {_passed_over(state) - before} passed over at {given!r}, before any deadline")


def _passed_over(state: State) -> set[tuple[Any, ...]]:
    term = state.term
    passed = {} if term is None else term.passed_over
    return {(session, key, epoch) for session, epochs in passed.items() for key, epoch in epochs.items()}


def _judge_successor(state: State, fact: Fact) -> None:
    """No session is made primary while, by all that this owner has read, another one may still write."""
    key, value = fact.key, fact.value
    if not isinstance(key, SpanKey) or not isinstance(value, SpanDispatched) or value.primary is None:
        return
    old = state.spans.get(key)
    if old is not None and old.primary == value.primary:
        return
    chosen = (value.primary.agent, value.primary.session)
    for other in [key, *state.index.overlapping(key)]:
        if other != key and is_open(state.spans.get(other)):
            raise Violation(f"1: {key.text()} given to {chosen} while {other.text()} is not sealed")
        for session, word in state.tasks.get(other, {}).items():
            answer = state.answers.get(session)
            is_heard = state.is_live(session) and answer is not None and answer.owner_rev == value.owner_rev
            is_another = session != chosen or other != key
            is_theirs = is_heard and word.feed_id == value.feed_id and word.state in _MAY_WRITE
            if is_another and is_theirs and not _is_passed_over(state, session, other, word.epoch):
                what = f"{word.state} of {other.text()} under {word.epoch}"
                raise Violation(f"1: {key.text()} given to {chosen} while {session} reports {what}")


_MAY_WRITE: Final = (TaskState.REPLICATING, TaskState.STOPPING)


def _is_passed_over(state: State, session: tuple[str, str], key: SpanKey, epoch: Epoch) -> bool:
    """At a deadline a session may be passed over; that it is at one only is judged for itself (``_judge_passing``)."""
    return any(passed[:2] == (session, key) and epoch <= passed[2] for passed in _passed_over(state))


def judge(log: State, audit: Books, fact: Fact) -> None:
    """Raise Violation if the record breaks guarantee 1, 3 or 4 at its place."""
    key, value = fact.key, fact.value
    if isinstance(key, SpanKey) and isinstance(value, SpanDispatched):
        _judge_span(log, audit, key, value)
    elif isinstance(key, FeedProgressKey) and isinstance(value, FeedProgressed):
        _judge_checkpoint(log, audit, key, value)
    elif isinstance(key, FeedKey) and isinstance(value, FeedRecorded):
        _judge_feed(log, audit, key, value)


def _judge_span(log: State, audit: Books, key: SpanKey, value: SpanDispatched) -> None:
    old = log.spans.get(key)
    known = [] if old is None else [role for role in (old.primary, old.secondary) if role is not None]
    if old is not None and value.owner_rev < old.owner_rev:
        raise Violation(f"4: {key.text()} dispatched by {value.owner_rev} after {old.owner_rev}")
    table, partitions = _place_of(log, key)
    for role in (value.primary, value.secondary):
        if role is None or role in known:
            continue
        if (role.agent, role.session) in log.ended:
            raise Violation(f"4: {key.text()} given to {role.agent}/{role.session}, which was written dead before")
        top = audit.top(value.feed_id, table)
        if any(role.epoch <= other.epoch for other in known) or (top is not None and role.epoch <= top):
            raise Violation(f"1: {key.text()} given under {role.epoch}, not above {known} and the sink's {top}")
    if value.sealed and audit.is_open(value.feed_id, table, partitions):
        raise Violation(f"1: {key.text()} is called sealed, and is open at the sink")


def _judge_checkpoint(log: State, audit: Books, key: FeedProgressKey, value: FeedProgressed) -> None:
    feed, before = log.feeds.get(key.feed), log.feed_progress.get(key.feed)
    if feed is None or feed.feed_id != value.feed_id:
        raise Violation(f"3: a checkpoint of {key.feed} for {value.feed_id}, which is not the feed")
    is_same = before is not None and (before.feed_id, before.incarnation) == (value.feed_id, value.incarnation)
    for plan in feed.spans:
        said = value.positions.get(plan.table, {})
        written = {**plan.start, **audit.applied_to.get((feed.feed_id, plan.table), {})}
        for partition, offset in said.items():
            if offset > written.get(partition, 0):
                raise Violation(f"3: checkpoint of {plan.table}/{partition} is {offset}, written is {written}")
        for partition, offset in (before.positions.get(plan.table, {}) if before and is_same else {}).items():
            if said.get(partition, -1) < offset:
                raise Violation(f"3: checkpoint of {plan.table}/{partition} went back from {offset} to {said}")


def _judge_feed(log: State, audit: Books, key: FeedKey, value: FeedRecorded) -> None:
    old = log.feeds.get(key.feed)
    if old is not None and old.feed_id == value.feed_id:
        for plan in old.spans:
            if plan_of(value.spans, plan.span) != plan:
                raise Violation(f"2: {key.feed} lost a partition: {plan} is not in {value.spans}")
    if value.wanted is WantedState.STOPPED and value.state is FeedState.STOPPED:
        for plan in value.spans:
            if audit.is_open(value.feed_id, plan.table):
                raise Violation(f"1: feed {key.feed} is called stopped, and {plan.table} is open at the sink")
        audit.stopped.add(value.feed_id)
    elif value.wanted is WantedState.RUNNING:
        audit.stopped.discard(value.feed_id)


def _place_of(log: State, key: SpanKey) -> tuple[str, list[int]]:
    """Table and partitions of a span."""
    feed = log.feeds.get(key.feed)
    plan = None if feed is None else plan_of(feed.spans, key.span)
    return (key.span, []) if plan is None else (plan.table, sorted(plan.start))
