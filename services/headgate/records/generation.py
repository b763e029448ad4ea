"""Records of the topic ``generation``: change logs whose partitions are changed while they are written and read.

A *set* is one change log: a topic, its generations, its writers and its readers. Its owner writes ``<set>``, the state
of all its generations as one whole record, and ``<set>/<epoch>/<chunk>``, the streams of one generation, which are
written once and never changed. They are in the transaction of the first ``<set>`` that names the generation.
"""

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from headgate.records.base import Key
from headgate.records.control import MemberAnnounced, OwnerAnnounced, RequestSettled


class GenerationPhase(StrEnum):
    """The state of a generation. One that is retired no longer has a record.

    ``closing``: its successor is committed, but not every writer has ended the streams that are closed by it.
    """

    PREPARED = "prepared"
    COMMITTED = "committed"
    CLOSING = "closing"
    SUPERSEDED = "superseded"
    DRAINED = "drained"
    ABORTED = "aborted"


class GenerationRequestKind(StrEnum):
    """What an operator can ask for."""

    CREATE = "create"
    SWITCH = "switch"
    ABORT = "abort"
    REPAIR = "repair"
    RETIRE = "retire"
    GROW = "grow"
    DELETE = "delete"


class StreamDescribed(msgspec.Struct, frozen=True):
    """One stream: tokens (``start``, ``end``] on ``partition`` from ``start_offset`` on; ids are 32 hexadecimal digits.

    ``generation`` opened it; ``parents`` are the streams of earlier generations whose tokens it took over.
    """

    id: str
    start: int
    end: int
    partition: int
    generation: int
    start_offset: int
    parents: tuple[str, ...]


class GenerationDescribed(msgspec.Struct, frozen=True):
    """``<set>/<epoch>/<chunk>``: a part of a generation's streams, in the order of their ranges. Never overwritten."""

    owner_rev: int
    chunks: int
    streams: tuple[StreamDescribed, ...]


class WriterCut(msgspec.Struct, frozen=True):
    """What a switch needs from one writer, and what it has.

    ``position``: the highest position of its source that it may have written to the streams that are closed; null until
    it has promised. ``life`` null: it no longer writes (it has left, or was fenced). ``ended``: its END markers are
    written.
    """

    writer: str
    life: int | None
    position: int | None
    ended: bool


class GenerationRecorded(msgspec.Struct, frozen=True):
    """One generation of a set, and what its switch needs from which writer. ``follows``: the one before it, 0 for none.

    ``closed_ends``: where the streams end that its switch has closed, by partition: the offset after the last record.
    Known once every writer has ended them, and the generation before is superseded.
    """

    epoch: int
    phase: GenerationPhase
    chunks: int
    follows: int
    cuts: tuple[WriterCut, ...]
    closed_ends: dict[int, int]
    requests: tuple[str, ...]
    reason: str
    changed_ms: int


class WriterAdmitted(msgspec.Struct, frozen=True):
    """The last incarnation of a writer that may write. ``is_over``: it no longer may; only a later one may."""

    writer: str
    life: int
    is_over: bool


class SetRecorded(msgspec.Struct, frozen=True):
    """``<set>``: the change log and all its generations that are not retired, in the order of their epochs.

    An empty ``topic``: the change log was deleted. The record stays, so that a new one of this name gets later epochs:
    late reports of the old one's writers and readers then have no effect on the new one.
    """

    owner_rev: int
    topic: str
    topic_id: str | None
    partitions: int
    last_epoch: int
    generations: tuple[GenerationRecorded, ...]
    writers: tuple[WriterAdmitted, ...]


class KeyLoad(msgspec.Struct, frozen=True):
    """How many changes had keys with this token."""

    token: int
    changes: int


class StreamLoad(msgspec.Struct, frozen=True):
    """What a writer has written to one stream in the last ``seconds``; ``keys`` is a sample, ascending by token."""

    stream: str
    changes: int
    seconds: float
    keys: tuple[KeyLoad, ...]


class WriterReported(msgspec.Struct, frozen=True):
    """``<set>/writer/<writer>/<life>``: an incarnation of a writer, and how far it has followed the generations.

    ``epoch`` is the generation by which it writes (0: none yet); it has ended every stream that switches up to
    ``epoch`` have closed. ``promised_epoch`` and ``promise``: it holds back what that switch closes, and has written no
    position above ``promise`` there. ``leaving``: it has stopped permanently; ``promise`` is its last position then.
    """

    epoch: int
    promised_epoch: int
    promise: int
    leaving: bool
    loads: tuple[StreamLoad, ...]
    reported_ms: int


