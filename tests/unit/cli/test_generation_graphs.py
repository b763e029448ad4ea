"""A change log's picture: who is as wide as its range, and who stands below whom."""

import random
from io import StringIO

from msgspec.structs import replace
from rich.console import Console

from headgate.cli.generation_graphs import draw, ring_of
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.records.generation import GenerationPhase, GenerationRecorded, SetRecorded

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 1, BITS)
FOUR = next_map(ONE, resize(ONE, 4), [1, 2, 3, 4], 8, BITS)
TWO = next_map(FOUR, resize(FOUR, 2), [5, 6], 8, BITS)
FIRST = GenerationRecorded(1, GenerationPhase.SUPERSEDED, 1, 0, (), {}, (), "", 0)
SECOND = replace(FIRST, epoch=2, follows=1, phase=GenerationPhase.COMMITTED)
RECORD = SetRecorded(0, "shop.orders", None, 8, 2, (FIRST, SECOND), ())


def test_streams_are_as_wide_as_their_ranges_and_children_stand_below_their_parents() -> None:
    one, four = ring_of(FIRST, ONE, 40), ring_of(SECOND, FOUR, 40)
    assert one.plain.split() == [f"p{ONE.streams[0].partition}"]
    assert [span.end - span.start for span in four.spans] == [10, 10, 10, 10]
    assert four.plain.split() == [f"p{stream.partition}" for stream in FOUR.streams]
    assert len({span.style for span in four.spans[:2]}) == 2, "neighbours are told apart"


def test_a_stream_that_was_kept_looks_otherwise_than_one_that_was_opened() -> None:
    kept = ring_of(replace(SECOND, epoch=3), FOUR, 40)
    assert {span.style for span in kept.spans}.isdisjoint(span.style for span in ring_of(SECOND, FOUR, 40).spans)
    assert len(ring_of(replace(SECOND, epoch=3), TWO, 40).spans) == 2


def test_more_streams_than_columns_are_said_and_readers_that_hold_back_are_named() -> None:
    console = Console(file=StringIO(), width=120, record=True)
    console.print(draw("orders", RECORD, {1: ONE, 2: FOUR}, {"billing": 1, "audit": 2}, columns=3))
    shown = console.export_text()
    assert "orders: shop.orders" in shown
    assert "generation 2: more streams than columns" in shown
    (line,) = [line for line in shown.splitlines() if "superseded" in line]
    assert "reader billing" in line
    assert "reader audit" not in line
    assert "reader billing has read what switches up to 1 closed" in shown
