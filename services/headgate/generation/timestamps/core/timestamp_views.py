"""The views that writers and readers derive from the records of a timestamp set."""

import msgspec

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timestamp_records import TimestampRecords, writes_over_ms
from headgate.generation.core.topology import TopologyError
from headgate.generation.timestamps.core.descriptions import described_topology
from headgate.generation.timestamps.core.timeline import GenerationError, GenerationTimeline


class GenerationLate(msgspec.Struct, frozen=True):
    """Generation ``timestamp_ms`` was heard of after a write at ``write_us`` that belongs to it had got a stream.

    So that write, and maybe some before it, went to a stream of the generation before.
    """

    timestamp_ms: int
    write_us: int


class StreamsOfRange(msgspec.Struct, frozen=True):
    """The streams of the range of tokens that ends with ``end``."""

    end: int
    streams: tuple[StreamId, ...]


class PublishedGeneration(msgspec.Struct, frozen=True):
    """A generation as readers see it. It operates from ``timestamp_ms`` until ``end_ms``, which is None while unknown.

    ``over_ms``: from then on no writer's clock is in it any more, so all of its changes have been written.
    """

    timestamp_ms: int
    end_ms: int | None
    over_ms: int | None
    ranges: tuple[StreamsOfRange, ...]

    @property
    def streams(self) -> frozenset[StreamId]:
        """All of them, each once."""
        return frozenset(stream for each in self.ranges for stream in each.streams)


def learn(
    timeline: GenerationTimeline, records: TimestampRecords, name: str, now_ms: int
) -> tuple[GenerationTimeline, tuple[GenerationLate, ...], tuple[str, ...]]:
    """The timeline updated from the records: each generation prepared, and inserted once its rows are read.

    Also the generations that became known too late, and why some could not be read.
    """
    record = records.sets.get(name)
    late: list[GenerationLate] = []
    unread: list[str] = []
    for generation in () if record is None else record.generations:
        timestamp_ms = generation.timestamp_ms
        known = dict(timeline.generations)
        if known.get(timestamp_ms) is not None:
            continue
        if timestamp_ms not in known:
            learned = timeline.prepare(timestamp_ms, now_ms)
            timeline = learned.timeline
            if not learned.accepted:
                continue
            if learned.late_for_us is not None:
                late.append(GenerationLate(timestamp_ms, learned.late_for_us))
        try:
            rows = records.descriptions.get((name, timestamp_ms), {})
            topology = described_topology(name, timestamp_ms, generation.chunks, rows)
        except TopologyError as error:
            unread.append(str(error))
            continue
        timeline = timeline.insert(timestamp_ms, topology, now_ms).timeline
    return timeline, tuple(late), tuple(unread)


def published_of(records: TimestampRecords, name: str) -> tuple[PublishedGeneration, ...]:
    """All generations whose timestamp is seen, ascending. Raises GenerationError where a row of one is missing."""
    record = records.sets.get(name)
    over = 0 if record is None else writes_over_ms(record)
    found = []
    for at, seen in sorted(records.published.items()):
        if at[0] != name:
            continue
        rows = records.streams.get(at, {})
        missing = [number for number in range(seen.chunks) if number not in rows]
        if missing:
            raise GenerationError(
                f"{name}/streams/{at[1]}/{missing[0]} does not exist on the topic generation, though its timestamp is: "
                "`headgate generation timestamps repair` writes it again"
            )
        ranges = tuple(
            StreamsOfRange(each.end, tuple(map(StreamId.parse, each.streams)))
            for number in range(seen.chunks)
            for each in rows[number].ranges
        )
        over_ms = None if seen.expired_ms is None else seen.expired_ms + over
        found.append(PublishedGeneration(at[1], seen.expired_ms, over_ms, ranges))
    return tuple(found)
