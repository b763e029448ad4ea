"""A generation's topology: the ring cut into ranges, and the streams of each.

Entry *i* covers the tokens (end of the entry before, its own end]; the first entry goes round the end of the ring. A
token is mapped to the stream of its range whose number is the shard that owns the token on the node for which the range
was made. Because a stream's own token lies in the same range and on the same shard, a change and the write that it
comes from fall to the same replicas, and on that node to the same shard.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec

from headgate.generation.core.stream_id import INDEX_MAX, StreamId
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN, Sharding, first_token_of_shard

Draw = Callable[[int], int]
"""Of a number of bits, a number of so many random bits; given by the caller, because a topology is a pure value."""

RANDOM_BITS: Final = 38
_KEY_TOKEN_MAX: Final = MAX_TOKEN - 1


class TopologyError(ValueError):
    """Ranges or streams that cannot be a generation; the message names the entry."""


class RangeStreams(msgspec.Struct, frozen=True):
    """The range of tokens that ends with ``end``, itself included, and its streams by shard.

    ``ignore_msb`` is that of the node for which the range was made; its number of shards is the number of streams.
    """

    end: int
    streams: tuple[StreamId, ...]
    ignore_msb: int = 12

    @property
    def sharding(self) -> Sharding:
        """How tokens of the range are divided among its streams."""
        return Sharding(len(self.streams), self.ignore_msb)


class Topology(msgspec.Struct, frozen=True, dict=True):
    """All ranges of a generation, sorted by their ends. Make it by ``of``, which checks it."""

    entries: tuple[RangeStreams, ...]

    @classmethod
    def of(cls, entries: Sequence[RangeStreams]) -> "Topology":
        """A topology that covers the whole ring. Raises TopologyError, which names the entry and what is wrong."""
        if not entries:
            raise TopologyError(
                "a generation without ranges maps no token: it needs at least one range with one stream"
            )
        if len(entries) > INDEX_MAX + 1:
            raise TopologyError(f"a generation has at most {INDEX_MAX + 1} ranges, not {len(entries)}")
        for number, (before, entry) in enumerate(pairwise(entries), start=1):
            if entry.end <= before.end:
                raise TopologyError(f"range {number} ends with {entry.end}, not behind {before.end} of the one before")
        for number, entry in enumerate(entries):
            _check(number, entry)
        return cls(tuple(entries))

    def range_of(self, token: int) -> RangeStreams:
        """The entry whose range a token lies in."""
        at = bisect_left(self._ends, token)
        return self.entries[at if at < len(self.entries) else 0]

    def stream_of(self, token: int) -> StreamId:
        """The stream that changes of a key with this token go to."""
        entry = self.range_of(token)
        return entry.streams[entry.sharding.shard_of(token)]

    @cached_property
    def streams(self) -> frozenset[StreamId]:
        """All of them, each once."""
        return frozenset(stream for entry in self.entries for stream in entry.streams)

    @cached_property
    def _ends(self) -> list[int]:
        return [entry.end for entry in self.entries]


def make_topology(owners: Mapping[int, Sharding], draw: Draw) -> Topology:
    """A new generation for a ring whose tokens are ``owners``' keys, each with the sharding of the node that owns it.

    One range per token, one stream per shard of the owner of its end. A shard that owns no token in a range gets a
    stream with the token of the range's end, so several streams may have one token.
    Raises TopologyError, ShardingError.
    """
    ends = sorted(owners)
    if not ends:
        raise TopologyError("a ring without tokens has no ranges")
    entries = []
    for index, end in enumerate(ends):
        sharding = owners[end].checked()
        start = ends[index - 1]
        streams = tuple(
            StreamId.pack(
                min(first_token_of_shard(sharding, start, end, shard), _KEY_TOKEN_MAX), draw(RANDOM_BITS), index
            )
            for shard in range(sharding.shards)
        )
        entries.append(RangeStreams(end, streams, sharding.ignore_msb))
    return Topology.of(entries)


def _check(number: int, entry: RangeStreams) -> None:
    if not MIN_TOKEN < entry.end < MAX_TOKEN:
        raise TopologyError(f"range {number} ends with {entry.end}, which is not the token of a key")
    if not entry.streams:
        raise TopologyError(
            f"range {number}, which ends with {entry.end}, has no stream: its changes would have no place"
        )
    entry.sharding.checked()
    for stream in entry.streams:
        if stream.index != number:
            raise TopologyError(f"stream {stream} names range {stream.index}, but is in range {number}")
    if len(set(entry.streams)) != len(entry.streams):
        raise TopologyError(f"range {number}, which ends with {entry.end}, names a stream twice")
