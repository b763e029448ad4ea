"""History: what each record changed about its key, as events for people.

An event follows from a record and the one that it replaced under the same key in the same partition, and from nothing
else: topics have no order between each other, so an event of two keys could differ after a rebuild. Records that
compaction has removed make no events: a history starts with what the topics still contain. If a record shows that
others may have come before it, its event is a ``…_found``, without how or when it began. (A feed's and a span's records
cannot show it: their first event is at the time of the oldest record that is left.)
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from headgate.eventlog.log import Delivery
from headgate.records.base import Record
from headgate.records.control import (
    SESSION_LEFT,
    AgentAnnounced,
    FeedRecorded,
    OwnerAnnounced,
    SessionEnded,
    SpanDispatched,
)
from headgate.records.keys import AgentKey, FeedKey, OwnerKey, SessionKey, SpanKey

EVENTS_OF_A_SUBJECT_MAX: Final = 200
"""Newest events kept of one feed, span, agent or shard: enough for days of moves, too few to fill the memory."""

SUBJECTS_MAX: Final = 20_000
"""Feeds, spans, agents and shards that have a history; the one that changed longest ago goes first."""

TIMELINE_EVENTS_MAX: Final = 2_000
"""Newest moves and failovers of the whole cluster."""

FIRST_HEARTBEAT: Final = 1
"""Of a session; a record with a higher number is not its first."""

TIMELINE: Final = frozenset(
    {"move_begun", "moved", "move_given_up", "assigned", "unassigned", "session_lost", "session_left"}
    | {"owner_took_over", "owner_followed", "owner_resigned"}
)
"""Kinds of events in the timeline: which agent runs what, and why that changed."""


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change, at the record's own time (``at_ms`` since 1970, by its writer's clock) and place on the topics.

    ``is_failover``: another process took over without a request.
    """

    at_ms: int
    kind: str
    topic: str
    partition: int
    offset: int
    feed: str | None = None
    span: str | None = None
    agent: str | None = None
    session: str | None = None
    shard: int | None = None
    owner: str | None = None
    state: str | None = None
    from_agent: str | None = None
    epoch: str | None = None
    detail: str | None = None
    is_failover: bool = False


def events_of(before: Record | None, read: Delivery, at_ms: int) -> list[HistoryEvent]:
    """What a record changed about its key; ``before`` is the one that it replaced there, None if there was none."""
    make = _Maker(read, at_ms)
    # Checked by name: a key's record is of one type (records/keys.py).
    match read.key:
        case FeedKey():
            return list(_of_feed(make, read.key, before, read.value))
        case SpanKey():
            return list(_of_span(make, read.key, before, read.value))
        case AgentKey():
            return list(_of_agent(make, read.key, before, read.value))
        case SessionKey():
            return list(_of_session(make, read.key, before, read.value))
        case OwnerKey():
            return list(_of_owner(make, read.key, before, read.value))
        case _:
            return []


class History:
    """Events by subject and in one timeline, bounded."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[tuple[Any, ...], deque[HistoryEvent]] = OrderedDict()
        self._timeline: deque[HistoryEvent] = deque(maxlen=TIMELINE_EVENTS_MAX)

    def add(self, event: HistoryEvent) -> None:
        """One event more; those of one partition come in its order."""
        for subject in _subjects(event):
            events = self._subjects.setdefault(subject, deque(maxlen=EVENTS_OF_A_SUBJECT_MAX))
            self._subjects.move_to_end(subject)
            events.append(event)
            if len(self._subjects) > SUBJECTS_MAX:
                self._subjects.popitem(last=False)
        if event.kind in TIMELINE:
            self._timeline.append(event)

    def feed(self, feed: str) -> list[HistoryEvent]:
        """The history of a feed, oldest first."""
        return self._of("feed", feed)

    def span(self, feed: str, span: str) -> list[HistoryEvent]:
        """Who had a table, or a part of one, oldest first."""
        return self._of("span", feed, span)

    def agent(self, agent: str) -> list[HistoryEvent]:
        """An agent's sessions, and what they were given, oldest first."""
        return self._of("agent", agent)

    def shard(self, shard: int) -> list[HistoryEvent]:
        """The owners of a shard, oldest first."""
        return self._of("shard", shard)

    def timeline(self) -> list[HistoryEvent]:
        """Moves and failovers, oldest first."""
        return sorted(self._timeline, key=_when)

    def _of(self, *subject: Any) -> list[HistoryEvent]:
        return sorted(self._subjects.get(subject, ()), key=_when)


def _when(event: HistoryEvent) -> tuple[int, str, int, int]:
    return event.at_ms, event.topic, event.partition, event.offset


def _subjects(event: HistoryEvent) -> Iterator[tuple[Any, ...]]:
    if event.topic == "changefeed":
        yield "feed", event.feed
    if event.span is not None:
        yield "span", event.feed, event.span
    for agent in sorted({event.agent, event.from_agent} - {None}, key=str):
        yield "agent", agent
    if event.owner is not None:
        yield "shard", event.shard


