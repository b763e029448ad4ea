"""What a writer counts of its load: exactly by stream, and in a sample of bounded size, good enough to cut by."""

import random
from collections.abc import Iterable

import pytest

from headgate.generation.changelog.core.load_sketch import SAMPLE_CHANGES, LoadSketch
from headgate.generation.changelog.core.outbox import Batch, PendingChange, Written
from headgate.generation.changelog.core.planning import MeasuredLoad, Policy, first_map, plan
from headgate.generation.changelog.core.reported_loads import check_loads
from headgate.generation.core.ranges import FIRST_TOKEN, LAST_TOKEN, LogMap
from headgate.records.generation import StreamLoad

ERROR_MAX = 0.12
"""1.36 / sqrt(256) is 0.085, exceeded once in twenty; this once in 800."""


def logs(count: int) -> LogMap:
    return first_map(40, count, random.Random(2).getrandbits)  # noqa: S311 (ids, not secrets)


def counted(log: LogMap, tokens: Iterable[int], *, seed: int = 1, batch: int = 300) -> tuple[StreamLoad, ...]:
    sketch = LoadSketch(seed)
    sketch.begin(100.0)
    changes = [
        (PendingChange(number, token, b"k", None), log.stream_of(token).partition)
        for number, token in enumerate(tokens)
    ]
    for at in range(0, len(changes), batch):
        sketch.count(Batch(tuple(changes[at : at + batch]), Written()))
    loads = sketch.loads(log, 110.0)
    check_loads(log, loads)
    return loads


def drawn(count: int, seed: int = 7) -> list[int]:
    chance = random.Random(seed)  # noqa: S311 (keys, not secrets)
    return [chance.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]


@pytest.mark.parametrize("batch", [1, 7, 255, 256, 257, 5_000])
def test_each_stream_is_counted_exactly_and_the_sample_is_bounded(batch: int) -> None:
    log, tokens = logs(4), drawn(5_000)
    loads = counted(log, tokens, batch=batch)
    expected = {str(stream.id): sum(stream.start < token <= stream.end for token in tokens) for stream in log.streams}
    assert {load.stream: load.changes for load in loads} == expected
    assert {load.seconds for load in loads} == {10.0}
    assert sum(key.changes for load in loads for key in load.keys) == SAMPLE_CHANGES
    assert loads == counted(log, tokens, batch=5_000), "what is kept does not depend on how it is batched"


def test_few_changes_are_all_in_the_sample() -> None:
    log = logs(1)
    (load,) = counted(log, [5, -7, 5, 9])
    assert [(key.token, key.changes) for key in load.keys] == [(-7, 1), (5, 2), (9, 1)]


def test_nothing_written_is_told_as_such() -> None:
    log = logs(2)
    assert counted(log, []) == (StreamLoad(str(log.streams[0].id), 0, 10.0, ()),)


def test_the_same_seed_gives_the_same_sample_and_another_seed_another() -> None:
    log, tokens = logs(1), drawn(5_000)
    assert counted(log, tokens, seed=3) == counted(log, tokens, seed=3)
    assert counted(log, tokens, seed=3) != counted(log, tokens, seed=4)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("power", [1, 4])
def test_a_cut_by_the_sample_halves_the_load(seed: int, power: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (keys, not secrets)
    tokens = [int(chance.random() ** power * 1e18) for _ in range(20_000)]
    (stream,) = (log := logs(1)).streams
    (load,) = counted(log, tokens, seed=seed)
    sample = tuple((key.token, float(key.changes)) for key in load.keys)
    policy = Policy(split_above_per_second=1_500, merge_below_per_second=0, streams_max=9)
    (change,) = plan(policy, log, {stream.id: MeasuredLoad(load.changes / load.seconds, 1_000.0, sample)}).changes
    share = sum(token <= change.cuts[0] for token in tokens) / len(tokens)
    assert abs(share - 0.5) < ERROR_MAX


def test_every_part_of_the_window_is_as_likely_in_the_sample() -> None:
    log, size = logs(1), 3_000
    kept = [key.token for seed in range(40) for load in counted(log, range(size), seed=seed) for key in load.keys]
    quarters = [sum(size * number // 4 <= token < size * (number + 1) // 4 for token in kept) for number in range(4)]
    expected = 40 * SAMPLE_CHANGES / 4
    assert all(abs(found - expected) < 0.1 * expected for found in quarters), quarters


def test_one_hot_key_is_recognised() -> None:
    chance = random.Random(5)  # noqa: S311 (keys, not secrets)
    tokens = [77 if chance.random() < 0.6 else token for token in drawn(20_000)]
    (stream,) = (log := logs(1)).streams
    (load,) = counted(log, tokens)
    sample = tuple((key.token, float(key.changes)) for key in load.keys)
    policy = Policy(split_above_per_second=900, merge_below_per_second=0, streams_max=9)
    (change,) = plan(policy, log, {stream.id: MeasuredLoad(load.changes / load.seconds, 1_000.0, sample)}).changes
    assert change.cuts == (76, 77)


def test_a_window_begins_empty() -> None:
    log = logs(1)
    sketch = LoadSketch(1)
    sketch.begin(100.0)
    sketch.count(Batch(tuple((PendingChange(n, n, b"k", None), 0) for n in range(1_000)), Written()))
    sketch.begin(110.0)
    sketch.count(Batch(((PendingChange(1_000, 5, b"k", None), 0),), Written()))
    (load,) = sketch.loads(log, 112.0)
    assert (load.changes, load.seconds, [key.token for key in load.keys]) == (1, 2.0, [5])


def test_as_many_changes_as_the_sample_takes_are_the_sample() -> None:
    tokens = list(range(SAMPLE_CHANGES))
    for batch in (1, 7, SAMPLE_CHANGES):
        (load,) = counted(logs(1), tokens, batch=batch)
        assert [key.token for key in load.keys] == tokens


def test_what_came_first_is_no_more_likely_in_the_sample_than_the_rest() -> None:
    windows, factor = 20, 20
    left = 0
    for seed in range(windows):
        tokens = list(range(factor * SAMPLE_CHANGES))
        (load,) = counted(logs(1), tokens, seed=seed)
        left += sum(key.token < SAMPLE_CHANGES for key in load.keys)
    expected = windows * SAMPLE_CHANGES / factor
    assert 0.75 * expected < left < 1.25 * expected
