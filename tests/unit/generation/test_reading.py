"""What a reader may read, and what it is told: parents first, late records refused, gaps reported (H6, H8)."""

import json
import random

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.changelog.core.reading import (
    FINISHED,
    Gap,
    Marker,
    PositionsError,
    Reading,
    UnknownStreamError,
    Verdict,
)
from headgate.generation.core.ranges import LogMap, MapError
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.generation.core.stream_id import StreamId
from headgate.records.generation import ChunkKey, GenerationPhase, GenerationRecorded, SetKey, SetRecorded, WriterCut

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 2, BITS)
TWO = next_map(ONE, resize(ONE, 4)[:1], [2, 3], 8, BITS, starts=dict.fromkeys(range(8), 10))
A, B = ONE.streams
A1, A2 = TWO.streams[:2]


def generation(log: LogMap, phase: GenerationPhase, **more: object) -> GenerationRecorded:
    cuts = () if log.generation == 1 else (WriterCut("w1", 1, 5, ended=False), WriterCut("w2", None, 7, ended=False))
    made = GenerationRecorded(log.generation, phase, 1, log.generation - 1, cuts, {}, (), "", 0)
    return replace(made, **more)


def told(*generations: tuple[LogMap, GenerationRecorded]) -> GenerationState:
    state = new_state(0)
    for log, _ in generations:
        for number, chunk in enumerate(chunks_of(log, 0)):
            evolve(state, ChunkKey("s", log.generation, number), chunk, 0)
    record = SetRecorded(0, "t", None, 8, 2, tuple(each for _, each in generations), ())
    evolve(state, SetKey("s"), record, 0)
    return state


def switched(**more: object) -> GenerationState:
    return told(
        (ONE, generation(ONE, GenerationPhase.CLOSING)), (TWO, generation(TWO, GenerationPhase.COMMITTED, **more))
    )


def readable(reading: Reading) -> list[StreamId]:
    return [each.stream.id for each in reading.readable()]


def end(reading: Reading, writer: str, offset: int) -> Verdict:
    return reading.take(A.id, offset, writer, Marker(2, writer))


def test_a_child_is_read_when_all_writers_have_ended_its_parents() -> None:
    reading = Reading("s")
    reading.learn(told((ONE, generation(ONE, GenerationPhase.COMMITTED))))
    assert readable(reading) == [A.id, B.id]
    reading.learn(switched())
    assert readable(reading) == [A.id, B.id]
    assert reading.take(A.id, 3, "w1", None) is Verdict.DELIVER
    assert end(reading, "w1", 4) is Verdict.MARKER
    assert readable(reading) == [A.id, B.id]
    assert reading.take(A.id, 5, "w2", None) is Verdict.DELIVER, "w2 has not ended it"
    assert reading.read_epoch() == 1
    assert end(reading, "w2", 6) is Verdict.MARKER
    assert readable(reading) == [B.id, A1.id, A2.id]
    assert reading.read_epoch() == 2
    assert reading.streams[A1.id].next_offset == 10, "a child begins where the generation says, never at the end"


def test_a_record_behind_its_writers_end_is_refused() -> None:
    reading = Reading("s")
    reading.learn(switched())
    end(reading, "w1", 4)
    assert reading.take(A.id, 5, "w1", None) is Verdict.REFUSE
    assert reading.take(A.id, 6, "w2", None) is Verdict.DELIVER
    assert reading.refused == 1


def test_markers_of_a_switch_that_was_aborted_end_nothing() -> None:
    reading = Reading("s")
    aborted = told((ONE, generation(ONE, GenerationPhase.COMMITTED)), (TWO, generation(TWO, GenerationPhase.ABORTED)))
    reading.learn(aborted)
    end(reading, "w1", 4)
    end(reading, "w2", 5)
    assert readable(reading) == [A.id, B.id]
    assert reading.take(A.id, 6, "w1", None) is Verdict.DELIVER


