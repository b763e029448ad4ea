"""What a coordinator knows: the newest record of every key, indexes derived from them, and one term's memory.

Three parts, told apart because they live differently:

- **the log part**, one map per kind of key. ``evolve`` folds records into it by the rule of design §2: a record
  replaces
  its key's record unless its (owner_rev, or epoch) is lower; nothing else is looked at. ``digest`` is of this part
  only: replay of the full log, replay of the compacted one and the live state give the same.
- **indexes** (index.py), kept by ``evolve`` along with the maps, so that no question costs all spans. They look at
  several
  keys, hence give the same for every order in which the topics are read, except the merged positions, which only grow.
- **the term** (``Term``): what this owner has seen that no record says (which answers came live, whose timer
  runs, is the barrier open). ``decide`` writes it, nothing else; it dies with the term, as the loop's timers do.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.coordinator.index import Indexes
from headgate.coordinator.loads import Loads
from headgate.coordinator.ranking import Ranking
from headgate.records.control import (
    AgentAnnounced,
    Epoch,
    FeedProgressed,
    FeedRecorded,
    OperationRequested,
    OwnerAnnounced,
    Record,
    RequestSettled,
    Role,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
)
from headgate.records.defaults import without_defaults
from headgate.records.keys import (
    AgentKey,
    AnswerKey,
    FeedKey,
    FeedProgressKey,
    Key,
    OutcomeKey,
    OwnerKey,
    ProgressKey,
    RequestKey,
    SessionKey,
    SpanKey,
    TaskKey,
)

__all__ = [
    "CoordinatorState",
    "Drain",
    "PlacedRequest",
    "Rebalance",
    "SessionId",
    "Spread",
    "Term",
    "TimerPurpose",
    "Wait",
    "digest",
    "evolve",
    "new_state",
    "start_counting",
]

SessionId = tuple[str, str]
"""(agent, session)."""

LEASE_SECONDS_DEFAULT: Final = 5.0
"""The lease of design §2, until an owner's record has said another."""


class PlacedRequest(msgspec.Struct, frozen=True):
    """An operator's request and where it stands: its offset orders requests and names the feed it creates."""

    offset: int
    request: OperationRequested


class TimerPurpose(msgspec.Struct, frozen=True):
    """What a timer of this term was set for: ``kind`` says how ``subject`` is meant (machine.py)."""

    kind: str
    subject: Any


class Wait(msgspec.Struct, frozen=True):
    """For whose role a span waits, and since when (monotonic)."""

    role: Role
    since: float


@dataclass(slots=True)
class Drain:
    """One session being emptied on request; ``is_done`` once it has no role left, then held empty (relocation.py)."""

    request: str
    is_done: bool = False
    left_count: int = 0
    """Its roles when they were counted last."""
    holds: int = 0


@dataclass(slots=True)
class Rebalance:
    """One feed being spread evenly: what is still to be moved (None before the plan is made), what is moving now."""

    request: str
    plan: deque[tuple[SpanKey, SessionId]] | None = None
    moving: dict[SpanKey, SessionId] = field(default_factory=dict)
    moved_count: int = 0
    failed_count: int = 0


@dataclass(slots=True)
class Spread:
    """A request to spread one feed, or all: feeds that are still to come, and what has become of the others."""

    waiting: set[str]
    is_of_all: bool = False
    moved_count: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """By feed: why not all of it could be moved."""


@dataclass(slots=True)
class Term:
    """One owner's memory between its throne and its end; see the module's docstring."""

    owner_rev: int
    epochs_issued: int = 0
    is_open: bool = False
    """The sync barrier is over."""
    awaited: set[SessionId] = field(default_factory=set)
    names: dict[str, SessionId] = field(default_factory=dict)
    """By agent: the session that has its name, if several live under it (membership.py)."""
    newcomers: set[SessionId] = field(default_factory=set)
    """Sessions whose unasked answer came live: no earlier owner can have given them a role (membership.py)."""
    retry_due: Ranking[SpanKey] = field(default_factory=Ranking)
    """Failed spans whose back-off is over, waiting for an agent."""
    forgetting: set[str] = field(default_factory=set)
    """Feeds whose rows the service is removing from the sink."""
    discovering: set[str] = field(default_factory=set)
    """Feeds whose source is being looked at again."""
    last_looks: dict[str, bool] = field(default_factory=dict)
    """Feeds at their target that wait for a last look at their source; True once it has found nothing new."""
    timers: dict[str, TimerPurpose] = field(default_factory=dict)
    drains: dict[SessionId, Drain] = field(default_factory=dict)
    """Sessions whose spans leave on request, and those that are empty now and are given no others for a while."""
    rebalances: dict[str, Rebalance] = field(default_factory=dict)
    """By feed: the request to spread its spans evenly that is under way."""
    spreads: dict[str, Spread] = field(default_factory=dict)
    """By request: the rebalances that it stands for."""
    resting: set[SpanKey] = field(default_factory=set)
    """Spans whose move by a scheduler came to nothing lately."""
    loads: Loads = field(default_factory=Loads)
    starting: dict[SpanKey, Wait] = field(default_factory=dict)
    """Spans whose primary is to begin, the longest first (patience.py)."""
    draining: dict[SpanKey, Wait] = field(default_factory=dict)
    """Spans whose primary is to drain and seal, the longest first."""
    drained_at: dict[SessionId, float] = field(default_factory=dict)
    """When a session that is to drain something has ended a drain last (monotonic)."""
    stops: dict[tuple[SpanKey, SessionId], float] = field(default_factory=dict)
    """Who has to stop writing what before a span can be given out, and since when (monotonic), the longest first."""
    passed_over: dict[SessionId, dict[SpanKey, Epoch]] = field(default_factory=dict)
    """Sessions that have overrun a wait for a span, up to which epoch: nobody waits for them there."""
    unreviewed: deque[SpanKey] = field(default_factory=deque)
    """Spans that have to be looked at, piece by piece: all of them at the throne, those of a session that is over."""
    sweeping: dict[SessionId, deque[SpanKey]] = field(default_factory=dict)
    """What is left of a sweep that is under way."""
    avoided: dict[SpanKey, SessionId] = field(default_factory=dict)
    """Who had a span last and overran its time: others come first."""
    divisions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(feed, table) that is being divided otherwise: for which request, None for the split scheduler."""

    def issue(self) -> Epoch:
        """The next epoch: numbers are the term's, so no two assignments of a term share one."""
        self.epochs_issued += 1
        return Epoch(self.owner_rev, self.epochs_issued)


