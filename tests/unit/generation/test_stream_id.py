"""Stream ids: bit by bit, in the order of bytes, and refused where they cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.generation.core.stream_id import INDEX_MAX, RANDOM_MAX, StreamId, StreamIdError

TOKENS = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("text", "token", "random", "index"),
    [
        # Ids that ScyllaDB's documentation shows.
        ("80c5343222b6eee636e3ed42d0000031", -9167864076507353370, 58938052788, 3),
        ("ced00000000000009663c8dc500005a1", -3544332906740580352, 161479800596, 90),
        ("7fffffffffffffff55ebbda510000001", 2**63 - 1, 92256823620, 0),
    ],
)
def test_the_parts_of_known_ids(text: str, token: int, random: int, index: int) -> None:
    stream = StreamId.parse(text)
    assert (stream.token, stream.random, stream.index, stream.version) == (token, random, index, 1)
    assert StreamId.pack(token, random, index) == stream
    assert str(stream) == text


@given(TOKENS, st.integers(0, RANDOM_MAX), st.integers(0, INDEX_MAX))
def test_what_is_packed_is_read_again(token: int, random: int, index: int) -> None:
    stream = StreamId.pack(token, random, index)
    assert (stream.token, stream.random, stream.index) == (token, random, index)
    assert StreamId.parse(stream.raw) == StreamId.parse(f"0x{stream}") == stream


@given(st.lists(st.tuples(TOKENS, st.integers(0, RANDOM_MAX), st.integers(0, INDEX_MAX)), max_size=8))
def test_ids_order_as_bytes_without_sign(parts: list[tuple[int, int, int]]) -> None:
    streams = [StreamId.pack(*each) for each in parts]
    assert [stream.raw for stream in sorted(streams)] == sorted(stream.raw for stream in streams)
    assert StreamId.pack(-1, 0, 0) > StreamId.pack(1, 0, 0)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((1 << 63, 0, 0), "signed 64-bit"),
        ((0, 1 << 38, 0), "38 bits"),
        ((0, -1, 0), "38 bits"),
        ((0, 0, 1 << 22), "at most 4194304 ranges"),
        ((0, 0, -1), "does not fit"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: tuple[int, int, int], why: str) -> None:
    with pytest.raises(StreamIdError, match=why):
        StreamId.pack(*parts)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("365fd1a9ae34373954529ac8169dfb93", "version 3"),  # from before versions were fixed
        ("80c5343222b6eee636e3ed42d000003", "32 hexadecimal digits"),
        ("80c5343222b6eee636e3ed42d000003g", "32 hexadecimal digits"),
        ("80c5 343222b6eee636e3ed42d0000031", "32 hexadecimal digits"),
        (b"\0" * 15, "16 bytes, not 15"),
        (b"\0" * 16, "version 0"),
    ],
)
def test_what_is_no_id_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(StreamIdError, match=why):
        StreamId.parse(text)
