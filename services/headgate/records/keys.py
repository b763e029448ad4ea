"""Keys of the control topics: who a fact is about, on which topic it stands, and who may write it.

One table (``KEY_FORMS``) gives for each key its topic, its text form and the one record type its value has. A key is
a frozen struct inside the services and UTF-8 text with ``/`` between percent-encoded parts on the wire.
"""

import sys
from typing import Any, ClassVar, Final, cast

import msgspec

from headgate.records.control import (
    AgentAnnounced,
    ChangeQuarantined,
    FeedProgressed,
    FeedRecorded,
    MemberAnnounced,
    OperationRequested,
    OwnerAnnounced,
    Record,
    RequestSettled,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
)
from headgate.records.generation import (
    GenerationDescribed,
    GenerationRequested,
    ReaderReported,
    SetRecorded,
    WriterReported,
)
from headgate.records.migration import MigrationRecorded, MigrationRequested
from headgate.records.names import decode_part, encode_part, is_plain

__all__ = [
    "KEY_FORMS",
    "AgentKey",
    "AnswerKey",
    "ChunkKey",
    "DeadLetterKey",
    "Fact",
    "FeedKey",
    "FeedProgressKey",
    "GenerationMemberKey",
    "GenerationOutcomeKey",
    "GenerationOwnerKey",
    "GenerationRequestKey",
    "Key",
    "MalformedKeyError",
    "MemberKey",
    "MigrationKey",
    "MigrationMemberKey",
    "MigrationOutcomeKey",
    "MigrationOwnerKey",
    "MigrationRequestKey",
    "OutcomeKey",
    "OwnerKey",
    "ProgressKey",
    "ReaderKey",
    "RequestKey",
    "SessionKey",
    "SetKey",
    "SpanKey",
    "TaskKey",
    "WriterKey",
    "parse_key",
]


class MalformedKeyError(ValueError):
    """A key that has none of the forms its topic knows."""


class _KeyBase(msgspec.Struct, frozen=True, order=True):
    topic: ClassVar[str]
    prefix: ClassVar[tuple[str, ...]] = ()
    infix: ClassVar[tuple[str, ...]] = ()
    record: ClassVar[type]
    by_owner: ClassVar[bool] = False
    names_owner: ClassVar[bool] = False
    """Whether an owner of a shard announces itself under it."""

    def text(self) -> str:
        """The key as it stands on the topic."""
        first, *rest = map(str, msgspec.structs.astuple(self))
        parts = [*self.prefix, first, *self.infix, *rest]
        text = "/".join(parts)
        # Names within the grammar stand as they are; one look at the whole tells, for every record that is written.
        if text.count("/") == len(parts) - 1 and is_plain(text):
            return text
        return "/".join(map(encode_part, parts))