@dataclass(slots=True)
class CoordinatorState:
    """See the module's docstring. Tasks and progress are kept by span, because that is how they are asked for."""

    shard: int
    owner_rev: int = -1
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    level: int = 1
    """Schema level that the owner has announced: what a lower one cannot say is not decided (docs/adr/0008)."""
    agents: dict[SessionId, AgentAnnounced] = field(default_factory=dict)
    answers: dict[SessionId, SyncAnswered] = field(default_factory=dict)
    ended: dict[SessionId, SessionEnded] = field(default_factory=dict)
    tasks: dict[SpanKey, dict[SessionId, TaskReported]] = field(default_factory=dict)
    progress: dict[SpanKey, dict[SessionId, SpanProgressed]] = field(default_factory=dict)
    spans: dict[SpanKey, SpanDispatched] = field(default_factory=dict)
    feeds: dict[str, FeedRecorded] = field(default_factory=dict)
    feed_progress: dict[str, FeedProgressed] = field(default_factory=dict)
    requests: dict[str, PlacedRequest] = field(default_factory=dict)
    outcomes: dict[str, RequestSettled] = field(default_factory=dict)
    index: Indexes = field(default_factory=Indexes)
    term: Term | None = None

    def is_live(self, session: SessionId) -> bool:
        """The session has announced itself and is not written dead."""
        return session in self.agents and session not in self.ended


def new_state(shard: int) -> CoordinatorState:
    """A coordinator that has read nothing."""
    return CoordinatorState(shard)


def evolve(state: CoordinatorState, key: Key, value: Record | None, offset: int) -> None:
    """Adopt one record; a value whose type is not its key's says nothing and is passed over."""
    if value is not None and type(value) is not key.record:
        return
    match key:
        case SpanKey():
            _evolve_span(state, key, value)
        case TaskKey():
            _evolve_session_word(state, state.tasks, key, value)
        case ProgressKey():
            _evolve_session_word(state, state.progress, key, value)
        case FeedKey() | FeedProgressKey():
            _evolve_feed(state, key, value)
        case RequestKey() | OutcomeKey():
            _evolve_request(state, key, value, offset)
        case AgentKey() | AnswerKey() | SessionKey():
            _evolve_session(state, key, value)
        case OwnerKey() if key.shard == state.shard and isinstance(value, OwnerAnnounced):
            rev = offset if value.owner_rev is None else value.owner_rev
            state.owner_rev = max(state.owner_rev, rev)
            state.level = max(state.level, value.level)
            # A lease of 0 is a resignation, not a length of time.
            if rev == state.owner_rev and value.lease_seconds > 0:
                state.lease_seconds = value.lease_seconds
        case _:
            pass


def _evolve_span(state: CoordinatorState, key: SpanKey, value: Any) -> None:
    old = state.spans.get(key)
    if value is not None and old is not None and value.owner_rev < old.owner_rev:
        return
    if value is None:
        state.spans.pop(key, None)
    else:
        state.spans[key] = value
    state.index.part_changed(key, is_known=value is not None or key in state.tasks)
    state.index.span_changed(key, old, value, state.feeds.get(key.feed))
    _recount(state, key)


