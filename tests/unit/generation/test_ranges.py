"""A log's map and its switches: whatever is split or merged, each token has one stream, which knows its parents."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.generation.changelog.core.planning import first_map, next_map
from headgate.generation.core.ranges import (
    FIRST_TOKEN,
    LAST_TOKEN,
    LogMap,
    LogStream,
    MapError,
    MapSwitch,
    Recut,
    check_switch,
)

PARTITIONS = 64
TOKENS = st.integers(FIRST_TOKEN, LAST_TOKEN)


def draw() -> random.Random:
    return random.Random(11)  # noqa: S311 (ids, not secrets)


def free_of(log: LogMap) -> list[int]:
    taken = {stream.partition for stream in log.streams}
    return [number for number in range(PARTITIONS) if number not in taken]


@st.composite
def histories(data: st.DrawFn) -> list[LogMap]:
    """A first map and some that follow it by random splits and merges, on partitions that are free."""
    bits = draw().getrandbits
    maps = [first_map(PARTITIONS, data(st.integers(1, 5)), bits)]
    for _ in range(data(st.integers(1, 5))):
        log = maps[-1]
        first = data(st.integers(0, len(log.streams) - 1))
        last = data(st.integers(first, min(first + 2, len(log.streams) - 1)))
        streams = log.streams[first : last + 1]
        start, end = streams[0].start, streams[-1].end
        cuts = data(st.lists(st.integers(start + 1, end - 1), max_size=3)) if end - start > 2 else []
        change = Recut(tuple(stream.id for stream in streams), tuple(cuts), "drawn")
        maps.append(next_map(log, [change], free_of(log), PARTITIONS, bits))
    return maps


@given(histories(), st.lists(TOKENS, min_size=1, max_size=20))
def test_whatever_follows_each_token_goes_from_a_parent_to_its_child(maps: list[LogMap], tokens: list[int]) -> None:
    for before, after in pairwise(maps):
        switch = check_switch(before, after, in_use=())
        for token in tokens:
            old, new = before.stream_of(token), after.stream_of(token)
            assert new.start < token <= new.end
            assert old == new or (old.id in new.parents and new in switch.opened)
        closed = {parent.id for parent in switch.closed}
        assert all(closed.intersection(child.parents) for child in switch.opened)


def two() -> tuple[LogMap, LogMap]:
    """A map of two streams, and one whose first stream is split."""
    before = first_map(8, 2, draw().getrandbits)
    change = Recut((before.streams[0].id,), (before.streams[0].start + 5,), "")
    return before, next_map(before, [change], [2, 3], 8, draw().getrandbits)


def test_what_does_not_change_keeps_its_stream() -> None:
    before, after = two()
    switch = MapSwitch.between(before, after)
    assert switch.closed == before.streams[:1]
    assert [stream.partition for stream in switch.opened] == [2, 3]
    assert after.streams[2] == before.streams[1]


def test_a_merge_has_all_its_parents() -> None:
    before = first_map(8, 3, draw().getrandbits)
    ids = tuple(stream.id for stream in before.streams)
    after = next_map(before, [Recut(ids, (), "")], [5], 8, draw().getrandbits)
    assert [(stream.parents, stream.partition) for stream in after.streams] == [(ids, 5)]


def streams(*ranges: tuple[int, int]) -> list[LogStream]:
    whole = first_map(8, len(ranges), draw().getrandbits).streams
    return [replace(stream, start=start, end=end) for stream, (start, end) in zip(whole, ranges, strict=True)]


LOW, HIGH = FIRST_TOKEN - 1, LAST_TOKEN


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ([(LOW, 0), (5, HIGH)], r"no stream takes the tokens \(0, 5\]"),
        ([(LOW, 5), (0, HIGH)], r"both take the tokens \(0, 5\]"),
        ([(LOW, 0), (0, HIGH - 1)], "no stream takes the tokens behind"),
        ([(LOW + 1, 0), (0, HIGH)], "no stream takes the tokens up to"),
        ([(LOW, 0), (0, 0)], "is empty"),
    ],
)
def test_holes_and_overlaps_are_refused(ranges: list[tuple[int, int]], why: str) -> None:
    with pytest.raises(MapError, match=why):
        LogMap.of(1, streams(*ranges), 8)


def test_partitions_that_cannot_be_are_refused() -> None:
    first, second = streams((LOW, 0), (0, HIGH))
    with pytest.raises(MapError, match="both on partition 0"):
        LogMap.of(1, [first, replace(second, partition=0)], 8)
    with pytest.raises(MapError, match="the topic has 1"):
        LogMap.of(1, [first, second], 1)
    with pytest.raises(MapError, match="two ranges"):
        LogMap.of(1, [first, replace(second, id=first.id)], 8)
    with pytest.raises(MapError, match="behind 1"):
        LogMap.of(1, [first, replace(second, generation=2)], 8)
    with pytest.raises(MapError, match="has no stream"):
        LogMap.of(1, [], 8)
    with pytest.raises(MapError, match="not the token of a key"):
        LogMap.of(1, [first, second], 8).stream_of(LOW)


def changed(log: LogMap, number: int, **fields: object) -> LogMap:
    made = list(log.streams)
    made[number] = replace(made[number], **fields)
    return LogMap(log.generation, tuple(made))


def test_switches_that_would_reorder_are_refused() -> None:
    before, after = two()
    parent = before.streams[0].id
    with pytest.raises(MapError, match="2 cannot follow 2: it is not behind it"):
        check_switch(LogMap(2, before.streams), after, ())
    with pytest.raises(MapError, match="stays open"):
        check_switch(before, changed(after, 2, partition=7), ())
    with pytest.raises(MapError, match="names none as its parents"):
        check_switch(before, changed(after, 0, parents=()), ())
    with pytest.raises(MapError, match="as its parents"):
        check_switch(before, changed(after, 0, parents=(parent, before.streams[1].id)), ())
    with pytest.raises(MapError, match="another one is not over there"):
        check_switch(before, changed(after, 0, partition=0), ())
    with pytest.raises(MapError, match="another one is not over there"):
        check_switch(before, after, in_use=[3])
    with pytest.raises(MapError, match="opened in 2, but names 1"):
        check_switch(before, changed(after, 0, generation=1), ())


def test_changes_that_cannot_be_are_refused() -> None:
    before, after = two()
    first, second, third = (stream.id for stream in after.streams)
    bits = draw().getrandbits
    with pytest.raises(MapError, match="not open in generation 1"):
        next_map(before, [Recut((first,), (), "")], [4], 8, bits)
    with pytest.raises(MapError, match="not neighbours"):
        next_map(after, [Recut((first, third), (), "")], [4], 8, bits)
    with pytest.raises(MapError, match="same stream"):
        next_map(after, [Recut((first, second), (), ""), Recut((second,), (), "")], [4], 8, bits)
    with pytest.raises(MapError, match="outside of"):
        next_map(before, [Recut((before.streams[0].id,), (LAST_TOKEN,), "")], [4, 5], 8, bits)
    with pytest.raises(MapError, match="not enough free partitions"):
        next_map(before, [Recut((before.streams[0].id,), (LOW + 9,), "")], [4], 8, bits)
    with pytest.raises(MapError, match="as many partitions"):
        first_map(3, 4, bits)
