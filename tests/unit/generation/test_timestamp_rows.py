"""Rings, the rows made of them, and what writers and readers make of rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.timestamp_records import TimestampRecords, removal_of
from headgate.generation.core.topology import TopologyError
from headgate.generation.timestamps.core import rings
from headgate.generation.timestamps.core.descriptions import described_topology, row_of, wrong_rows
from headgate.generation.timestamps.core.rings import RingError, chunks_of_ring, owners_of, same_ring, topology_for
from headgate.generation.timestamps.core.timeline import GenerationError, GenerationTimeline, GenerationUnreadError
from headgate.generation.timestamps.core.timestamp_views import learn, published_of
from headgate.records.timestamps import (
    DescriptionKey,
    RangesDescribed,
    RingKey,
    RingNode,
    RingRecorded,
    StreamsKey,
    StreamsListed,
    TimestampGeneration,
    TimestampKey,
    TimestampLeft,
    TimestampPublished,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
)

A = RingNode("a", 3, 12, (-50, 50))
B = RingNode("b", 2, 0, (0,))
DELAY_MS = 30_000


@pytest.fixture(autouse=True)
def _small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "CHUNK_STREAMS", 4)


def log_of(*generations: tuple[int, tuple[RingNode, ...]], kept_ms: int = 1) -> TimestampRecords:
    """All rows of these generations."""
    records = TimestampRecords()
    ends = [*(each[0] for each in generations[1:]), None]
    described = []
    for (timestamp_ms, nodes), end in zip(generations, ends, strict=True):
        chunks, topology = chunks_of_ring(nodes), topology_for("s", timestamp_ms, nodes)
        records.evolve(RingKey("s", timestamp_ms), RingRecorded(1, nodes), 0)
        for number in range(len(chunks)):
            for key in (DescriptionKey("s", timestamp_ms, number), StreamsKey("s", timestamp_ms, number)):
                records.evolve(key, row_of(topology, chunks, key, 1), 0)
        records.evolve(TimestampKey("s", timestamp_ms), TimestampPublished(1, len(chunks), end), 0)
        described.append(TimestampGeneration(timestamp_ms, len(chunks), end, (), ""))
    records.evolve(TimestampSetKey("s"), TimestampSetRecorded(1, DELAY_MS, kept_ms, tuple(described)), 0)
    return records


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ((), "has no token"),
        ((RingNode("a", 1, 12, ()),), "has no token"),
        ((RingNode("a/b", 1, 12, (1,)),), "node name 'a/b' is not allowed"),
        ((RingNode("a", 0, 12, (1,)),), "node 'a': a node has 1 to 4096 shards"),
        ((RingNode("a", 1, 64, (1,)),), "0 to 63 bits"),
        ((RingNode("a", 1, 12, (-(1 << 63),)),), "not the token of a key"),
        ((RingNode("a", 1, 12, (1, 1)),), "token 1 is owned by node a and by node a"),
        ((A, RingNode("c", 1, 12, (50,))), "token 50 is owned by node a and by node c"),
        ((A, RingNode("a", 1, 12, (1,))), "the same name"),
        ((RingNode("a", 1, 12, tuple(range(65_537))),), "at most 65536 tokens"),
        ((RingNode("a", 4096, 12, tuple(range(65))),), "266240 streams, more than 262144"),
    ],
)
def test_nodes_that_are_no_ring(nodes: tuple[RingNode, ...], said: str) -> None:
    with pytest.raises(RingError, match=said):
        owners_of(nodes)


def test_a_ring_is_the_same_whatever_its_nodes_are_called() -> None:
    assert same_ring((A, B), (RingNode("x", 2, 0, (0,)), RingNode("y", 3, 12, (50, -50))))
    assert not same_ring((A, B), (A, RingNode("b", 2, 1, (0,))))
    assert not same_ring((A, B), (A,))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_rows_have_every_range_once_and_not_more_streams_than_they_may(shards: list[int]) -> None:
    nodes = tuple(RingNode(f"n{number}", count, 12, (number,)) for number, count in enumerate(shards))
    slices = chunks_of_ring(nodes)
    assert [each for part in slices for each in range(len(shards))[part]] == list(range(len(shards)))
    assert all(sum(shards[part]) <= max(rings.CHUNK_STREAMS, *shards[part]) for part in slices)


def test_a_generation_is_the_same_whoever_makes_it_and_another_at_another_time() -> None:
    assert topology_for("s", 5, (A, B)) == topology_for("s", 5, (B, A))
    assert not topology_for("s", 5, (A, B)).streams & topology_for("s", 6, (A, B)).streams
    assert not topology_for("s", 5, (A, B)).streams & topology_for("t", 5, (A, B)).streams


def test_rows_say_together_what_the_generation_is() -> None:
    records = log_of((100, (A, B)), (200, (A,)))
    assert described_topology("s", 100, 3, records.descriptions["s", 100]) == topology_for("s", 100, (A, B))
    first, second = published_of(records, "s")
    assert (first.timestamp_ms, first.end_ms, first.over_ms) == (100, 200, 200 + DELAY_MS + 5_000)
    assert (second.timestamp_ms, second.end_ms, second.over_ms) == (200, None, None)
    assert first.streams == topology_for("s", 100, (A, B)).streams
    assert [each.end for each in first.ranges] == [-50, 0, 50]
    assert published_of(records, "t") == ()
    assert wrong_rows(records, "s", {100: (A, B), 200: (A,)}) == ()


def test_rows_that_are_missing_or_say_something_else_are_named() -> None:
    records = log_of((100, (A, B)))
    described, listed = records.descriptions["s", 100], records.streams["s", 100]
    with pytest.raises(
        TopologyError, match="s/description/100/3 does not exist on the topic generation: 4 chunks are due"
    ):
        described_topology("s", 100, 4, described)
    records.evolve(DescriptionKey("s", 100, 1), RangesDescribed(1, 3, described[0].ranges), 0)
    with pytest.raises(TopologyError, match="a chunk of s/description/100 is corrupt: range 1 ends with -50"):
        described_topology("s", 100, 3, described)
    records.evolve(StreamsKey("s", 100, 2), StreamsListed(1, 3, ()), 0)
    records.evolve(TimestampKey("s", 100), None, 0)
    records.evolve(RingKey("s", 100), None, 0)
    assert wrong_rows(records, "s", {100: (A, B)}) == (
        *(RingKey("s", 100), DescriptionKey("s", 100, 1), StreamsKey("s", 100, 2), TimestampKey("s", 100)),
    )
    records = log_of((100, (A, B)))
    del records.streams["s", 100][0]
    with pytest.raises(GenerationError, match="s/streams/100/0 does not exist on the topic generation"):
        published_of(records, "s")
    assert len(listed) == 3


def test_an_earlier_owners_record_replaces_nothing() -> None:
    records = log_of((100, (A,)))
    records.evolve(TimestampKey("s", 100), TimestampPublished(0, 1, 50), 0)
    assert records.published["s", 100].expired_ms is None
    records.evolve(TimestampKey("s", 100), TimestampPublished(2, 2, 150), 0)
    assert records.published["s", 100].expired_ms == 150


def test_a_writer_prepares_what_it_cannot_read_yet_and_inserts_it_then() -> None:
    now_ms = 1_000_000
    records = log_of((now_ms - 60_000, (A, B)), (now_ms, (A,)))
    kept = records.descriptions["s", now_ms].pop(0)
    timeline, late, unread = learn(GenerationTimeline(), records, "s", now_ms)
    assert (late, unread) == (
        (),
        (f"s/description/{now_ms}/0 does not exist on the topic generation: 2 chunks are due",),
    )
    assert timeline.stream_of((now_ms - 1) * 1000, 7, now_ms) in topology_for("s", now_ms - 60_000, (A, B)).streams
    with pytest.raises(GenerationUnreadError):
        timeline.stream_of(now_ms * 1000, 7, now_ms)
    records.descriptions["s", now_ms][0] = kept
    timeline, late, unread = learn(timeline, records, "s", now_ms)
    assert (late, unread) == ((), ())
    assert timeline.stream_of(now_ms * 1000, 7, now_ms) == topology_for("s", now_ms, (A,)).stream_of(7)
    assert learn(timeline, records, "s", now_ms) == (timeline, (), ())


def test_a_generation_that_is_heard_of_after_a_write_of_its_time_is_late() -> None:
    now_ms = 1_000_000
    timeline, _, _ = learn(GenerationTimeline(), log_of((now_ms - 60_000, (A,))), "s", now_ms)
    timeline = timeline.served((now_ms + 2) * 1000)
    records = log_of((now_ms - 60_000, (A,)), (now_ms + 2, (A, B)))
    _, late, _ = learn(timeline, records, "s", now_ms)
    assert [(each.timestamp_ms, each.write_us) for each in late] == [(now_ms + 2, (now_ms + 2) * 1000)]
    assert learn(timeline.served(0), log_of((now_ms - 60_000, (A,)), (now_ms + 3, (A, B))), "s", now_ms)[1] == ()


def test_what_holds_back_a_removal_is_said_in_each_case() -> None:
    records = log_of((100, (A,)), (200, (B,)), (300, (A,)), kept_ms=1_000_000)
    record = records.sets["s"]

    def held(now_ms: int) -> dict[int, tuple[str, ...]]:
        return removal_of(records, "s", record, now_ms).held

    assert held(1_000_199) == {
        100: ("its changes are kept until 1000200 ms",),
        200: ("its changes are kept until 1000300 ms", "an older generation is kept"),
    }
    assert removal_of(records, "s", record, 1_000_199).next_ms == 1_000_200
    assert removal_of(records, "s", record, 1_000_200).due == (100,)
    assert removal_of(records, "s", record, 1_000_300).due == (100, 200), "the last one stays for ever"
    records.evolve(TimestampReaderKey("s", "slow"), TimestampLeft(100, 0), 0)
    assert removal_of(records, "s", record, 10**9).due == (100,)
    assert held(10**9) == {200: ("reader slow",)}
    records.evolve(TimestampReaderKey("s", "slow"), None, 0)
    records.evolve(TimestampKey("s", 300), None, 0)
    assert held(10**9) == {200: ("generation 300 is not published",)}
    # However short changes are kept, a writer's clock may still be in the generation before.
    records = log_of((100, (A,)), (200, (B,)), kept_ms=1)
    assert removal_of(records, "s", records.sets["s"], 199 + DELAY_MS + 5_000).due == ()
    assert removal_of(records, "s", records.sets["s"], 200 + DELAY_MS + 5_000).due == (100,)
    records = log_of((100, (A,)), (200, (B,)), kept_ms=0)
    assert removal_of(records, "s", records.sets["s"], 10**15).held == {100: ("changes are kept without limit",)}
