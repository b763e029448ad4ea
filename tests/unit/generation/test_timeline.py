"""Timestamp mode: the table of which write goes to which generation, both equality edges included."""

import pytest

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timestamp_records import LEEWAY_MS
from headgate.generation.core.topology import RangeStreams, Topology
from headgate.generation.timestamps.core.timeline import (
    GenerationError,
    GenerationTimeline,
    GenerationUnreadError,
    NoGenerationError,
    WriteTooNewError,
    WriteTooOldError,
    next_generation_ms,
)

A, B, C = (Topology.of([RangeStreams(0, (StreamId.pack(0, number, 0),))]) for number in (1, 2, 3))
NOW = 1_000_000
LEEWAY = LEEWAY_MS


def timeline(*generations: tuple[int, Topology | None]) -> GenerationTimeline:
    return GenerationTimeline(generations)


def served(known: GenerationTimeline, write_us: int) -> int:
    """The number of the stream that a write goes to."""
    return known.stream_of(write_us, token=7, now_ms=NOW).random


@pytest.mark.parametrize(
    ("generations", "write_us", "number"),
    [
        # As far ahead as the leeway, and not a microsecond more (below).
        ([(0, A)], (NOW + LEEWAY) * 1000, 1),
        # A generation that has not begun by this clock takes the writes of its time.
        ([(0, A), (NOW + 1, B)], (NOW + 1) * 1000, 2),
        ([(0, A), (NOW + 1, B)], (NOW + 1) * 1000 - 1, 1),
        # Within the leeway any number of generations back.
        ([(0, A), (NOW - 2000, B), (NOW - 1000, C)], (NOW - 1500) * 1000, 2),
        ([(0, A), (NOW - 2000, B), (NOW - 1000, C)], (NOW - LEEWAY) * 1000 + 1, 1),
        # Older ones, while nothing has changed since.
        ([(0, A)], (NOW - LEEWAY) * 1000, 1),
        ([(0, A)], 0, 1),
        ([(0, A), (NOW - LEEWAY, B)], (NOW - LEEWAY) * 1000, 2),
        ([(0, A), (NOW + 1, B)], 0, 1),
    ],
)
def test_a_write_goes_to_the_generation_of_its_time(
    generations: list[tuple[int, Topology]], write_us: int, number: int
) -> None:
    assert served(timeline(*generations), write_us) == number


@pytest.mark.parametrize(
    ("generations", "write_us", "error"),
    [
        ([(0, A)], (NOW + LEEWAY) * 1000 + 1, WriteTooNewError),
        # A leeway old exactly is old already; the generation after it has begun.
        ([(0, A), (NOW, B)], (NOW - LEEWAY) * 1000, WriteTooOldError),
        ([(0, A), (NOW - LEEWAY, B)], (NOW - LEEWAY) * 1000 - 1, WriteTooOldError),
        ([(NOW - 1000, A)], (NOW - LEEWAY) * 1000, WriteTooOldError),
        ([], (NOW - LEEWAY) * 1000, WriteTooOldError),
        ([], NOW * 1000, NoGenerationError),
        ([(NOW - 1000, A)], (NOW - 1000) * 1000 - 1, NoGenerationError),
        ([(0, A), (NOW - 1000, None)], NOW * 1000, GenerationUnreadError),
        ([(0, None)], 0, GenerationUnreadError),
    ],
)
def test_a_write_without_a_stream_is_refused_with_its_reason(
    generations: list[tuple[int, Topology | None]], write_us: int, error: type[GenerationError]
) -> None:
    with pytest.raises(error):
        served(timeline(*generations), write_us)


@pytest.mark.parametrize(
    ("generations", "why"),
    [
        ([], "no generation is known yet"),
        ([(NOW - 1000, A)], f"begins at {NOW - 1000} ms"),
        ([(NOW - LEEWAY + 1, A), (NOW - 1000, B)], f"begins at {NOW - LEEWAY + 1} ms"),
        ([(0, A), (NOW, B)], "another generation has followed"),
    ],
)
def test_an_old_write_is_refused_with_the_true_reason(generations: list[tuple[int, Topology | None]], why: str) -> None:
    with pytest.raises(WriteTooOldError, match=why):
        served(timeline(*generations), (NOW - LEEWAY) * 1000)


def test_a_prepared_generation_refuses_its_writes_until_it_is_inserted() -> None:
    learned = timeline((0, A)).prepare(NOW - 10, NOW)
    assert learned.accepted
    assert served(learned.timeline, (NOW - 10) * 1000 - 1) == 1
    with pytest.raises(GenerationUnreadError):
        served(learned.timeline, (NOW - 10) * 1000)
    assert learned.timeline.prepare(NOW - 10, NOW).accepted  # its topology is wanted as before
    inserted = learned.timeline.insert(NOW - 10, B, NOW)
    assert inserted.accepted
    assert served(inserted.timeline, (NOW - 10) * 1000) == 2
    assert not inserted.timeline.prepare(NOW - 10, NOW).accepted
    again = inserted.timeline.insert(NOW - 10, C, NOW)
    assert not again.accepted
    assert served(again.timeline, (NOW - 10) * 1000) == 2


def test_what_a_later_one_has_followed_for_a_leeway_is_obsolete() -> None:
    known = timeline((NOW - LEEWAY, B))
    assert not known.prepare(NOW - LEEWAY - 1, NOW).accepted
    assert not known.insert(NOW - LEEWAY - 1, A, NOW).accepted
    assert timeline((NOW - LEEWAY + 1, B)).prepare(NOW - LEEWAY - 1, NOW).accepted


def test_a_generation_that_comes_after_a_write_of_its_time_is_told() -> None:
    known = timeline((0, A)).served(NOW * 1000).served((NOW - 50) * 1000)
    assert known.prepare(NOW, NOW).late_for_us == NOW * 1000
    assert known.insert(NOW - 1, B, NOW).late_for_us == NOW * 1000
    assert known.prepare(NOW + 1, NOW).late_for_us is None
    assert known.insert(NOW - 1, B, NOW).timeline.prepare(NOW - 2, NOW).late_for_us is None  # that one had it
    assert known.prepare(NOW, NOW).timeline.insert(NOW, B, NOW).late_for_us is None  # told when it was prepared


def test_what_no_write_can_belong_to_is_forgotten() -> None:
    known = timeline((0, A), (NOW - 2 * LEEWAY, B), (NOW - LEEWAY, C), (NOW, A))
    assert known.forget(NOW).generations == ((NOW - LEEWAY, C), (NOW, A))
    assert timeline((NOW, A)).forget(NOW) == timeline((NOW, A))
    assert timeline().forget(NOW) == timeline()
    assert known.insert(NOW + 5, B, NOW).timeline.generations == ((NOW - LEEWAY, C), (NOW, A), (NOW + 5, B))


def test_when_a_generation_begins() -> None:
    assert next_generation_ms(NOW, None) == NOW
    assert next_generation_ms(NOW, NOW - 1) == NOW + 65_000
    assert next_generation_ms(NOW, NOW - 1, ring_delay_ms=0) == NOW
    with pytest.raises(GenerationError, match="clock"):
        next_generation_ms(NOW, NOW + 65_000)
