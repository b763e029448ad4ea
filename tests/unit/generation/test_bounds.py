"""What a reader that keeps offsets by partition may read: children behind their parents' measured ends."""

import random

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.bounds import (
    OffsetBounds,
    bounds_of,
    gaps_of,
    read_epoch_of,
    standings_of,
    starts_of,
    waits_of,
)
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.core.ranges import LogMap, MapError
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.records.generation import ChunkKey, GenerationPhase, GenerationRecorded, SetKey, SetRecorded, WriterCut

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(11, 2, BITS)
"""Streams on the partitions 0 and 1."""
TWO = next_map(ONE, resize(ONE, 4)[:1], [2, 3], 11, BITS, starts={2: 10, 3: 0})
"""The stream of partition 0 is split into those of 2, from offset 10 on, and 3; that of 1 stays."""
THREE = next_map(TWO, resize(TWO, 1), [0], 11, BITS, starts={0: 50})
"""All are merged into one stream, on partition 0 again."""
OPEN = None


def told(*generations: tuple[LogMap, dict[int, int]]) -> GenerationState:
    """Generations, each with where the streams end that it has closed, as far as they are measured."""
    state = new_state(0)
    recorded = []
    for log, ends in generations:
        for number, chunk in enumerate(chunks_of(log, 0)):
            evolve(state, ChunkKey("s", log.generation, number), chunk, 0)
        cuts = () if log is ONE else (WriterCut("w1", 1, 5, ended=True),)
        phase = GenerationPhase.COMMITTED if log is generations[-1][0] else GenerationPhase.SUPERSEDED
        recorded.append(GenerationRecorded(log.generation, phase, 1, log.generation - 1, cuts, ends, (), "", 0))
    evolve(state, SetKey("s"), SetRecorded(0, "t", None, 11, 3, tuple(recorded), ()), 0)
    return state


BEGUN = told((ONE, {}))
CLOSING = told((ONE, {}), (TWO, {}))
MEASURED = told((ONE, {}), (TWO, {0: 50}))
MERGED = told((ONE, {}), (TWO, {0: 50}), (THREE, {1: 70, 2: 30, 3: 20}))
RETIRED = told((TWO, {}), (THREE, {1: 70, 2: 30, 3: 20}))


def limits(state: GenerationState, *at: int, strict: bool = False) -> list[int | None]:
    return [each.limit for each in bounds_of(state, "s", dict(enumerate(at)), strict=strict).values()]


def test_an_open_stream_is_read_as_it_comes_and_nothing_where_none_is() -> None:
    assert limits(BEGUN, 0, 0, 0, 0) == [OPEN, OPEN, 0, 0]
    assert limits(BEGUN, 7, 9, 5, 0) == [OPEN, OPEN, 0, 0]


def test_children_wait_for_the_measured_end_of_their_parents() -> None:
    assert limits(CLOSING, 49, 0, 0, 0) == [OPEN, OPEN, 10, 0], "not measured: no position is known to be the end"
    assert limits(MEASURED, 49, 0, 0, 0) == [50, OPEN, 10, 0]
    assert limits(MEASURED, 50, 0, 0, 0) == [50, OPEN, OPEN, OPEN]
    assert bounds_of(MEASURED, "s", {0: 50, 2: 0})[2] == OffsetBounds(10, None), (
        "what stands before its start is nobody's"
    )


def test_a_partition_that_is_used_again_is_read_stream_by_stream() -> None:
    assert limits(MERGED, 0, 0, 0, 0) == [50, 70, 10, 0]
    assert limits(MERGED, 50, 0, 0, 0) == [50, 70, 30, 20]
    assert limits(MERGED, 50, 70, 30, 19) == [50, 70, 30, 20], "one parent is missing"
    assert limits(MERGED, 50, 70, 30, 20) == [OPEN, 70, 30, 20]


def test_a_partition_that_is_not_named_counts_as_not_read() -> None:
    assert bounds_of(MEASURED, "s", {2: 0}) == {2: OffsetBounds(0, 10)}


def waits(state: GenerationState, *at: int, strict: bool = False) -> list[tuple[int, int, int, int | None]]:
    found = waits_of(state, "s", dict(enumerate(at)), strict=strict)
    return [(each.partition, each.read_from, each.position, each.end) for each in found]


def test_who_waits_is_told_what_for() -> None:
    assert waits(BEGUN, 7, 9, 5, 0) == []
    assert waits(CLOSING, 49, 0, 0, 0) == [(2, 0, 49, None), (3, 0, 49, None)]
    assert waits(MEASURED, 49, 0, 0, 0) == [(2, 0, 49, 50), (3, 0, 49, 50)]
    assert waits(MEASURED, 50, 0, 0, 0) == []
    assert waits(MERGED, 50, 7, 30, 19) == [(0, 1, 7, 70), (0, 3, 19, 20)], "one that is read is not waited for"
    assert waits(MERGED, 49, 70, 0, 0) == [(2, 0, 49, 50), (3, 0, 49, 50)], "what comes behind them is not named"
    assert [each.first for each in waits_of(MEASURED, "s", {2: 0})] == [10, 0]


