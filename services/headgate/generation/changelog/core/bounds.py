"""How far each partition of a change log may be read now, given a reader's positions on all of them.

For readers that keep offsets by partition, as a sink does, and see no END markers. A stream has been read when the
reader's position is at the end that the owner has measured behind the last END. So this module derives from positions
what Reading derives from markers, and needs no memory. On one partition streams follow each other, each from its start
to its end.
"""

from collections.abc import Container, Iterable, Mapping

import msgspec

from headgate.generation.core.state import GenerationState
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.stream_table import Gate, KnownStream, StreamTable
from headgate.records.generation import SetRecorded


class OffsetBounds(msgspec.Struct, frozen=True):
    """Offsets from ``first`` on, below ``limit``, may be applied; all that come, where it is None."""

    first: int
    limit: int | None


class StreamWait(msgspec.Struct, frozen=True):
    """The next stream of ``partition``, from ``first`` on, waits until ``ancestor`` of ``read_from`` is read.

    The ancestor may be read now, and the reader is at ``position`` of it. ``end``: where it ends, once measured.
    """

    stream: StreamId
    partition: int
    first: int
    ancestor: StreamId
    read_from: int
    position: int
    end: int | None


class UnreadStream(msgspec.Struct, frozen=True):
    """A stream that a reader has yet to read to its end; ``end``: where that is, once it is closed and measured.

    ``position``: the next offset. ``waits_for``: streams that must be read before it may begin.
    """

    stream: StreamId
    partition: int
    position: int
    end: int | None
    waits_for: tuple[StreamId, ...]


def bounds_of(
    state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool = False
) -> dict[int, OffsetBounds]:
    """Of each of ``positions`` (next offset by partition; those that are not named count as not read at all).

    Raises MapError where a generation's chunks are missing or corrupt.
    """
    table = _table(state, name)
    unread = _unread(table, positions)
    readable = frozenset(Gate(unread, strict=strict).readable())
    streams = table.by_partition
    return {partition: _bounds(streams.get(partition, ()), unread, readable) for partition in sorted(positions)}


def waits_of(
    state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool = False
) -> tuple[StreamWait, ...]:
    """Which streams wait for which, for a reader at ``positions``; by partition, then ancestor. Raises MapError."""
    table = _table(state, name)
    unread = _unread(table, positions)
    gate = Gate(unread, strict=strict)
    found = []
    for partition, streams in sorted(table.by_partition.items()):
        waiting = next((each.stream for each in streams if each.stream.id in unread), None)
        if waiting is None or gate.is_open(waiting):
            continue
        for stream in gate.held_by(waiting):
            ancestor, end = unread[stream].stream, unread[stream].end
            at = max(ancestor.start_offset, positions.get(ancestor.partition, 0))
            found.append(
                StreamWait(waiting.id, partition, waiting.start_offset, ancestor.id, ancestor.partition, at, end)
            )
    return tuple(found)


def standings_of(
    state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool = False
) -> tuple[UnreadStream, ...]:
    """The ``UnreadStream`` of a reader at ``positions``, by generation and range of the streams. Raises MapError."""
    unread = _unread(_table(state, name), positions)
    gate = Gate(unread, strict=strict)
    return tuple(
        UnreadStream(
            stream=each.stream.id,
            partition=each.stream.partition,
            position=_next_offset(each, positions),
            end=each.end,
            waits_for=tuple(gate.held_by(each.stream)),
        )
        for each in sorted(unread.values(), key=lambda each: (each.stream.generation, each.stream.start))
    )


def read_epoch_of(state: GenerationState, name: str, positions: Mapping[int, int]) -> int:
    """The epoch that ReaderReported contains for a reader at ``positions``. Raises MapError."""
    table = _table(state, name)
    closed = [each.closed_by for each in _unread(table, positions).values() if each.closed_by is not None]
    return min(closed) - 1 if closed else table.last_switch


def gaps_of(
    state: GenerationState, name: str, positions: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """What ``positions`` have yet to read of retired streams, whose order is no longer known.

    By partition: the first offset and the end. ``ends`` must have been queried before ``state`` was read to its end.
    Raises MapError.
    """
    first = starts_of(state, name)
    upto = {partition: min(first.get(partition, end), end) for partition, end in ends.items()}
    return {
        partition: (position, upto[partition])
        for partition, position in sorted(positions.items())
        if position < upto[partition]
    }


def starts_of(state: GenerationState, name: str) -> dict[int, int]:
    """Where the oldest stream that is not retired begins, of each partition that has one. Raises MapError."""
    streams = _table(state, name).by_partition
    return {partition: found[0].stream.start_offset for partition, found in sorted(streams.items())}


def _table(state: GenerationState, name: str) -> StreamTable:
    """Of a set without a record: one without streams."""
    return state.streams_of(name) or _NO_STREAMS


def _unread(table: StreamTable, positions: Mapping[int, int]) -> dict[StreamId, KnownStream]:
    """Streams in the order of their generations, so that parents come first.

    An empty stream is at its end from the beginning. It must not count as read before its parents: its children have
    the keys of these, and would be applied too early.
    """
    unread: dict[StreamId, KnownStream] = {}
    for stream, each in table.streams.items():
        is_begun = _next_offset(each, positions) > each.stream.start_offset
        waits = not is_begun and any(parent in unread for parent in each.stream.parents)
        if waits or not _is_read(each, positions):
            unread[stream] = each
    return unread


def _is_read(each: KnownStream, positions: Mapping[int, int]) -> bool:
    """A stream whose writers have ended it has records: a position at its start has not passed them."""
    if each.end is None:
        return False
    at = _next_offset(each, positions)
    return at >= each.end and (not each.needs or at > each.stream.start_offset)


def _next_offset(each: KnownStream, positions: Mapping[int, int]) -> int:
    at = max(each.stream.start_offset, positions.get(each.stream.partition, -1))
    return at if each.end is None else max(each.stream.start_offset, min(at, each.end))


def _bounds(streams: Iterable[KnownStream], unread: Container[StreamId], readable: Container[StreamId]) -> OffsetBounds:
    """The first stream that is not read decides; behind the last one nothing may be read."""
    end = 0
    for each in streams:
        if each.stream.id in unread:
            start = max(each.stream.start_offset, end)
            return OffsetBounds(start, each.end) if each.stream.id in readable else OffsetBounds(0, start)
        end = max(end, each.end or 0)
    return OffsetBounds(0, end)


_NO_STREAMS = StreamTable(SetRecorded(-1, "", None, 0, 0, (), ()))
