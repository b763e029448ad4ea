"""Topologies: each token has one stream, of its own range and shard; what is none is refused by entry."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN, Sharding
from headgate.generation.core.topology import RangeStreams, Topology, TopologyError, make_topology

KEY_TOKENS = st.integers(MIN_TOKEN + 1, MAX_TOKEN - 1)
RINGS = st.dictionaries(KEY_TOKENS, st.builds(Sharding, st.integers(1, 8), st.integers(0, 12)), min_size=1, max_size=12)


def made(ring: dict[int, Sharding]) -> Topology:
    return make_topology(ring, random.Random(5).getrandbits)  # noqa: S311 (ids, not secrets)


def in_range(token: int, start: int, end: int) -> bool:
    return start < token <= end if start < end else token > start or token <= end


@given(RINGS, KEY_TOKENS)
def test_a_token_and_its_stream_are_in_one_range_and_on_one_shard(ring: dict[int, Sharding], token: int) -> None:
    topology = made(ring)
    stream = topology.stream_of(token)
    entry = topology.range_of(token)
    start = topology.entries[stream.index - 1].end
    assert topology.entries[stream.index] is entry
    assert in_range(token, start, entry.end)
    assert in_range(stream.token, start, entry.end)
    sharding = ring[entry.end]
    assert sharding.shard_of(stream.token) == sharding.shard_of(token) or stream.token == entry.end


@given(RINGS)
def test_there_is_a_range_for_each_token_of_the_ring_and_a_stream_for_each_shard(ring: dict[int, Sharding]) -> None:
    topology = made(ring)
    assert [entry.end for entry in topology.entries] == sorted(ring)
    assert [len(entry.streams) for entry in topology.entries] == [ring[end].shards for end in sorted(ring)]


@given(RINGS, st.lists(KEY_TOKENS, min_size=2, max_size=40))
def test_the_range_of_a_token_is_what_a_walk_over_all_ranges_finds(
    ring: dict[int, Sharding], tokens: list[int]
) -> None:
    topology = made(ring)
    ends = sorted(ring)
    for token in tokens:
        within = next((end for start, end in pairwise(ends) if start < token <= end), ends[0])
        assert topology.range_of(token).end == within


def test_a_shard_without_a_token_in_the_range_gets_the_ranges_end() -> None:
    topology = made({10: Sharding(8, 0), 11: Sharding(8, 0)})
    assert {stream.token for stream in topology.entries[1].streams} == {11}
    assert len(set(topology.entries[1].streams)) == 8


def test_a_quarter_of_a_million_streams() -> None:
    draw = random.Random(3)  # noqa: S311 (ids, not secrets)
    ring = {draw.getrandbits(64) + MIN_TOKEN + 1: Sharding(64) for _ in range(4096)}
    assert len(make_topology(ring, draw.getrandbits).streams) == 4096 * 64


def stream(index: int, number: int = 0, token: int = 5) -> StreamId:
    return StreamId.pack(token, number, index)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "at least one range"),
        ([RangeStreams(5, (stream(0),)), RangeStreams(5, (stream(1),))], "range 1 ends with 5, not behind 5"),
        ([RangeStreams(5, (stream(0),)), RangeStreams(4, (stream(1),))], "range 1 ends with 4"),
        ([RangeStreams(5, ())], "range 0, which ends with 5, has no stream"),
        ([RangeStreams(5, (stream(1),))], "names range 1, but is in range 0"),
        ([RangeStreams(5, (stream(0), stream(0)))], "names a stream twice"),
        ([RangeStreams(MAX_TOKEN, (stream(0),))], "not the token of a key"),
        ([RangeStreams(5, (stream(0),), ignore_msb=64)], "0 to 63 bits"),
    ],
)
def test_what_is_no_topology_is_refused(entries: list[RangeStreams], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Topology.of(entries)


def test_a_ring_without_tokens_is_refused() -> None:
    with pytest.raises(TopologyError, match="without tokens"):
        make_topology({}, random.Random(1).getrandbits)  # noqa: S311 (ids, not secrets)