def _evolve_session_word(state: CoordinatorState, words: dict[SpanKey, Any], key: Any, value: Any) -> None:
    span, session = SpanKey(key.feed, key.span), (key.agent, key.session)
    of_span = words.get(span)
    if value is None:
        if of_span is not None:
            of_span.pop(session, None)
            if not of_span:
                del words[span]
                state.index.part_changed(span, is_known=span in state.spans or span in state.tasks)
        if session not in state.tasks.get(span, ()) and session not in state.progress.get(span, ()):
            state.index.word_forgotten(session, span)
        return
    if of_span is None:
        of_span = words[span] = {}
        state.index.part_changed(span, is_known=span in state.spans or span in state.tasks)
    old = of_span.get(session)
    if old is not None and value.epoch < old.epoch:
        return
    of_span[session] = value
    state.index.word_heard(session, span)
    _recount(state, span)


def _evolve_feed(state: CoordinatorState, key: Any, value: Any) -> None:
    records: dict[str, Any] = state.feeds if isinstance(key, FeedKey) else state.feed_progress
    old = records.get(key.feed)
    if value is not None and old is not None and value.owner_rev < old.owner_rev:
        return
    if value is None:
        records.pop(key.feed, None)
    else:
        records[key.feed] = value
    if isinstance(key, FeedKey):
        for span in state.index.feed_changed(key.feed, old, value, state.spans):
            _recount(state, span)


def _evolve_request(state: CoordinatorState, key: Any, value: Any, offset: int) -> None:
    if isinstance(key, RequestKey):
        if value is None:
            state.requests.pop(key.request, None)
        else:
            state.requests[key.request] = PlacedRequest(offset, value)
    elif value is None:
        state.outcomes.pop(key.request, None)
    else:
        old = state.outcomes.get(key.request)
        if old is None or value.owner_rev >= old.owner_rev:
            state.outcomes[key.request] = value


def _evolve_session(state: CoordinatorState, key: Any, value: Any) -> None:
    session = (key.agent, key.session)
    match key:
        case AgentKey():
            records: dict[SessionId, Any] = state.agents
        case AnswerKey():
            if key.shard != state.shard:
                return
            records = state.answers
            old = state.answers.get(session)
            if value is not None and old is not None and (value.owner_rev or -1) < (old.owner_rev or -1):
                return
        case _:
            records = state.ended
    if value is None:
        records.pop(session, None)
    else:
        records[session] = value
    state.index.session_changed(session, state.agents.get(session), is_live=state.is_live(session))
    if value is None:
        state.index.forget_session(session)


def start_counting(state: CoordinatorState) -> None:
    """At the throne: count what present primaries have said, on top of what checkpoints have said already.

    Not during replay: between topics there is no order, so a word could be met while an earlier record, in which its
    speaker was still primary, has not been replaced yet.
    """
    for name in sorted(state.index.feeds):
        state.index.feeds[name].forget_counts()
    for name in sorted(state.feeds):
        _count_floor(state, name)
    for key in sorted(state.spans):
        _recount(state, key)


def _count_floor(state: CoordinatorState, name: str) -> None:
    """What a checkpoint has said once is never taken back, unless it was another feed's under the same name."""
    feed, said = state.feeds.get(name), state.feed_progress.get(name)
    if feed is not None and said is not None and (said.feed_id, said.incarnation) == (feed.feed_id, feed.incarnation):
        for table, positions in said.positions.items():
            state.index.count(SpanKey(name, table), positions, None)


def _recount(state: CoordinatorState, key: SpanKey) -> None:
    """Count what the span's primary has said of its progress (checkpoint.py uses what is counted here).

    Only in a term, and only session *and* epoch of the primary. What a primary had done when it was followed by
    another is in the positions it sealed with, which its successor's claim returns.
    """
    record, feed = state.spans.get(key), state.feeds.get(key.feed)
    if state.term is None or record is None or record.primary is None or feed is None or feed.feed_id != record.feed_id:
        return
    role = record.primary
    session = (role.agent, role.session)
    progress = state.progress.get(key, {}).get(session)
    if progress is not None and progress.epoch == role.epoch and progress.feed_id == record.feed_id:
        state.index.count(key, progress.positions, progress)
    task = state.tasks.get(key, {}).get(session)
    if task is not None and task.epoch == role.epoch and task.feed_id == record.feed_id:
        state.index.count(key, task.positions, None)


def digest(state: CoordinatorState) -> str:
    """SHA-256 over the log part, the same for the full log, the compacted one and the live state.

    Fields at their default are left out, so that it is also the same in a version that has added some (golden logs).
    Not in it: owners' announcements (the loop's, not the machine's).
    """
    total = hashlib.sha256()
    for name, key, record in _log_part(state):
        plain = (name, msgspec.to_builtins(key), without_defaults(record))
        total.update(msgspec.json.encode(plain))
    return total.hexdigest()


def _log_part(state: CoordinatorState) -> Iterator[tuple[str, Any, msgspec.Struct]]:
    """Kind, key and record of all that was folded, in an order that only depends on what is there."""
    for name in ("agents", "answers", "ended", "spans", "feeds", "feed_progress", "requests", "outcomes"):
        for key, record in sorted(getattr(state, name).items()):
            yield name, key, record
    for name in ("tasks", "progress"):
        for span, words in sorted(getattr(state, name).items()):
            for session, record in sorted(words.items()):
                yield name, (span, session), record
