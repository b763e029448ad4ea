"""Records of timestamp sets, on the topic ``generation``: streams for sources that have nothing but clocks.

A *timestamp set* is a ring of tokens and its generations, each of which operates from its timestamp on. ``<set>/ring``
contains the ring for which a generation is made, ``<set>/description`` which token goes to which stream (for writers),
``<set>/streams`` the list of streams, and ``<set>/timestamp`` that all of these exist (for readers). The last three are
the tables ``cdc_generation_descriptions`` and ``cdc_streams_descriptions`` of ScyllaDB.
"""

from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from headgate.records.base import Key


class TimestampsRequestKind(StrEnum):
    """What an operator can ask for; its outcome is stored where those of requests about change logs are."""

    CREATE = "create"
    SWITCH = "switch"
    REPAIR = "repair"
    CLEAN = "clean"


class RingNode(msgspec.Struct, frozen=True):
    """A node of the ring: it owns the range that ends with each of its ``tokens``, divided among its ``shards``."""

    name: str
    shards: int
    ignore_msb: int
    tokens: tuple[int, ...]


class RingRecorded(msgspec.Struct, frozen=True):
    """``<set>/ring/<timestamp>``: for which ring that generation is made. Never overwritten."""

    owner_rev: int
    nodes: tuple[RingNode, ...]


class TimestampGeneration(msgspec.Struct, frozen=True):
    """One generation of a set: ``chunks`` rows in each table. ``expired_ms``: timestamp of its successor, if any.

    ``requests``: those that wait for it to be published.
    """

    timestamp_ms: int
    chunks: int
    expired_ms: int | None
    requests: tuple[str, ...]
    reason: str


class TimestampSetRecorded(msgspec.Struct, frozen=True):
    """``<set>/timestamps``: all generations that are not removed, ascending. Writers have to know each of them.

    ``ring_delay_ms``: how long news may take to reach every process. ``kept_ms``: how long changes are kept; 0 for no
    limit.
    """

    owner_rev: int
    ring_delay_ms: int
    kept_ms: int
    generations: tuple[TimestampGeneration, ...]


class RangeDescribed(msgspec.Struct, frozen=True):
    """The range of tokens that ends with ``end``, and its streams by shard, each as 32 hexadecimal digits."""

    end: int
    ignore_msb: int
    streams: tuple[str, ...]


class RangesDescribed(msgspec.Struct, frozen=True):
    """``<set>/description/<timestamp>/<chunk>``: some ranges of a generation, in their order. Never overwritten."""

    owner_rev: int
    chunks: int
    ranges: tuple[RangeDescribed, ...]


class RangeListed(msgspec.Struct, frozen=True):
    """The streams of the range that ends with ``end``."""

    end: int
    streams: tuple[str, ...]


class StreamsListed(msgspec.Struct, frozen=True):
    """``<set>/streams/<timestamp>/<chunk>``: the streams of some ranges, for readers. Never overwritten."""

    owner_rev: int
    chunks: int
    ranges: tuple[RangeListed, ...]


class TimestampPublished(msgspec.Struct, frozen=True):
    """``<set>/timestamp/<timestamp>``: all streams of the generation are listed. Written last, deleted first.

    ``expired_ms``: when its successor starts to operate, if there is one.
    """

    owner_rev: int
    chunks: int
    expired_ms: int | None


class TimestampsRequested(msgspec.Struct, frozen=True):
    """``<set>/timestamps-request/<id>``: an operator's request.

    ``nodes``: the whole ring, for create and switch; for repair, to check it against another than the last.
    ``based_on_ms``: the generation whose ring was changed; 0 if it does not matter which. The rest is for create.
    """

    kind: TimestampsRequestKind
    nodes: tuple[RingNode, ...]
    based_on_ms: int
    ring_delay_ms: int
    kept_ms: int
    requested_by: str
    requested_ms: int


class TimestampLeft(msgspec.Struct, frozen=True):
    """``<set>/timestamps-reader/<reader>``: it has read all up to generation ``left_ms``, itself included; -1: none."""

    left_ms: int
    reported_ms: int


class TimestampSetKey(Key, frozen=True, order=True):
    """``<set>/timestamps`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("timestamps",)
    record: ClassVar[type] = TimestampSetRecorded
    by_owner: ClassVar[bool] = True
    set: str


class RingKey(Key, frozen=True, order=True):
    """``<set>/ring/<timestamp>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("ring",)
    record: ClassVar[type] = RingRecorded
    by_owner: ClassVar[bool] = True
    set: str
    timestamp_ms: int


class DescriptionKey(Key, frozen=True, order=True):
    """``<set>/description/<timestamp>/<chunk>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("description",)
    record: ClassVar[type] = RangesDescribed
    by_owner: ClassVar[bool] = True
    set: str
    timestamp_ms: int
    chunk: int


class StreamsKey(Key, frozen=True, order=True):
    """``<set>/streams/<timestamp>/<chunk>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("streams",)
    record: ClassVar[type] = StreamsListed
    by_owner: ClassVar[bool] = True
    set: str
    timestamp_ms: int
    chunk: int


class TimestampKey(Key, frozen=True, order=True):
    """``<set>/timestamp/<timestamp>`` on generation."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("timestamp",)
    record: ClassVar[type] = TimestampPublished
    by_owner: ClassVar[bool] = True
    set: str
    timestamp_ms: int


class TimestampsRequestKey(Key, frozen=True, order=True):
    """``<set>/timestamps-request/<id>`` on generation, written by the client."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("timestamps-request",)
    record: ClassVar[type] = TimestampsRequested
    set: str
    request: str


class TimestampReaderKey(Key, frozen=True, order=True):
    """``<set>/timestamps-reader/<reader>`` on generation, written by that reader."""

    topic: ClassVar[str] = "generation"
    infix: ClassVar[tuple[str, ...]] = ("timestamps-reader",)
    record: ClassVar[type] = TimestampLeft
    set: str
    reader: str


KEYS: Final[tuple[type[Key], ...]] = (
    TimestampSetKey,
    RingKey,
    DescriptionKey,
    StreamsKey,
    TimestampKey,
    TimestampsRequestKey,
    TimestampReaderKey,
)
"""All have a fixed second word, so they are tried before forms of change logs, some of which have none."""

FOR_PEOPLE: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {TimestampsRequested: ("requested_by",)}
"""See fitting.py."""
