"""The two description tables: whoever sees a timestamp sees all streams, whatever is interrupted or done twice."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.descriptions import (
    WRITES_OVER_MS,
    DescriptionTables,
    RepairRequests,
    TimestampRow,
    needs_repair,
)
from headgate.generation.core.timeline import GenerationError
from headgate.generation.core.tokens import Sharding
from headgate.generation.core.topology import Topology, make_topology

KEPT = 10 * WRITES_OVER_MS


def topology(*ends: int, seed: int = 1) -> Topology:
    return make_topology(dict.fromkeys(ends, Sharding(2)), random.Random(seed).getrandbits)  # noqa: S311 (ids)


def described(*generations: tuple[int, Topology]) -> DescriptionTables:
    tables = DescriptionTables()
    for timestamp_ms, made in generations:
        tables = tables.with_rows([tables.described(timestamp_ms, made)])
    return tables.with_rows(tables.to_expire())


def published(tables: DescriptionTables) -> DescriptionTables:
    while rows := tables.to_publish():
        tables = tables.with_rows(rows)
    return tables.with_rows(tables.to_expire())


def seen_whole(tables: DescriptionTables, made: dict[int, Topology]) -> None:
    for timestamp_ms in tables.timestamps:
        assert tables.streams_at(timestamp_ms) == made[timestamp_ms].streams


@given(st.lists(st.sets(st.integers(-1000, 1000), min_size=1, max_size=5), min_size=1, max_size=4), st.data())
def test_a_timestamp_is_seen_with_all_its_streams_whatever_is_interrupted(
    rings: list[set[int]], data: st.DataObject
) -> None:
    made = {100 * (number + 1): topology(*ring, seed=number) for number, ring in enumerate(rings)}
    tables = described(*made.items())
    for _ in range(100):
        rows = tables.to_publish()
        if not rows:
            break
        # Two publishers, each stopped anywhere; what one has written the other may write again.
        for _ in range(2):
            for row in rows[: data.draw(st.integers(0, len(rows)))]:
                tables = tables.with_rows([row])
                seen_whole(tables, made)
        tables = tables.with_rows(rows)
    assert sorted(tables.timestamps) == sorted(made)
    assert tables.to_publish() == ()
    rows = tables.with_rows(tables.to_expire()).to_remove(10**9, KEPT)
    for row in rows:
        tables = tables.without_rows([row])
        seen_whole(tables, made)
        assert tables.without_rows([row]) == tables
    assert sorted(tables.descriptions) == [max(made)]
    assert sorted(tables.timestamps) == [max(made)]
    assert {key[0] for key in tables.streams} == {max(made)}


def test_the_oldest_is_published_first_and_its_timestamp_last() -> None:
    tables = described((100, topology(1, 5)), (200, topology(1, 7)))
    rows = tables.to_publish()
    assert [row.timestamp_ms for row in rows] == [100, 100, 100]
    assert rows[-1] == TimestampRow(100, expired_ms=200)
    assert tables.with_rows(rows).to_publish()[-1] == TimestampRow(200)


def test_what_is_described_again_is_the_same_and_what_is_not_behind_is_refused() -> None:
    tables = described((100, topology(1)), (200, topology(2)))
    assert tables.with_rows([tables.described(200, topology(2))]) == tables
    for timestamp_ms in (200, 199, 100):
        with pytest.raises(GenerationError, match="that of 200 ms is there already"):
            tables.described(timestamp_ms, topology(3))


def test_a_generation_goes_when_its_successor_its_changes_and_its_readers_allow_it() -> None:
    tables = published(described((100, topology(1)), (200, topology(2)), (300, topology(3))))

    def gone(now_ms: int, kept_ms: int = KEPT, readers: tuple[int, ...] = ()) -> list[int]:
        rows = tables.to_remove(now_ms, kept_ms, readers)
        return sorted({row.timestamp_ms for row in rows})

    assert gone(200 + KEPT - 1) == []
    assert gone(200 + KEPT) == [100]
    assert gone(300 + KEPT) == [100, 200]
    assert gone(10**12) == [100, 200], "the last one stays for ever"
    assert gone(10**12, readers=(100, 300)) == []
    assert gone(10**12, readers=(200,)) == [100]
    assert gone(10**12, kept_ms=0) == []
    # However short changes are kept, a writer's clock may still be in the generation before.
    assert gone(200 + WRITES_OVER_MS - 1, kept_ms=1) == []
    assert gone(200 + WRITES_OVER_MS, kept_ms=1) == [100]


def test_a_generation_stays_until_its_successor_is_published() -> None:
    tables = described((100, topology(1)), (200, topology(2)))
    tables = tables.with_rows(tables.to_publish())
    assert tables.to_remove(10**12, KEPT) == ()


def test_what_is_not_published_is_not_read() -> None:
    with pytest.raises(GenerationError, match="is published"):
        described((100, topology(1))).streams_at(100)


def test_when_a_new_generation_is_needed() -> None:
    assert needs_repair(None, [1]) == "there is no generation"
    assert needs_repair(topology(1, 5), [5, 1, 1]) is None
    assert "2 ranges, the ring 3" in str(needs_repair(topology(1, 5), [1, 5, 9]))


def test_requests_that_come_before_the_commit_are_answered_by_it() -> None:
    requests, begin = RepairRequests().asked("a")
    assert begin
    for name in ("b", "a", "c"):
        requests, begin = requests.asked(name)
        assert not begin
    requests, names = requests.answered()
    assert names == ("a", "b", "c")
    assert requests.asked("d")[1]
    assert requests.answered()[1] == ()
