"""Streams of tables divided into tablets: one stream per tablet, whose token is the last of the tablet's range.

Such a table has a set of streams of its own, which a resize replaces: some are closed, others opened. The history is
kept as a base and the differences to it. A token belongs to the first stream that does not lie before it; there is no
way round the end of the ring, since the last tablet ends with the largest token. The rules are ScyllaDB's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timeline import LEEWAY_MS, GenerationError, NoGenerationError, WriteTooNewError
from headgate.generation.core.tokens import MIN_TOKEN

__all__ = ["StreamSets", "StreamsChanged", "even_last_tokens", "next_streams_ms", "stream_in"]

TABLETS_MAX: Final = 1 << 22
"""As many as a stream's id can tell apart."""

_RING_DELAYS_MS: Final = 65_000
"""Twice the time that news takes to reach everybody, and the leeway."""


class StreamsChanged(msgspec.Struct, frozen=True):
    """What a new set of streams has against the one before; both sorted by token."""

    closed: tuple[StreamId, ...]
    opened: tuple[StreamId, ...]

    @classmethod
    def between(cls, before: Iterable[StreamId], after: Iterable[StreamId]) -> "StreamsChanged":
        """The difference of two sets."""
        old, new = frozenset(before), frozenset(after)
        return cls(_by_token(old - new), _by_token(new - old))

    def apply_to(self, before: Iterable[StreamId]) -> tuple[StreamId, ...]:
        """The set after it. Raises GenerationError where a stream is closed that is not open, or opened twice."""
        old = frozenset(before)
        for stream in self.closed:
            if stream not in old:
                raise GenerationError(f"stream {stream} is closed, but was not open")
        left = old - frozenset(self.closed)
        for stream in self.opened:
            if stream in left:
                raise GenerationError(f"stream {stream} is opened, but is open already")
        return _by_token(left | frozenset(self.opened))


class StreamSets(msgspec.Struct, frozen=True):
    """The sets of one table: (from when on in ms, streams by token), ascending."""

    sets: tuple[tuple[int, tuple[StreamId, ...]], ...]

    def stream_of(self, write_us: int, token: int, now_ms: int) -> StreamId:
        """The stream for a write. However old it is, the latest set that is not newer than it counts.

        Raises WriteTooNewError beyond the leeway, NoGenerationError before the first set.
        """
        if write_us > (now_ms + LEEWAY_MS) * 1_000:
            raise WriteTooNewError(
                f"the write's timestamp {write_us} µs is more than {LEEWAY_MS} ms ahead of this clock"
            )
        at = bisect_right(self.sets, write_us // 1_000, key=lambda each: each[0]) - 1
        if at < 0:
            raise NoGenerationError(f"the table has no streams as old as the write at {write_us} µs")
        return stream_in(self.sets[at][1], token)

    def changed(self, from_ms: int, change: StreamsChanged) -> "StreamSets":
        """With one more set, made from the last one. Raises GenerationError if it is not newer."""
        last_ms, last = self.sets[-1]
        if from_ms <= last_ms:
            raise GenerationError(f"streams from {from_ms} ms on cannot follow those from {last_ms} ms on")
        return StreamSets((*self.sets, (from_ms, change.apply_to(last))))

    def without_expired(self, now_ms: int, kept_ms: int) -> "StreamSets":
        """Without the sets that ended so long ago that none of their changes is kept; ``kept_ms`` 0: all is kept."""
        if kept_ms == 0:
            return self
        at = bisect_right(self.sets, now_ms - kept_ms, key=lambda each: each[0]) - 1
        return StreamSets(self.sets[at:]) if at > 0 else self


def stream_in(streams: Sequence[StreamId], token: int) -> StreamId:
    """The stream, of some sorted by token, that a token belongs to. Raises GenerationError where none reaches it."""
    at = bisect_left(streams, token, key=lambda stream: stream.token)
    if at == len(streams):
        raise GenerationError(f"no stream reaches the token {token}: the last one ends before it")
    return streams[at]


def even_last_tokens(tablets: int) -> tuple[int, ...]:
    """The last tokens of equal tablets, ascending. Raises GenerationError unless ``tablets`` is a power of two."""
    if not 1 <= tablets <= TABLETS_MAX or tablets & (tablets - 1):
        raise GenerationError(f"a table has a power of two of tablets, at most {TABLETS_MAX}, not {tablets}")
    width = (1 << 64) // tablets
    return tuple(MIN_TOKEN + width * (number + 1) - 1 for number in range(tablets))


def next_streams_ms(now_ms: int, before_ms: int | None) -> int:
    """From when on a new set counts. The first: a leeway ago, so that writes are accepted at once."""
    if before_ms is None:
        return now_ms - LEEWAY_MS
    return max(now_ms + _RING_DELAYS_MS, before_ms + 1)


def _by_token(streams: Iterable[StreamId]) -> tuple[StreamId, ...]:
    return tuple(sorted(streams, key=lambda stream: (stream.token, stream)))
