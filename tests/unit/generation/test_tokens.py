"""Tokens of keys against known ones; shards against all borders of a ring that is small enough to list them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.tokens import (
    MAX_TOKEN,
    MIN_TOKEN,
    Sharding,
    ShardingError,
    first_token_of_shard,
    token_of_key,
)

KEY_TOKENS = st.integers(MIN_TOKEN + 1, MAX_TOKEN - 1)
SHARDINGS = st.builds(Sharding, st.integers(1, 9), st.integers(0, 6))


@pytest.mark.parametrize(
    ("key", "token"),
    [
        # Read off Cassandra's own Python driver; the last one has bytes above 127 behind the last block of 16.
        (b"", 0),
        (b"hello", -3758069500696749310),
        (bytes(range(240, 256)) + b"\xff\xfe", -7636323917443578043),
        # MurmurHash3_x64_128's well-known value; eleven bytes are behind the last block of 16.
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C - 2**64),
    ],
)
def test_tokens_of_keys_are_cassandras(key: bytes, token: int) -> None:
    assert token_of_key(key) == token


@given(st.binary(max_size=80))
def test_a_keys_token_is_a_keys(key: bytes) -> None:
    assert MIN_TOKEN < token_of_key(key) < MAX_TOKEN


def test_the_ends_of_the_ring_are_the_first_and_the_last_shards() -> None:
    sharding = Sharding(5, 12)
    assert sharding.shard_of(MIN_TOKEN) == 0
    assert sharding.shard_of(MAX_TOKEN) == 4


def borders(sharding: Sharding) -> list[int]:
    """Every token with which a shard's part begins, on the whole ring, found by halving."""
    found = []
    piece = 1 << (64 - sharding.ignore_msb)
    for number in range(1 << sharding.ignore_msb):
        start = MIN_TOKEN + number * piece
        for shard in range(sharding.shards):
            low, high = start, start + piece
            while low < high:
                middle = (low + high) // 2
                if sharding.shard_of(middle) >= shard:
                    high = middle
                else:
                    low = middle + 1
            if low < start + piece and sharding.shard_of(low) == shard:
                found.append(low)
    return found


@given(SHARDINGS, KEY_TOKENS, KEY_TOKENS, st.data())
def test_the_first_token_of_a_shard_is_the_first_of_all(
    sharding: Sharding, start: int, end: int, data: st.DataObject
) -> None:
    shard = data.draw(st.integers(0, sharding.shards - 1))
    starts = borders(sharding)

    def first_in(low: int, high: int) -> int | None:
        candidates = [low + 1, *(token for token in starts if token > low)]
        return min(
            (t for t in candidates if t <= high and t < MAX_TOKEN and sharding.shard_of(t) == shard), default=None
        )

    if start < end:
        expected = first_in(start, end)
    else:
        expected = first_in(start, MAX_TOKEN)
        if expected is None:
            expected = first_in(MIN_TOKEN, end)
    found = first_token_of_shard(sharding, start, end, shard)
    assert found == (end if expected is None else expected)


@given(SHARDINGS, KEY_TOKENS, st.data())
def test_the_next_part_of_a_shard_begins_behind_the_token(sharding: Sharding, token: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, sharding.shards - 1))
    spans = data.draw(st.integers(1, 3))
    starts = [each for each in borders(sharding) if each > token and sharding.shard_of(each) == shard]
    expected = starts[spans - 1] if len(starts) >= spans else MAX_TOKEN
    if sharding.shards == 1 and sharding.ignore_msb == 0:
        expected = MAX_TOKEN
    assert sharding.token_for_next_shard(token, shard, spans) == expected


def test_no_part_is_behind_the_end() -> None:
    assert Sharding(4, 12).token_for_next_shard(MAX_TOKEN, 0) == MAX_TOKEN


@pytest.mark.parametrize("sharding", [Sharding(0), Sharding(1 << 13), Sharding(1, -1), Sharding(1, 64)])
def test_a_sharding_that_no_node_has_is_refused(sharding: Sharding) -> None:
    with pytest.raises(ShardingError):
        sharding.checked()


def test_a_shard_that_the_node_does_not_have_is_refused() -> None:
    with pytest.raises(ShardingError, match="4 shards has no shard 4"):
        Sharding(4).token_for_next_shard(0, 4)