def standings(state: GenerationState, *at: int) -> list[tuple[int, int, int | None, int]]:
    found = standings_of(state, "s", dict(enumerate(at)))
    return [(each.partition, each.position, each.end, len(each.waits_for)) for each in found]


def test_a_reader_is_told_where_it_stands_on_what_it_has_yet_to_read() -> None:
    assert standings(BEGUN, 7, 9, 5, 0)[0] == (0, 7, None, 0)
    assert standings(CLOSING, 49, 0, 0, 0)[0] == (0, 49, None, 0)
    assert [each for each in standings(MEASURED, 49, 0, 0, 0) if each[0] != 1] == [
        (0, 49, 50, 0), (2, 10, None, 1), (3, 0, None, 1),
    ]  # fmt: skip
    assert [each for each in standings(MEASURED, 50, 0, 12, 0) if each[0] != 1] == [(2, 12, None, 0), (3, 0, None, 0)]


def test_who_waits_strictly_is_told_of_all_that_the_switch_has_closed() -> None:
    three = next_map(TWO, resize(TWO, 8), [0, *range(4, 11)], 11, BITS, starts={0: 50})
    state = told((ONE, {}), (TWO, {0: 50}), (three, {1: 70, 2: 30, 3: 20}))
    assert {each[1] for each in waits(state, 50, 69, 30, 20)} == {1}
    assert (0, 1, 69, 70) in waits(state, 50, 69, 30, 20, strict=True)


def test_strictly_all_that_a_switch_closes_comes_before_all_that_it_opens() -> None:
    three = next_map(TWO, resize(TWO, 8), [0, *range(4, 11)], 11, BITS, starts={0: 50})
    state = told((ONE, {}), (TWO, {0: 50}), (three, {1: 70, 2: 30, 3: 20}))
    assert limits(state, 50, 69, 30, 19)[0] is OPEN, "its parent is that of partition 2"
    assert limits(state, 50, 69, 30, 20, strict=True)[0] == 50
    assert limits(state, 50, 70, 30, 20, strict=True)[0] is OPEN


def test_what_is_reported_is_what_the_positions_say() -> None:
    reported = [
        read_epoch_of(MERGED, "s", dict(enumerate(at)))
        for at in ((49, 70, 30, 20), (50, 70, 30, 19), (50, 70, 30, 20), (60, 70, 30, 20))
    ]
    assert reported == [1, 2, 3, 3]


def test_what_is_left_of_a_retired_stream_is_a_gap() -> None:
    ends = {0: 60, 1: 70, 2: 30, 3: 20}
    assert starts_of(RETIRED, "s") == {0: 50, 1: 0, 2: 10, 3: 0}
    assert gaps_of(RETIRED, "s", {0: 50, 1: 0, 2: 10, 3: 0}, ends) == {}
    assert gaps_of(RETIRED, "s", {0: 49, 2: 3}, ends) == {0: (49, 50), 2: (3, 10)}
    only = told((THREE, {}))
    assert gaps_of(only, "s", {0: 50, 1: 70, 2: 30, 3: 19}, ends) == {3: (19, 20)}


def test_a_chunk_that_is_missing_is_said() -> None:
    state = told((ONE, {}), (TWO, {}))
    del state.chunks["s", 2]
    with pytest.raises(MapError, match="s/2/0 does not exist on the"):
        bounds_of(state, "s", {0: 0})


def test_an_empty_stream_does_not_let_its_children_begin_before_its_own_parents_are_read() -> None:
    """Two switches while no writer was there: the streams between them have no record, so they end where they begin."""
    middle = next_map(ONE, resize(ONE, 1), [4], 11, BITS, starts={4: 0})
    last = next_map(middle, resize(middle, 2), [5, 6], 11, BITS, starts={5: 0, 6: 0})
    state = told((ONE, {}), (middle, {0: 50, 1: 70}), (last, {4: 0}))
    record = state.sets["s"]
    without_writers = tuple(replace(each, cuts=()) for each in record.generations)
    evolve(state, SetKey("s"), replace(record, generations=without_writers), 0)
    assert limits(state, 49, 70, 0, 0, 0, 0, 0) == [50, 70, 0, 0, 0, 0, 0]
    assert limits(state, 50, 70, 0, 0, 0, 0, 0) == [50, 70, 0, 0, 0, OPEN, OPEN]
    assert read_epoch_of(state, "s", {0: 49, 1: 70}) == 1
    assert read_epoch_of(state, "s", {0: 50, 1: 70}) == 3