class _Maker:
    """Events of one record: its time and place are filled in."""

    def __init__(self, read: Delivery, at_ms: int) -> None:
        self._place: dict[str, Any] = {
            "topic": read.partition.topic,
            "partition": read.partition.number,
            "offset": read.offset,
        }
        self._at_ms = at_ms

    def __call__(self, kind: str, **facts: Any) -> HistoryEvent:
        return HistoryEvent(at_ms=self._at_ms, kind=kind, **self._place, **facts)


_Make = Callable[..., HistoryEvent]


def _of_feed(make: _Make, key: FeedKey, before: Record | None, now: Record | None) -> Iterator[HistoryEvent]:
    if now is None:
        yield make("feed_forgotten", feed=key.feed)
    if not isinstance(now, FeedRecorded):
        return
    old = before if isinstance(before, FeedRecorded) and before.feed_id == now.feed_id else None
    facts = {"feed": key.feed, "state": now.state.value}
    if old is None:
        yield make("feed_created", **facts, detail=f"{now.feed_id}: {len(now.spans)} spans, wanted {now.wanted.value}")
        return
    if (old.state, old.wanted, old.error) != (now.state, now.wanted, now.error):
        yield make("feed_changed", **facts, detail=now.error or f"wanted {now.wanted.value}")
    if old.incarnation != now.incarnation:
        yield make("feed_rewound", **facts, detail=f"incarnation {now.incarnation}")
    if old.revision != now.revision:
        yield make("feed_updated", **facts, detail=f"revision {now.revision}")
    if old.spans != now.spans:
        yield make("feed_divided", **facts, detail=f"{len(old.spans)} spans became {len(now.spans)}")


def _of_span(make: _Make, key: SpanKey, before: Record | None, now: Record | None) -> Iterator[HistoryEvent]:
    if not isinstance(now, SpanDispatched):
        return
    old = before if isinstance(before, SpanDispatched) and before.feed_id == now.feed_id else None
    names = {"feed": key.feed, "span": key.span, "state": now.state.value}
    was, has = (None if old is None else old.primary), now.primary
    coming = None if old is None else old.secondary
    if now.secondary is not None and now.secondary != coming:
        yield make(
            "move_begun",
            **names,
            agent=now.secondary.agent,
            session=now.secondary.session,
            from_agent=None if has is None else has.agent,
            epoch=str(now.secondary.epoch),
        )
    if coming is not None and now.secondary is None and _session(coming) != _session(has):
        yield make("move_given_up", **names, agent=coming.agent, session=coming.session, detail=now.last_error)
    if _session(has) != _session(was):
        if has is None and was is not None:
            yield make("unassigned", **names, from_agent=was.agent, detail=now.last_error)
        elif has is not None:
            kind = "moved" if _session(coming) == _session(has) and was is not None else "assigned"
            facts = {"agent": has.agent, "session": has.session, "epoch": str(has.epoch)}
            yield make(kind, **names, **facts, from_agent=None if was is None else was.agent)
    elif old is not None and old.state != now.state:
        yield make("state_changed", **names, agent=None if has is None else has.agent, detail=now.last_error)
    if now.failures > (0 if old is None else old.failures):
        yield make("failed", **names, detail=now.last_error)


def _session(role: Any) -> tuple[str, str] | None:
    return None if role is None else (role.agent, role.session)


def _of_agent(make: _Make, key: AgentKey, before: Record | None, now: Record | None) -> Iterator[HistoryEvent]:
    if not isinstance(now, AgentAnnounced):
        return
    names = {"agent": key.agent, "session": key.session, "state": now.liveness.value}
    if not isinstance(before, AgentAnnounced):
        kind = "session_announced" if now.heartbeat == FIRST_HEARTBEAT else "session_found"
        yield make(kind, **names, detail=f"version {now.version}")
    elif before.liveness != now.liveness:
        yield make("session_stopping", **names)


def _of_session(make: _Make, key: SessionKey, before: Record | None, now: Record | None) -> Iterator[HistoryEvent]:
    if not isinstance(now, SessionEnded) or before is not None:
        return
    left = now.reason.startswith(SESSION_LEFT)
    kind = "session_left" if left else "session_lost"
    yield make(kind, agent=key.agent, session=key.session, detail=now.reason, is_failover=not left)


def _of_owner(make: _Make, key: OwnerKey, before: Record | None, now: Record | None) -> Iterator[HistoryEvent]:
    if not isinstance(now, OwnerAnnounced):
        return
    names = {"shard": key.shard, "owner": now.owner_id}
    old = before if isinstance(before, OwnerAnnounced) else None
    if now.lease_seconds <= 0:
        if old is None or old.lease_seconds > 0:
            yield make("owner_resigned", **names)
    elif old is None:
        yield make("owner_found", **names)
    elif now.owner_rev is None:
        # The first record of a term has no owner_rev: it is that record's offset.
        abandoned = old.lease_seconds > 0
        kind = "owner_took_over" if abandoned else "owner_followed"
        yield make(kind, **names, detail=f"after {old.owner_id}", is_failover=abandoned)