def test_markers_may_be_read_before_the_commit_is() -> None:
    reading = Reading("s")
    reading.learn(told((ONE, generation(ONE, GenerationPhase.COMMITTED))))
    end(reading, "w1", 4)
    end(reading, "w2", 5)
    reading.learn(switched())
    assert A.id not in readable(reading)


def test_strictly_a_generation_is_read_when_the_one_before_is() -> None:
    three = next_map(TWO, resize(TWO, 4), [4, 5, 6], 8, BITS)
    state = told(
        (ONE, generation(ONE, GenerationPhase.SUPERSEDED)),
        (TWO, generation(TWO, GenerationPhase.CLOSING)),
        (three, generation(three, GenerationPhase.COMMITTED)),
    )
    by_lineage, strictly = Reading("s"), Reading("s", strict=True)
    for reading in (by_lineage, strictly):
        reading.learn(state)
        for stream in (B,):
            for writer in ("w1", "w2"):
                reading.take(stream.id, 5, writer, Marker(3, writer))
    opened = [stream.id for stream in three.streams if stream.generation == 3]
    assert set(opened) <= set(readable(by_lineage))
    assert not set(opened) & set(readable(strictly))


def test_what_retention_took_before_it_was_read_is_a_gap() -> None:
    reading = Reading("s")
    reading.learn(switched(closed_ends={0: 50}))
    assert reading.passed(A.id, 20, log_start=0) is None
    gap = reading.passed(A.id, 30, log_start=40)
    assert gap is not None
    assert (gap.first, gap.last, gap.partition) == (20, 40, 0)
    assert reading.passed(A.id, 50, log_start=40) is None, "what may have been deleted with them is reported once"
    assert A1.id in readable(reading), "reading goes on, and says what was lost"
    assert reading.passed(A.id, 50, log_start=60) is None, "a gap is told once"


def test_retention_that_deleted_everything_unread_is_one_gap() -> None:
    reading = Reading("s")
    reading.learn(switched(closed_ends={0: 50}))
    reading.passed(A.id, 20, log_start=0)
    assert reading.passed(A.id, 90, log_start=90) == Gap(
        str(A.id), 0, 20, 50, "deleted by retention before it was read"
    ), "up to the end of the stream: what is behind it is another's"
    assert A1.id in readable(reading)
    open_one = Reading("s")
    open_one.learn(told((ONE, generation(ONE, GenerationPhase.COMMITTED))))
    gap = open_one.passed(A.id, 90, log_start=90)
    assert gap is not None
    assert (gap.first, gap.last) == (0, 90)
    assert open_one.learn(switched(closed_ends={0: 90})) == (), "its END markers may be among what was deleted"
    assert A1.id in readable(open_one)


def test_end_markers_that_are_missing_are_a_gap_as_soon_as_the_end_is_known() -> None:
    reading = Reading("s")
    reading.learn(told((ONE, generation(ONE, GenerationPhase.COMMITTED))))
    end(reading, "w1", 49)
    (gap,) = reading.learn(switched(closed_ends={0: 50}))
    assert (gap.first, gap.last, gap.what) == (50, 50, "no END marker of w2")
    assert A1.id in readable(reading)


def test_a_reader_that_goes_on_needs_no_marker_that_an_earlier_life_has_seen() -> None:
    reading = Reading("s")
    reading.learn(switched(closed_ends={0: 50}))
    reading.resume({str(A.id): 49})
    assert reading.passed(A.id, 50, log_start=0) is None
    assert A1.id in readable(reading)


def test_what_was_retired_before_it_was_read_is_a_gap() -> None:
    reading = Reading("s")
    reading.learn(told((ONE, generation(ONE, GenerationPhase.COMMITTED))))
    (gap,) = reading.learn(told((TWO, generation(TWO, GenerationPhase.COMMITTED))))
    assert (gap.stream, gap.what) == (str(A.id), "closed and retired before it was read")
    assert A.id not in reading.streams, "what is retired is forgotten"


def test_what_is_not_there_is_said() -> None:
    reading = Reading("s")
    with pytest.raises(UnknownStreamError):
        reading.take(A.id, 0, "w1", None)
    state = switched()
    del state.chunks["s", 2]
    with pytest.raises(MapError, match="s/2/0 does not exist on the"):
        reading.learn(state)


