"""What ChangeReader and the simulation's reader share: which stream of a partition is read, what a commit says."""

import random
from collections.abc import Sequence

import pytest

from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.changelog.core.reader_progress import GAPS_MAX, ReaderProgress
from headgate.generation.changelog.core.reading import FINISHED, Marker
from headgate.generation.core.ranges import LogMap, LogStream, Recut
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.stream_table import Gate
from headgate.records.generation import (
    ChunkKey,
    GenerationPhase,
    GenerationRecorded,
    SetKey,
    SetRecorded,
    WriterCut,
)

BITS = random.Random(7).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(6, 2, BITS)
A, B = ONE.streams
TWO = next_map(ONE, [Recut((B.id,), ((B.start + B.end) // 2,), "")], [2, 3], 6, BITS, starts=dict.fromkeys(range(6), 8))
THREE = next_map(
    TWO, [Recut((A.id,), ((A.start + A.end) // 2,), "")], [1, 4], 6, BITS, starts=dict.fromkeys(range(6), 9)
)
B1, B2 = (stream for stream in TWO.streams if stream.generation == 2)
A1, A2 = (stream for stream in THREE.streams if stream.generation == 3)


def told(*maps: LogMap, ends: Sequence[dict[int, int]] = ()) -> GenerationState:
    state = new_state(0)
    generations = []
    for number, log in enumerate(maps):
        for chunk, record in enumerate(chunks_of(log, 0)):
            evolve(state, ChunkKey("s", log.generation, chunk), record, 0)
        phase = GenerationPhase.COMMITTED if log is maps[-1] else GenerationPhase.SUPERSEDED
        cuts = () if number == 0 else (WriterCut("w", 1, 5, ended=True),)
        closed = ends[number - 1] if number and number <= len(ends) else {}
        generations.append(GenerationRecorded(log.generation, phase, 1, log.generation - 1, cuts, closed, (), "", 0))
    evolve(state, SetKey("s"), SetRecorded(0, "t", None, 6, maps[-1].generation, tuple(generations), ()), 0)
    return state


def begun(state: GenerationState) -> ReaderProgress:
    progress = ReaderProgress("s")
    progress.learn(state)
    progress.begin({})
    return progress


def fetched(progress: ReaderProgress) -> dict[int, tuple[StreamId, int]]:
    return {partition: (each.stream.id, each.next_offset) for partition, each in progress.fetches().items()}


def end(progress: ReaderProgress, stream: LogStream, epoch: int, offset: int) -> None:
    assert progress.take(stream.partition, offset, "w", Marker(epoch, "w")) is None


def test_of_two_streams_of_a_partition_the_older_is_read_first_and_then_the_other() -> None:
    """B was on partition 1 until offset 9; A1 is there now. A new reader may read both as soon as A is read."""
    progress = begun(told(ONE, TWO, THREE, ends=({1: 9}, {0: 5})))
    assert fetched(progress) == {0: (A.id, 0), 1: (B.id, 0)}
    end(progress, A, 3, 4)
    assert fetched(progress) == {1: (B.id, 0), 4: (A2.id, 9)}, "A1 is readable, and waits for its partition"
    progress.reached(1, 9)
    assert [gap.what for gap in progress.new_gaps()] == ["no END marker of w"]
    assert fetched(progress) == {1: (A1.id, 9), 2: (B1.id, 8), 3: (B2.id, 8), 4: (A2.id, 9)}


def test_an_older_stream_takes_its_partition_back_when_it_becomes_readable() -> None:
    progress = ReaderProgress("s")
    progress.learn(told(ONE, TWO, THREE, ends=({1: 9}, {0: 5})))
    progress.resume({str(A.id): FINISHED, str(A1.id): 30})
    assert fetched(progress)[1] == (B.id, 0)
    end(progress, B, 2, 8)
    assert fetched(progress)[1] == (A1.id, 30)


def test_what_lies_behind_the_end_of_a_stream_belongs_to_the_next() -> None:
    progress = begun(told(ONE, TWO, THREE, ends=({1: 9}, {0: 5})))
    progress.fetches()
    end(progress, A, 3, 4)
    progress.fetches()
    end(progress, B, 2, 8)
    assert progress.take(1, 9, "w", None) is None, "fetched for the stream that is over"
    progress.fetches()
    assert not progress.is_awaited(1, 8)
    given = progress.take(1, 9, "w", None)
    assert given is not None
    assert given.stream.id == A1.id


def test_only_a_commit_says_what_is_read() -> None:
    progress = begun(told(ONE))
    progress.learn(told(ONE, TWO, ends=({1: 9},)))
    progress.fetches()
    progress.take(1, 7, "w", None)
    before = progress.positions
    end(progress, B, 2, 8)
    assert progress.committed_epoch == 0
    assert progress.moved[str(B.id)] == FINISHED
    progress.commit(before)
    assert progress.committed_epoch == 1, "as of positions that were stored before"
    progress.commit()
    assert (progress.committed_epoch, progress.moved) == (2, {})
    progress.commit(before)
    assert progress.committed_epoch == 2, "never back"


def test_a_gap_of_a_stream_that_was_retired_is_stored_with_the_positions_that_moved() -> None:
    progress = ReaderProgress("s")
    progress.learn(told(TWO))
    stored = {str(A.id): 3, str(B.id): 5}
    progress.resume(stored)
    assert [gap.stream for gap in progress.new_gaps()] == [str(B.id)]
    stored |= progress.moved
    assert stored == {str(A.id): 3, str(B.id): FINISHED}
    progress.commit()
    assert progress.moved == {}
    again = ReaderProgress("s")
    again.learn(told(TWO))
    again.resume(stored)
    assert again.new_gaps() == ()


def test_a_blocked_partition_is_read_on_from_where_it_was_blocked() -> None:
    progress = begun(told(ONE))
    assert set(progress.fetches()) == {0, 1}
    progress.take(0, 3, "w", None)
    progress.block(0)
    assert set(progress.fetches()) == {1}
    assert progress.take(0, 5, "w", None) is None, "what is behind it is not taken"
    progress.reached(0, 9)
    progress.unblock(0)
    assert fetched(progress)[0] == (A.id, 4)


def test_what_is_asked_at_every_poll_is_answered_from_what_is_known() -> None:
    state = told(ONE, TWO, ends=({1: 9},))
    progress = begun(state)
    first = progress.fetches()
    for offset in range(5):
        progress.learn(state)
        progress.take(0, offset, "w", None)
        assert progress.fetches() is first, "nothing was recomputed"


def test_kept_gaps_are_bounded() -> None:
    progress = begun(told(ONE))
    progress.fetches()
    for start in range(1, GAPS_MAX + 11):
        progress.deleted(0, start)
    assert len(progress.gaps) == GAPS_MAX
    assert progress.gaps[-1].last == GAPS_MAX + 10


class Counted:
    """A stream that counts how often it is asked by whom it was closed."""

    asked = 0

    def __init__(self, stream: LogStream, closed_by: int | None) -> None:
        self.stream, self._closed_by = stream, closed_by

    @property
    def closed_by(self) -> int | None:
        Counted.asked += 1
        return self._closed_by


@pytest.mark.parametrize("strict", [False, True])
def test_the_cost_of_a_look_at_all_streams_grows_with_their_number(strict: bool) -> None:
    log = first_map(600, 300, BITS)
    after = next_map(log, resize(log, 600)[:40], list(range(300, 600)), 600, BITS)
    unread = {
        stream.id: Counted(stream, None if stream.id in after.by_id else 2) for stream in (*log.streams, *after.streams)
    }
    Counted.asked = 0
    gate = Gate(unread, strict=strict)
    readable = gate.readable()
    held = [gate.held_by(stream) for stream in after.streams]
    assert len(readable) == 300
    assert sum(map(bool, held)) == sum(stream.generation == 2 for stream in after.streams)
    assert Counted.asked <= 6 * len(unread)


def test_what_is_reached_is_not_taken_back_and_what_is_read_is_not_unread() -> None:
    progress = begun(told(ONE, TWO, ends=({1: 9},)))
    progress.fetches()
    progress.reached(0, 5)
    progress.reached(0, 3)
    assert fetched(progress)[0] == (A.id, 5)
    assert {each.stream.id for each in progress.unread} == {A.id, B.id, B1.id, B2.id}
    end(progress, B, 2, 8)
    assert {each.stream.id for each in progress.unread} == {A.id, B1.id, B2.id}