class OwnerKey(_KeyBase, frozen=True, order=True):
    """``coordinator/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("coordinator",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class MemberKey(_KeyBase, frozen=True, order=True):
    """``member/<id>`` on announce; that of a process long silent is shard 0's owner's to delete (ADR 0007)."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class AgentKey(_KeyBase, frozen=True, order=True):
    """``agent/<agent>/<session>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("agent",)
    record: ClassVar[type] = AgentAnnounced
    agent: str
    session: str


class AnswerKey(_KeyBase, frozen=True, order=True):
    """``agent/<agent>/<session>/<shard>`` on sync."""

    topic: ClassVar[str] = "sync"
    prefix: ClassVar[tuple[str, ...]] = ("agent",)
    record: ClassVar[type] = SyncAnswered
    agent: str
    session: str
    shard: int


class TaskKey(_KeyBase, frozen=True, order=True):
    """``<feed>/<span>/<agent>/<session>`` on sync."""

    topic: ClassVar[str] = "sync"
    record: ClassVar[type] = TaskReported
    feed: str
    span: str
    agent: str
    session: str


class SpanKey(_KeyBase, frozen=True, order=True):
    """``<feed>/<span>`` on dispatch."""

    topic: ClassVar[str] = "dispatch"
    record: ClassVar[type] = SpanDispatched
    by_owner: ClassVar[bool] = True
    feed: str
    span: str


class SessionKey(_KeyBase, frozen=True, order=True):
    """``session/<agent>/<session>`` on dispatch."""

    topic: ClassVar[str] = "dispatch"
    prefix: ClassVar[tuple[str, ...]] = ("session",)
    record: ClassVar[type] = SessionEnded
    by_owner: ClassVar[bool] = True
    agent: str
    session: str


class ProgressKey(_KeyBase, frozen=True, order=True):
    """``<feed>/<span>/<agent>/<session>`` on checkpoint."""

    topic: ClassVar[str] = "checkpoint"
    record: ClassVar[type] = SpanProgressed
    feed: str
    span: str
    agent: str
    session: str


class FeedProgressKey(_KeyBase, frozen=True, order=True):
    """``<feed>`` on checkpoint."""

    topic: ClassVar[str] = "checkpoint"
    record: ClassVar[type] = FeedProgressed
    by_owner: ClassVar[bool] = True
    feed: str


class RequestKey(_KeyBase, frozen=True, order=True):
    """``request/<id>`` on changefeed, written by whoever asks."""

    topic: ClassVar[str] = "changefeed"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = OperationRequested
    request: str


class OutcomeKey(_KeyBase, frozen=True, order=True):
    """``outcome/<id>`` on changefeed."""

    topic: ClassVar[str] = "changefeed"
    prefix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    request: str


class FeedKey(_KeyBase, frozen=True, order=True):
    """``<feed>`` on changefeed."""

    topic: ClassVar[str] = "changefeed"
    record: ClassVar[type] = FeedRecorded
    by_owner: ClassVar[bool] = True
    feed: str


class DeadLetterKey(_KeyBase, frozen=True, order=True):
    """``<feed>/<table>/<source topic>/<partition>/<offset>`` on deadletter, written by the span's session."""

    topic: ClassVar[str] = "deadletter"
    record: ClassVar[type] = ChangeQuarantined
    feed: str
    table: str
    source_topic: str
    partition: int
    offset: int


