"""Keys of coordinators and agents: the subject of a fact, its topic, and who may write it.

A key is a frozen struct inside the services and UTF-8 text with ``/`` between percent-encoded parts on the wire.
"""

from typing import ClassVar, Final

from headgate.records.base import Key
from headgate.records.control import (
    AgentAnnounced,
    ChangeQuarantined,
    FeedProgressed,
    FeedRecorded,
    MemberAnnounced,
    OperationRequested,
    OwnerAnnounced,
    RequestSettled,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
)


class OwnerKey(Key, frozen=True, order=True):
    """``coordinator/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("coordinator",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class MemberKey(Key, frozen=True, order=True):
    """``member/<id>`` on announce; that of a process long silent is deleted by shard 0's owner (ADR 0007)."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class AgentKey(Key, frozen=True, order=True):
    """``agent/<agent>/<session>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("agent",)
    record: ClassVar[type] = AgentAnnounced
    agent: str
    session: str


class AnswerKey(Key, frozen=True, order=True):
    """``agent/<agent>/<session>/<shard>`` on sync."""

    topic: ClassVar[str] = "sync"
    prefix: ClassVar[tuple[str, ...]] = ("agent",)
    record: ClassVar[type] = SyncAnswered
    agent: str
    session: str
    shard: int


class TaskKey(Key, frozen=True, order=True):
    """``<feed>/<span>/<agent>/<session>`` on sync."""

    topic: ClassVar[str] = "sync"
    record: ClassVar[type] = TaskReported
    feed: str
    span: str
    agent: str
    session: str


class SessionKey(Key, frozen=True, order=True):
    """``session/<agent>/<session>`` on dispatch."""

    topic: ClassVar[str] = "dispatch"
    prefix: ClassVar[tuple[str, ...]] = ("session",)
    record: ClassVar[type] = SessionEnded
    by_owner: ClassVar[bool] = True
    agent: str
    session: str


class SpanKey(Key, frozen=True, order=True):
    """``<feed>/<span>`` on dispatch."""

    topic: ClassVar[str] = "dispatch"
    record: ClassVar[type] = SpanDispatched
    by_owner: ClassVar[bool] = True
    feed: str
    span: str


class ProgressKey(Key, frozen=True, order=True):
    """``<feed>/<span>/<agent>/<session>`` on checkpoint."""

    topic: ClassVar[str] = "checkpoint"
    record: ClassVar[type] = SpanProgressed
    feed: str
    span: str
    agent: str
    session: str


class FeedProgressKey(Key, frozen=True, order=True):
    """``<feed>`` on checkpoint."""

    topic: ClassVar[str] = "checkpoint"
    record: ClassVar[type] = FeedProgressed
    by_owner: ClassVar[bool] = True
    feed: str


class RequestKey(Key, frozen=True, order=True):
    """``request/<id>`` on changefeed, written by the client, or by the owner for a table whose rows it has copied."""

    topic: ClassVar[str] = "changefeed"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = OperationRequested
    request: str


class OutcomeKey(Key, frozen=True, order=True):
    """``outcome/<id>`` on changefeed."""

    topic: ClassVar[str] = "changefeed"
    prefix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    request: str


class FeedKey(Key, frozen=True, order=True):
    """``<feed>`` on changefeed."""

    topic: ClassVar[str] = "changefeed"
    record: ClassVar[type] = FeedRecorded
    by_owner: ClassVar[bool] = True
    feed: str


class DeadLetterKey(Key, frozen=True, order=True):
    """``<feed>/<table>/<source topic>/<partition>/<offset>`` on deadletter, written by the span's session."""

    topic: ClassVar[str] = "deadletter"
    record: ClassVar[type] = ChangeQuarantined
    feed: str
    table: str
    source_topic: str
    partition: int
    offset: int


KEYS: Final[tuple[type[Key], ...]] = (
    OwnerKey,
    MemberKey,
    AgentKey,
    AnswerKey,
    TaskKey,
    SessionKey,
    SpanKey,
    ProgressKey,
    FeedProgressKey,
    RequestKey,
    OutcomeKey,
    FeedKey,
    DeadLetterKey,
)
"""In the order in which a key's text is tried: forms with a fixed first word come first within a topic."""
