"""The coordinator's state: the newest record of every key, indexes derived from them, and one term's memory.

Three parts, kept apart because their lifetimes differ:

- **the log part**, one map per kind of key. ``evolve`` folds records into it by one rule: a record replaces its key's
  record unless its (owner_rev, or epoch) is lower; nothing else is checked. ``digest`` covers this part only: replay
  of the full log, replay of the compacted one and the live state give the same.
- **indexes** (index.py), kept by ``evolve`` along with the maps, so that no query costs all spans. They read several
  keys, hence give the same for every order in which the topics are read, except the merged positions, which only grow.
- **the term** (term.py): what this owner has seen that is in no record. Only ``decide`` writes it; it ends with the
  term, as the loop's timers do.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.coordinator.core.index import Indexes
from headgate.coordinator.core.span_predicates import is_erring, is_word_of
from headgate.coordinator.core.term import SessionId, TermMemory
from headgate.records.base import Key, Record
from headgate.records.control import (
    AgentAnnounced,
    FeedProgressed,
    FeedRecorded,
    OperationRequested,
    OwnerAnnounced,
    RequestSettled,
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
    OutcomeKey,
    OwnerKey,
    ProgressKey,
    RequestKey,
    SessionKey,
    SpanKey,
    TaskKey,
)
from headgate.records.row_copies import is_snapshot
from headgate.runtime.machine import OFFSET_UNKNOWN

LEASE_SECONDS_DEFAULT: Final = 5.0
"""The default lease, until an owner's record contains another."""


class PlacedRequest(msgspec.Struct, frozen=True):
    """An operator's request and its position: its offset orders requests and names the feed it creates."""

    offset: int
    request: OperationRequested


@dataclass(slots=True)
class CoordinatorState:
    """See the module's docstring. Tasks and progress are kept by span, because that is how they are looked up."""

    shard: int
    owner_rev: int = -1
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    level: int = 1
    """Schema level that the owner has announced: what a lower one cannot express is not decided (docs/adr/0008)."""
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
    term: TermMemory | None = None

    def is_live(self, session: SessionId) -> bool:
        """The session has announced itself and is not written dead."""
        return session in self.agents and session not in self.ended

    def word_of_primary(self, key: SpanKey, record: SpanDispatched | None) -> TaskReported | None:
        """The primary's last report about this assignment of ``record``; None if it has reported nothing yet."""
        if record is None or record.primary is None:
            return None
        word = self.tasks.get(key, {}).get((record.primary.agent, record.primary.session))
        return word if word is not None and is_word_of(record, word) else None

    def is_starting(self, session: SessionId) -> bool:
        """The session lives and has not reported yet that it can run anything; so no owner has assigned it anything."""
        is_heard = session in self.answers or session in self.index.roles or session in self.index.words
        return self.is_live(session) and not is_heard


def new_state(shard: int) -> CoordinatorState:
    """A coordinator that has read nothing."""
    return CoordinatorState(shard)


def evolve(state: CoordinatorState, key: Key, value: Record | None, offset: int) -> None:
    """Adopt one record; a value whose type is not its key's is ignored."""
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
    _note_error(state, key)
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
        _note_error(state, span)
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
    _note_error(state, span)
    _recount(state, span)


def _note_error(state: CoordinatorState, key: SpanKey) -> None:
    record = state.spans.get(key)
    state.index.error_changed(key, is_erring=is_erring(record, state.word_of_primary(key, record)))


def _evolve_feed(state: CoordinatorState, key: Any, value: Any) -> None:
    records: dict[str, Any] = state.feeds if isinstance(key, FeedKey) else state.feed_progress
    old = records.get(key.feed)
    if value is not None and old is not None and value.owner_rev < old.owner_rev:
        return
    if value is None:
        records.pop(key.feed, None)
    else:
        records[key.feed] = value
    if isinstance(key, FeedProgressKey):
        state.index.unapplied_changed(key.feed, {} if value is None else value.unapplied or {})
    if isinstance(key, FeedKey):
        for span in state.index.feed_changed(key.feed, old, value, state.spans):
            _recount(state, span)


def _evolve_request(state: CoordinatorState, key: Any, value: Any, offset: int) -> None:
    if isinstance(key, RequestKey):
        if value is None:
            state.requests.pop(key.request, None)
        else:
            # An owner adopts its own request before that has an offset, and reads it again. It needs none.
            placed = OFFSET_UNKNOWN if is_snapshot(key.request) else offset
            state.requests[key.request] = PlacedRequest(placed, value)
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
    """When a term begins: count what current primaries have reported, on top of what checkpoints already contain.

    Not during replay: records of different topics have no order, so a report could be read while an earlier record, in
    which its sender was still primary, has not been replaced yet.
    """
    for name in sorted(state.index.feeds):
        state.index.feeds[name].forget_counts()
    for name in sorted(state.feeds):
        _count_floor(state, name)
    for key in sorted(state.spans):
        _recount(state, key)


def _count_floor(state: CoordinatorState, name: str) -> None:
    """The positions of a checkpoint are never taken back, unless it was another feed's under the same name."""
    feed, said = state.feeds.get(name), state.feed_progress.get(name)
    if feed is not None and said is not None and (said.feed_id, said.incarnation) == (feed.feed_id, feed.incarnation):
        for table, positions in said.positions.items():
            state.index.count(SpanKey(name, table), positions, None)


def _recount(state: CoordinatorState, key: SpanKey) -> None:
    """Count the progress that the span's primary has reported (checkpoint.py uses what is counted here).

    Only in a term, and only session *and* epoch of the primary. What an earlier primary had done is in the positions
    it sealed with, which its successor's claim returns.
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
    Owners' announcements are not included (they belong to the loop, not the machine).
    """
    total = hashlib.sha256()
    for name, key, record in _log_part(state):
        plain = (name, msgspec.to_builtins(key), without_defaults(record))
        total.update(msgspec.json.encode(plain))
    return total.hexdigest()


def _log_part(state: CoordinatorState) -> Iterator[tuple[str, Any, msgspec.Struct]]:
    """Kind, key and record of everything that was folded, in an order that depends only on the contents."""
    for name in ("agents", "answers", "ended", "spans", "feeds", "feed_progress", "requests", "outcomes"):
        for key, record in sorted(getattr(state, name).items()):
            yield name, key, record
    for name in ("tasks", "progress"):
        for span, words in sorted(getattr(state, name).items()):
            for session, record in sorted(words.items()):
                yield name, (span, session), record