class GenerationOwnerKey(_KeyBase, frozen=True, order=True):
    """``generation/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("generation",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class GenerationMemberKey(_KeyBase, frozen=True, order=True):
    """``generation-member/<id>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("generation-member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class GenerationRequestKey(_KeyBase, frozen=True, order=True):
    """``<set>/request/<id>`` on generation, written by whoever asks."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = GenerationRequested
    set: str
    request: str


class GenerationOutcomeKey(_KeyBase, frozen=True, order=True):
    """``<set>/outcome/<id>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    set: str
    request: str


class WriterKey(_KeyBase, frozen=True, order=True):
    """``<set>/writer/<writer>/<life>`` on generation, written by that life; the owner deletes it when it is over."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("writer",)
    record: ClassVar[type] = WriterReported
    set: str
    writer: str
    life: int


class ReaderKey(_KeyBase, frozen=True, order=True):
    """``<set>/reader/<reader>`` on generation, written by that reader."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("reader",)
    record: ClassVar[type] = ReaderReported
    set: str
    reader: str


class ChunkKey(_KeyBase, frozen=True, order=True):
    """``<set>/<epoch>/<chunk>`` on generation."""

    topic: ClassVar[str] = "generation"
    record: ClassVar[type] = GenerationDescribed
    by_owner: ClassVar[bool] = True
    set: str
    epoch: int
    chunk: int


class SetKey(_KeyBase, frozen=True, order=True):
    """``<set>`` on generation."""

    topic: ClassVar[str] = "generation"
    record: ClassVar[type] = SetRecorded
    by_owner: ClassVar[bool] = True
    set: str


class MigrationOwnerKey(_KeyBase, frozen=True, order=True):
    """``migration/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("migration",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class MigrationMemberKey(_KeyBase, frozen=True, order=True):
    """``migration-member/<id>`` on announce: a process that could own the migrations."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("migration-member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class MigrationRequestKey(_KeyBase, frozen=True, order=True):
    """``request/<id>`` on migration, written by whoever asks."""

    topic: ClassVar[str] = "migration"
    prefix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = MigrationRequested
    request: str


class MigrationOutcomeKey(_KeyBase, frozen=True, order=True):
    """``outcome/<id>`` on migration."""

    topic: ClassVar[str] = "migration"
    prefix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    request: str


class MigrationKey(_KeyBase, frozen=True, order=True):
    """``<migration>`` on migration."""

    topic: ClassVar[str] = "migration"
    record: ClassVar[type] = MigrationRecorded
    by_owner: ClassVar[bool] = True
    migration: str


Key = (
    OwnerKey
    | MemberKey
    | AgentKey
    | AnswerKey
    | TaskKey
    | SpanKey
    | SessionKey
    | ProgressKey
    | FeedProgressKey
    | RequestKey
    | OutcomeKey
    | FeedKey
    | DeadLetterKey
    | GenerationOwnerKey
    | GenerationMemberKey
    | GenerationRequestKey
    | GenerationOutcomeKey
    | WriterKey
    | ReaderKey
    | ChunkKey
    | SetKey
    | MigrationOwnerKey
    | MigrationMemberKey
    | MigrationRequestKey
    | MigrationOutcomeKey
    | MigrationKey
)

# Forms with a fixed first word come first within a topic: the word is reserved, so no feed can have it.
KEY_FORMS: Final[dict[str, tuple[type[Key], ...]]] = {
    "announce": (
        OwnerKey,
        MemberKey,
        AgentKey,
        GenerationOwnerKey,
        GenerationMemberKey,
        MigrationOwnerKey,
        MigrationMemberKey,
    ),
    "sync": (AnswerKey, TaskKey),
    "dispatch": (SessionKey, SpanKey),
    "checkpoint": (ProgressKey, FeedProgressKey),
    "changefeed": (RequestKey, OutcomeKey, FeedKey),
    "deadletter": (DeadLetterKey,),
    "generation": (GenerationRequestKey, GenerationOutcomeKey, WriterKey, ReaderKey, ChunkKey, SetKey),
    "migration": (MigrationRequestKey, MigrationOutcomeKey, MigrationKey),
}

_OF_NAMES_ONLY: Final[frozenset[Any]] = frozenset(
    form
    for forms in KEY_FORMS.values()
    for form in forms
    if all(field.type is str for field in msgspec.structs.fields(form))
)
"""Forms without a number, for which there is nothing to convert: keys are parsed for every record that is read."""


class Fact(msgspec.Struct, frozen=True):
    """A key with its new value; ``None`` deletes the key (a tombstone)."""

    key: Key
    value: Record | None


def parse_key(topic: str, text: str) -> Key:
    """The typed key of ``text`` on control topic ``topic`` (name without prefix), or MalformedKeyError."""
    parts = text.split("/")
    for form in KEY_FORMS[topic]:
        names = form.__struct_fields__
        fixed = len(form.prefix)
        behind = fixed + 1 + len(form.infix)
        if len(parts) != fixed + len(form.infix) + len(names) or tuple(parts[:fixed]) != form.prefix:
            continue
        if tuple(parts[fixed + 1 : behind]) != form.infix:
            continue
        told = [parts[fixed], *parts[behind:]]
        try:
            if form in _OF_NAMES_ONLY and is_plain(text):
                # A name stands in many keys; kept once, it takes a third off a coordinator's memory.
                return cast("Key", cast("Any", form)(*map(sys.intern, told)))
            values = {name: decode_part(part) for name, part in zip(names, told, strict=True)}
            key: Key = msgspec.convert(values, form, strict=False)
        except (UnicodeDecodeError, msgspec.ValidationError) as error:
            raise MalformedKeyError(f"key {text!r} on {topic}: {error}") from error
        if key.text() == text:
            return key
    raise MalformedKeyError(f"key {text!r} has no form known on topic {topic}")