class ReaderReported(msgspec.Struct, frozen=True):
    """``<set>/reader/<reader>``: every stream that was closed by the switches up to ``read_epoch`` has been read."""

    read_epoch: int
    reported_ms: int


class StreamsRecut(msgspec.Struct, frozen=True):
    """Neighbouring streams whose tokens are cut again after each of ``cuts``; none: they are merged."""

    streams: tuple[str, ...]
    cuts: tuple[int, ...]


class GenerationRequested(msgspec.Struct, frozen=True):
    """``<set>/request/<id>``: the request of an operator, or a plan.

    ``topic``, ``partitions`` and ``streams`` are for create, ``partitions`` for grow; ``changes`` for switch, made for
    generation ``epoch``.
    """

    kind: GenerationRequestKind
    topic: str
    partitions: int
    streams: int
    epoch: int
    changes: tuple[StreamsRecut, ...]
    requested_by: str
    requested_ms: int


class LoadPolicy(msgspec.Struct, frozen=True):
    """The loads at which a change log is re-partitioned, and how often (generation/changelog/core/planning.py)."""

    split_above_per_second: float
    merge_below_per_second: float
    streams_max: int
    streams_min: int
    settle_seconds: float
    changes_max: int
    cool_down_seconds: float


class PolicyRequested(msgspec.Struct, frozen=True):
    """``<set>/policy/<id>``: an operator wants the owner to re-partition the log by itself; no policy: no longer."""

    policy: LoadPolicy | None
    requested_by: str
    requested_ms: int


class AutomaticRecorded(msgspec.Struct, frozen=True):
    """``<set>/automatic``: autoscaling is on. ``suspended``: why it pauses until a policy is set again; or empty."""

    owner_rev: int
    policy: LoadPolicy
    set_by: str
    set_ms: int
    suspended: str


class GenerationOwnerKey(Key, frozen=True, order=True):
    """``generation/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("generation",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class GenerationMemberKey(Key, frozen=True, order=True):
    """``generation-member/<id>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("generation-member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


class GenerationRequestKey(Key, frozen=True, order=True):
    """``<set>/request/<id>`` on generation, written by the client."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("request",)
    record: ClassVar[type] = GenerationRequested
    set: str
    request: str


class GenerationOutcomeKey(Key, frozen=True, order=True):
    """``<set>/outcome/<id>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("outcome",)
    record: ClassVar[type] = RequestSettled
    by_owner: ClassVar[bool] = True
    set: str
    request: str


class PolicyRequestKey(Key, frozen=True, order=True):
    """``<set>/policy/<id>`` on generation, written by the client; its outcome is stored where those of requests are."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("policy",)
    record: ClassVar[type] = PolicyRequested
    set: str
    request: str


class AutomaticKey(Key, frozen=True, order=True):
    """``<set>/automatic`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("automatic",)
    record: ClassVar[type] = AutomaticRecorded
    by_owner: ClassVar[bool] = True
    set: str


class WriterKey(Key, frozen=True, order=True):
    """``<set>/writer/<writer>/<life>`` on generation, written by that incarnation; the owner deletes it at the end."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("writer",)
    record: ClassVar[type] = WriterReported
    set: str
    writer: str
    life: int


class ReaderKey(Key, frozen=True, order=True):
    """``<set>/reader/<reader>`` on generation, written by that reader."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("reader",)
    record: ClassVar[type] = ReaderReported
    set: str
    reader: str


class ChunkKey(Key, frozen=True, order=True):
    """``<set>/<epoch>/<chunk>`` on generation."""

    topic: ClassVar[str] = "generation"
    record: ClassVar[type] = GenerationDescribed
    by_owner: ClassVar[bool] = True
    set: str
    epoch: int
    chunk: int


class SetKey(Key, frozen=True, order=True):
    """``<set>`` on generation."""

    topic: ClassVar[str] = "generation"
    record: ClassVar[type] = SetRecorded
    by_owner: ClassVar[bool] = True
    set: str


KEYS: Final[tuple[type[Key], ...]] = (
    GenerationOwnerKey,
    GenerationMemberKey,
    GenerationRequestKey,
    GenerationOutcomeKey,
    PolicyRequestKey,
    AutomaticKey,
    WriterKey,
    ReaderKey,
    ChunkKey,
    SetKey,
)
"""In the order in which a key's text is tried: forms with a fixed first word come first within a topic."""

FOR_PEOPLE: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    AutomaticRecorded: ("set_by", "suspended"),
    GenerationRequested: ("requested_by",),
    PolicyRequested: ("requested_by",),
}
"""See fitting.py."""
