"""Streams of tablets: sets that follow each other by what is closed and opened, and no way round the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.tablets import StreamsChanged, StreamSets, even_last_tokens, next_streams_ms, stream_in
from headgate.generation.core.timeline import LEEWAY_MS, GenerationError, NoGenerationError, WriteTooNewError
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN

NOW = 1_000_000
IDS = st.frozensets(st.builds(StreamId.pack, st.integers(-100, 100), st.integers(0, 3), st.just(0)), max_size=8)


def tablets(count: int, number: int) -> tuple[StreamId, ...]:
    return tuple(StreamId.pack(token, number, 0) for token in even_last_tokens(count))


@pytest.mark.parametrize(
    ("count", "tokens"),
    [
        (1, ["7fffffffffffffff"]),
        (2, ["ffffffffffffffff", "7fffffffffffffff"]),
        (4, ["bfffffffffffffff", "ffffffffffffffff", "3fffffffffffffff", "7fffffffffffffff"]),
    ],
)
def test_the_last_tokens_of_equal_tablets(count: int, tokens: list[str]) -> None:
    assert [f"{token & (1 << 64) - 1:016x}" for token in even_last_tokens(count)] == tokens


@pytest.mark.parametrize("count", [0, 3, -2, 1 << 23])
def test_numbers_of_tablets_that_cannot_be_are_refused(count: int) -> None:
    with pytest.raises(GenerationError, match="power of two"):
        even_last_tokens(count)


@given(st.integers(MIN_TOKEN + 1, MAX_TOKEN - 1), st.sampled_from([1, 2, 4, 64]))
def test_each_token_has_a_stream(token: int, count: int) -> None:
    stream = stream_in(tablets(count, 1), token)
    width = (1 << 64) // count
    assert stream.token - width < token <= stream.token


def test_there_is_no_way_round_the_end() -> None:
    with pytest.raises(GenerationError, match="no stream reaches"):
        stream_in(tablets(4, 1)[:2], 5)


@given(IDS, IDS)
def test_a_difference_leads_from_the_one_set_to_the_other(
    before: frozenset[StreamId], after: frozenset[StreamId]
) -> None:
    change = StreamsChanged.between(before, after)
    assert set(change.apply_to(before)) == after
    assert [each.token for each in change.apply_to(before)] == sorted(each.token for each in after)


def test_a_difference_that_does_not_fit_is_refused() -> None:
    old, new = tablets(1, 1), tablets(1, 2)
    with pytest.raises(GenerationError, match="was not open"):
        StreamsChanged(closed=new, opened=()).apply_to(old)
    with pytest.raises(GenerationError, match="is open already"):
        StreamsChanged(closed=(), opened=old).apply_to(old)


def test_a_write_goes_to_the_latest_set_that_is_not_newer_however_old_it_is() -> None:
    first, second = tablets(1, 1), tablets(2, 2)
    sets = StreamSets(((100, first),)).changed(NOW, StreamsChanged.between(first, second))
    assert sets.stream_of(100_000, 5, NOW) == first[0]
    assert sets.stream_of(NOW * 1000 - 1, 5, NOW) == first[0]
    assert sets.stream_of(NOW * 1000, 5, NOW) == second[1]
    assert sets.stream_of((NOW + LEEWAY_MS) * 1000, -5, NOW) == second[0]
    with pytest.raises(WriteTooNewError):
        sets.stream_of((NOW + LEEWAY_MS) * 1000 + 1, 5, NOW)
    with pytest.raises(NoGenerationError):
        sets.stream_of(99_999, 5, NOW)
    with pytest.raises(GenerationError, match="cannot follow"):
        sets.changed(NOW, StreamsChanged((), ()))


def test_sets_whose_changes_are_gone_expire() -> None:
    sets = StreamSets(((100, tablets(1, 1)), (200, tablets(1, 2)), (300, tablets(1, 3))))
    assert [at for at, _ in sets.without_expired(now_ms=1300, kept_ms=1000).sets] == [300]
    assert [at for at, _ in sets.without_expired(now_ms=1299, kept_ms=1000).sets] == [200, 300]
    assert sets.without_expired(now_ms=1000, kept_ms=1000) == sets
    assert sets.without_expired(now_ms=10**9, kept_ms=0) == sets


def test_when_a_set_begins_to_count() -> None:
    assert next_streams_ms(NOW, None) == NOW - LEEWAY_MS
    assert next_streams_ms(NOW, NOW - 1) == NOW + 65_000
    assert next_streams_ms(NOW, NOW + 70_000) == NOW + 70_001