def test_positions_are_plain_and_a_reader_continues_from_them() -> None:
    reading = Reading("s")
    reading.learn(switched())
    end(reading, "w1", 4)
    end(reading, "w2", 6)
    reading.take(B.id, 7, "w1", None)
    stored = {str(stream): position for stream, position in reading.positions().items()}
    assert stored == {str(A.id): FINISHED, str(B.id): 8, str(A1.id): 10, str(A2.id): 10}
    later = Reading("s")
    later.learn(switched())
    assert later.resume(json.loads(json.dumps(stored))) == ()
    assert (later.positions(), later.read_epoch()) == (reading.positions(), 2)
    assert later.read_epoch({**later.positions(), A.id: 5}) == 1, "as of positions that were stored before"


@pytest.mark.parametrize(
    ("positions", "why"),
    [
        ({"A": 3}, "'A' is not the id of a stream"),
        ({A.id: 3}, "32 hexadecimal digits"),
        ({0: 3}, "32 hexadecimal digits"),
        ({str(A.id): 3.0}, r"must be an offset, .* got 3\.0"),
        ({str(A.id): True}, "got True"),
        ({str(A.id): "3"}, "got '3'"),
        ({str(A.id): -2}, "got -2"),
        ({str(A.id): 1 << 63}, "must be an offset"),
        ({str(B.id): FINISHED}, "is not closed"),
        ({str(StreamId.pack(0, 1, 2)): 3}, "belongs to change log .s."),
    ],
)
def test_positions_that_no_reader_has_stored_are_refused(positions: dict[str, int], why: str) -> None:
    reading = Reading("s")
    reading.learn(switched())
    before = reading.positions()
    with pytest.raises(PositionsError, match=why):
        reading.resume(positions)
    assert reading.positions() == before


def test_a_stored_position_of_a_stream_that_is_retired_is_a_gap_unless_it_was_finished() -> None:
    reading = Reading("s")
    reading.learn(told((TWO, generation(TWO, GenerationPhase.COMMITTED))))
    assert reading.resume({str(A.id): FINISHED, str(B.id): 3}) == ()
    (gap,) = reading.resume({str(A.id): 7, str(B.id): 3})
    assert (gap.stream, gap.partition, gap.first) == (str(A.id), None, 7)


def test_a_reader_that_begins_at_offsets_of_partitions_begins_within_each_stream() -> None:
    reading = Reading("s")
    reading.learn(switched(closed_ends={0: 9}))
    reading.resume_at({0: 20, 1: 4, 2: 15, 3: 3})
    assert reading.positions() == {A.id: FINISHED, B.id: 4, A1.id: 15, A2.id: 10}


def test_an_empty_stream_does_not_let_its_children_begin_before_its_own_parents_are_read() -> None:
    """Two switches while no writer was there: the streams between them have no record, so they end where they begin."""
    middle = next_map(ONE, resize(ONE, 1), [4], 8, BITS, starts={4: 0})
    last = next_map(middle, resize(middle, 2), [5, 6], 8, BITS, starts={5: 0, 6: 0})
    first = generation(ONE, GenerationPhase.SUPERSEDED)
    ended = generation(middle, GenerationPhase.SUPERSEDED, cuts=(), closed_ends={0: 50, 1: 70})
    current = generation(last, GenerationPhase.COMMITTED, cuts=(), closed_ends={4: 0})
    reading = Reading("s")
    assert reading.learn(told((ONE, first), (middle, ended), (last, current))) == ()
    assert readable(reading) == [A.id, B.id]
    assert reading.passed(A.id, 50, 0) is None
    assert readable(reading) == [B.id]
    assert reading.passed(B.id, 70, 0) is None
    (between,) = middle.streams
    assert readable(reading) == [between.id]
    assert reading.read_epoch() == 2
    assert reading.passed(between.id, 0, 0) is None, "no marker is missing: no writer was there"
    assert readable(reading) == [each.id for each in last.streams]
    assert reading.read_epoch() == 3
