"""How far each partition of a change log may be read now, from where a reader stands on all of them.

For readers that keep offsets by partition, as a sink does, and see no END markers. A stream has been read when the
reader's position is at the end that the owner has measured behind the last END: so this says of positions what Reading
says of markers, and needs no memory. On one partition streams follow each other, each from its start to its end.
"""

from collections.abc import Container, Iterable, Mapping

import msgspec

from headgate.generation.core.reading import Reading, StreamReading
from headgate.generation.core.state import GenerationState
from headgate.generation.core.stream_id import StreamId

__all__ = [
    "Bounds",
    "Standing",
    "Wait",
    "bounds_of",
    "gaps_of",
    "read_epoch_of",
    "standings_of",
    "starts_of",
    "waits_of",
]


class Bounds(msgspec.Struct, frozen=True):
    """Offsets from ``first`` on, below ``limit``, may be applied; all that come, where it is None."""

    first: int
    limit: int | None


class Wait(msgspec.Struct, frozen=True):
    """The next stream of ``partition``, from ``first`` on, waits until ``ancestor`` of ``read_from`` is read.

    The ancestor may be read now, and the reader stands at ``position`` of it. ``end``: where it ends, once measured.
    """

    stream: StreamId
    partition: int
    first: int
    ancestor: StreamId
    read_from: int
    position: int
    end: int | None


class Standing(msgspec.Struct, frozen=True):
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
) -> dict[int, Bounds]:
    """Of each of ``positions`` (next offset by partition; those that are not named count as not read at all).

    Raises MapError where a generation's chunks are missing or corrupt.
    """
    reading = _reading(state, name, positions, strict=strict)
    readable = {each.stream.id for each in reading.readable()}
    streams = _by_partition(reading)
    return {partition: _bounds(streams.get(partition, ()), readable) for partition in sorted(positions)}


def waits_of(
    state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool = False
) -> tuple[Wait, ...]:
    """Which streams wait for which, for a reader at ``positions``; by partition, then ancestor. Raises MapError."""
    reading = _reading(state, name, positions, strict=strict)
    readable = {each.stream.id for each in reading.readable()}
    found = []
    for partition, streams in sorted(_by_partition(reading).items()):
        following = next((each for each in streams if not each.is_read), None)
        if following is None or following.stream.id in readable:
            continue
        waiting = following.stream
        for each in reading.held_by(waiting):
            ancestor = each.stream
            at = max(ancestor.start_offset, positions.get(ancestor.partition, 0))
            found.append(
                Wait(waiting.id, partition, waiting.start_offset, ancestor.id, ancestor.partition, at, each.end)
            )
    return tuple(found)


def standings_of(
    state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool = False
) -> tuple[Standing, ...]:
    """Where a reader at ``positions`` stands, by generation and range of the streams. Raises MapError."""
    reading = _reading(state, name, positions, strict=strict)
    left = [each for each in reading.streams.values() if not each.is_read]
    return tuple(
        Standing(
            stream=each.stream.id,
            partition=each.stream.partition,
            position=max(each.stream.start_offset, each.next_offset),
            end=each.end,
            waits_for=tuple(held.stream.id for held in reading.held_by(each.stream)),
        )
        for each in sorted(left, key=lambda each: (each.stream.generation, each.stream.start))
    )


def read_epoch_of(state: GenerationState, name: str, positions: Mapping[int, int]) -> int:
    """What ReaderReported is to say of a reader at ``positions``. Raises MapError."""
    return _reading(state, name, positions, strict=False).read_epoch()


def gaps_of(
    state: GenerationState, name: str, positions: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """What ``positions`` have yet to read of streams that are retired, whose order nobody knows any more.

    By partition: from which offset on, up to which. ``ends`` must have been asked for before ``state`` was read to its
    end. Raises MapError.
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
    streams = _by_partition(_reading(state, name, {}, strict=False))
    return {partition: found[0].stream.start_offset for partition, found in sorted(streams.items())}


def _reading(state: GenerationState, name: str, positions: Mapping[int, int], *, strict: bool) -> Reading:
    reading = Reading(name, strict=strict)
    reading.learn(state)
    for stream, each in reading.streams.items():
        position = positions.get(each.stream.partition, -1)
        if position >= each.stream.start_offset:
            reading.resume_at({stream: position if each.end is None else min(position, each.end)})
    return reading


def _by_partition(reading: Reading) -> dict[int, list[StreamReading]]:
    found: dict[int, list[StreamReading]] = {}
    for each in sorted(reading.streams.values(), key=lambda each: (each.stream.start_offset, each.stream.generation)):
        found.setdefault(each.stream.partition, []).append(each)
    return found


def _bounds(streams: Iterable[StreamReading], readable: Container[StreamId]) -> Bounds:
    """The first stream that is not read decides; behind the last one nothing may be read."""
    end = 0
    for each in streams:
        if not each.is_read:
            start = max(each.stream.start_offset, end)
            return Bounds(start, each.end) if each.stream.id in readable else Bounds(0, start)
        end = max(end, each.end or 0)
    return Bounds(0, end)
