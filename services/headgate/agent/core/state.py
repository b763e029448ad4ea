"""The state of an agent's session: the newest records that concern it, and how another one is adopted.

``evolve`` is the only thing that changes it. A stale owner's record cannot come in behind a newer owner's.
"""

from typing import Any

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.records.base import Key, Record
from headgate.records.control import (
    Assignment,
    FeedRecorded,
    OperationKind,
    OperationRequested,
    OwnerAnnounced,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
    TaskState,
)
from headgate.records.keys import AnswerKey, FeedKey, OwnerKey, ProgressKey, RequestKey, SessionKey, SpanKey, TaskKey


class AgentState(msgspec.Struct):
    """What one session knows: the newest record per key, of the keys that concern it.

    ``dispatched`` holds the records that name this session or a span it has run, ``revs`` the owner_rev of every
    span's newest record, so that a stale owner's cannot come in behind it. ``level`` is the highest that an owner has
    requested to write at. ``copies`` has what resync_table requests name, by request.
    """

    agent: str
    session: str
    shards: int
    owners: dict[int, int]
    answers: dict[int, int | None]
    feeds: dict[str, FeedRecorded]
    revs: dict[SpanId, int]
    dispatched: dict[SpanId, SpanDispatched]
    reports: dict[SpanId, TaskReported]
    progress: dict[SpanId, SpanProgressed]
    ended: str | None
    level: int = 1
    copies: dict[str, str] = {}


def new_state(agent: str, session: str, shards: int) -> AgentState:
    """A session that has read nothing."""
    return AgentState(agent, session, shards, {}, {}, {}, {}, {}, {}, {}, None)


def task_count(state: AgentState) -> int:
    """Tasks that still run something, by the session's own reports."""
    return sum(report.state not in {TaskState.STOPPED, TaskState.FAILED} for report in state.reports.values())


def evolve(state: AgentState, key: Key, value: Record | None, offset: int) -> None:
    """Adopt one record; keys that do not concern a session are skipped."""
    match key:
        case OwnerKey(shard=shard) if isinstance(value, OwnerAnnounced):
            rev = offset if value.owner_rev is None else value.owner_rev
            state.owners[shard] = max(rev, state.owners.get(shard, -1))
            state.level = max(value.level, state.level)
        case SpanKey(feed=feed, span=span):
            _evolve_dispatch(state, SpanId(feed, span), value)
        case FeedKey(feed=feed):
            if isinstance(value, FeedRecorded):
                present = state.feeds.get(feed)
                if present is None or value.owner_rev >= present.owner_rev:
                    state.feeds[feed] = value
            else:
                state.feeds.pop(feed, None)
        case RequestKey(request=request):
            _evolve_request(state, request, value)
        case SessionKey(agent=state.agent, session=state.session) if isinstance(value, SessionEnded):
            state.ended = value.reason
        case AnswerKey(agent=state.agent, session=state.session, shard=shard) if isinstance(value, SyncAnswered):
            state.answers[shard] = value.owner_rev
        case TaskKey(agent=state.agent, session=state.session):
            _evolve_word(state.reports, SpanId(key.feed, key.span), value, TaskReported)
        case ProgressKey(agent=state.agent, session=state.session):
            _evolve_word(state.progress, SpanId(key.feed, key.span), value, SpanProgressed)
        case _:
            pass


def _evolve_request(state: AgentState, request: str, value: Record | None) -> None:
    if isinstance(value, OperationRequested) and value.kind is OperationKind.RESYNC_TABLE:
        state.copies[request] = value.spec or ""
    else:
        state.copies.pop(request, None)


def _evolve_word(words: dict[SpanId, Any], span: SpanId, value: Record | None, kind: type[Record]) -> None:
    if isinstance(value, kind):
        words[span] = value
    elif value is None:
        words.pop(span, None)


def _evolve_dispatch(state: AgentState, span: SpanId, value: Record | None) -> None:
    if not isinstance(value, SpanDispatched):
        state.dispatched.pop(span, None)
        return
    if value.owner_rev < state.revs.get(span, -1):
        return
    state.revs[span] = value.owner_rev
    if span in state.reports or span in state.dispatched or role_of(state, value) is not None:
        state.dispatched[span] = value


def role_of(state: AgentState, record: SpanDispatched) -> Assignment | None:
    """This session's role in a record; the primary's comes first."""
    for role in (record.primary, record.secondary):
        if role is not None and (role.agent, role.session) == (state.agent, state.session):
            return role
    return None
