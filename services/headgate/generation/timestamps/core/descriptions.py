"""The rows of the two tables that list a generation's streams in timestamp mode.

**Descriptions** are for those who write: ranges of tokens with their streams by shard. **Streams** are for those who
read: which there are, range by range. A row has some ranges of a generation, so that it is never larger than a record
may be. (When each is written: timestamp_records.py.)
"""

from collections.abc import Mapping, Sequence

from headgate.generation.core.stream_id import StreamId, StreamIdError
from headgate.generation.core.timestamp_records import RowKey, TimestampRecords
from headgate.generation.core.tokens import ShardingError
from headgate.generation.core.topology import RangeStreams, Topology, TopologyError
from headgate.generation.timestamps.core.rings import chunks_of_ring, topology_for
from headgate.records.timestamps import (
    DescriptionKey,
    RangeDescribed,
    RangeListed,
    RangesDescribed,
    RingKey,
    RingNode,
    StreamsKey,
    StreamsListed,
    TimestampKey,
)

DescriptionRow = RangesDescribed | StreamsListed


def row_of(
    topology: Topology, chunks: Sequence[slice], key: DescriptionKey | StreamsKey, owner_rev: int
) -> DescriptionRow:
    """A row of a generation; ``chunks`` are those of its ring."""
    entries = topology.entries[chunks[key.chunk]]
    if isinstance(key, DescriptionKey):
        ranges = tuple(RangeDescribed(each.end, each.ignore_msb, tuple(map(str, each.streams))) for each in entries)
        return RangesDescribed(owner_rev, len(chunks), ranges)
    return StreamsListed(
        owner_rev, len(chunks), tuple(RangeListed(each.end, tuple(map(str, each.streams))) for each in entries)
    )


def described_topology(name: str, timestamp_ms: int, chunks: int, rows: Mapping[int, RangesDescribed]) -> Topology:
    """The topology that descriptions form together. Raises TopologyError, which names what is missing or wrong."""
    what = f"{name}/description/{timestamp_ms}"
    missing = [number for number in range(chunks) if number not in rows]
    if missing:
        raise TopologyError(f"{what}/{missing[0]} does not exist on the topic generation: {chunks} chunks are due")
    try:
        return Topology.of(
            [
                RangeStreams(each.end, tuple(map(StreamId.parse, each.streams)), each.ignore_msb)
                for number in range(chunks)
                for each in rows[number].ranges
            ]
        )
    except (StreamIdError, ShardingError, TopologyError) as error:
        raise TopologyError(f"a chunk of {what} is corrupt: {error}") from error


def wrong_rows(
    records: TimestampRecords, name: str, rings: Mapping[int, Sequence[RingNode]]
) -> tuple[RowKey | RingKey, ...]:
    """Rows of published generations that are missing, or differ from what their rings make of them.

    ``rings``: what the owner knows of each of these generations. Raises RingError.
    """
    wrong: list[RowKey | RingKey] = []
    for timestamp_ms, nodes in sorted(rings.items()):
        at = (name, timestamp_ms)
        ring = records.rings.get(at)
        if ring is None or ring.nodes != tuple(nodes):
            wrong.append(RingKey(*at))
        topology, chunks = topology_for(name, timestamp_ms, nodes), chunks_of_ring(nodes)
        described, listed = records.descriptions.get(at, {}), records.streams.get(at, {})
        for number in range(len(chunks)):
            for key, found in (
                (DescriptionKey(name, timestamp_ms, number), described.get(number)),
                (StreamsKey(name, timestamp_ms, number), listed.get(number)),
            ):
                if found is None or row_of(topology, chunks, key, found.owner_rev) != found:
                    wrong.append(key)
        if at not in records.published:
            wrong.append(TimestampKey(*at))
    return tuple(wrong)
