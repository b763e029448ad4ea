"""What one life of a writer does, act by act, and what becomes of one that stood still between two of them."""

import random

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.following import Followed
from headgate.generation.changelog.core.life import (
    ASK_SECONDS,
    REPORT_SECONDS,
    Act,
    FollowReport,
    LifeOverError,
    LogDeletedError,
    Simple,
    Write,
    WriterLife,
)
from headgate.generation.changelog.core.outbox import Outbox, PendingChange, PositionsLostError, Written
from headgate.generation.changelog.core.pacing import BatchPace
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.records.generation import (
    ChunkKey,
    GenerationPhase,
    GenerationRecorded,
    SetKey,
    SetRecorded,
    WriterAdmitted,
    WriterKey,
)

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 1, BITS)
TWO = next_map(ONE, resize(ONE, 2), [1, 2], 8, BITS)
FIRST = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, (), "", 0)
NOW = 100.0
SECOND = replace(FIRST, epoch=2, follows=1)


def tell(state: GenerationState, generation: GenerationRecorded, *, life: int = 5, is_over: bool = False) -> None:
    log = ONE if generation.epoch == 1 else TWO
    evolve(state, ChunkKey("s", log.generation, 0), chunks_of(log, 0)[0], 0)
    evolve(state, ChunkKey("s", 3 - log.generation, 0), None, 0)
    writers = (WriterAdmitted("w", life, is_over),)
    evolve(state, SetKey("s"), SetRecorded(0, "t", None, 8, 2, (generation,), writers), 0)


def acts_of(life: WriterLife, written: Written | None = None, now: float = NOW) -> list[Act]:
    turn, acts, answer = life.turn(now), [], None
    while True:
        try:
            acts.append(turn.send(answer))
        except StopIteration:
            return acts
        answer = written if acts[-1] is Simple.READ_WRITTEN else None


def begun() -> tuple[GenerationState, Outbox, WriterLife]:
    state, outbox = new_state(0), Outbox(10)
    tell(state, FIRST)
    life = WriterLife(state, "s", "w", 5, outbox, pace=BatchPace(10))
    assert acts_of(life, Written(3, 3)) == [
        Simple.TAKE_ID, Simple.READ_RECORDS, Simple.READ_WRITTEN, FollowReport(Followed(1)),
    ]  # fmt: skip
    assert life.is_started
    return state, outbox, life


def test_what_stands_on_the_log_is_left_out_and_the_rest_is_one_write() -> None:
    _, outbox, life = begun()
    assert [outbox.add(PendingChange(position, 0, b"k", None)) for position in (3, 4)] == [False, True]
    (write,) = acts_of(life)
    assert isinstance(write, Write)
    assert write.batch.after == Written(4, 4)
    assert outbox.written == Written(4, 4)
    assert acts_of(life) == []


@pytest.mark.parametrize(("admitted", "is_over", "is_replaced"), [(5, True, False), (6, False, True)])
def test_who_stood_still_until_its_generation_was_removed_is_over_and_writes_by_no_map(
    *, admitted: int, is_over: bool, is_replaced: bool
) -> None:
    state, outbox, life = begun()
    outbox.add(PendingChange(4, 0, b"k", None))
    frozen = life.turn(NOW)
    assert isinstance(next(frozen), Write)
    tell(state, SECOND, life=admitted, is_over=is_over)
    # Its transaction is refused, since its transactional.id was taken; the shell looks at the newest records then.
    with pytest.raises(LifeOverError) as over:
        acts_of(life)
    assert over.value.is_replaced is is_replaced
    assert outbox.written == Written(3, 3), "what was not committed is not said to be written"
    again = WriterLife(state, "s", "w", admitted, outbox, pace=BatchPace(10))
    tell(state, SECOND, life=admitted)
    acts_of(again, Written(3, 3))
    (write,) = acts_of(again)
    assert isinstance(write, Write)
    assert [(change.position, partition) for change, partition in write.batch.changes] == [
        (4, TWO.stream_of(0).partition),
    ]


def test_who_takes_the_id_and_reads_that_it_may_not_write_does_not_begin() -> None:
    state, outbox = new_state(0), Outbox(10)
    tell(state, FIRST)
    life = WriterLife(state, "s", "w", 5, outbox, pace=BatchPace(10))
    turn = life.turn(NOW)
    assert [next(turn), next(turn)] == [Simple.TAKE_ID, Simple.READ_RECORDS]
    tell(state, FIRST, life=6)
    assert list(turn) == []
    assert not life.is_started


def test_load_is_reported_at_a_bounded_rate_and_counts_what_is_committed() -> None:
    _, outbox, life = begun()
    outbox.add(PendingChange(4, 7, b"k", None))
    assert isinstance(acts_of(life, now=NOW + 1)[0], Write)
    assert acts_of(life, now=NOW + REPORT_SECONDS - 0.1) == []
    outbox.add(PendingChange(5, 7, b"k", None))
    frozen = life.turn(NOW + REPORT_SECONDS - 0.1)
    assert isinstance(next(frozen), Write), "its transaction comes to nothing"
    outbox.begin(Written(4, 4))
    (report,) = [act for act in acts_of(life, now=NOW + REPORT_SECONDS) if isinstance(act, FollowReport)]
    (load,) = report.loads
    assert (load.stream, load.changes, load.seconds) == (str(ONE.streams[0].id), 2, REPORT_SECONDS)
    assert report.record(5).loads == report.loads
    assert acts_of(life, now=NOW + REPORT_SECONDS + 1) == []
    (report,) = acts_of(life, now=NOW + 2 * REPORT_SECONDS)
    assert isinstance(report, FollowReport)
    assert [each.changes for each in report.loads] == [0], "who writes nothing says so"


def test_load_of_an_earlier_map_is_not_reported() -> None:
    state, outbox, life = begun()
    outbox.add(PendingChange(4, 7, b"k", None))
    acts_of(life, now=NOW + REPORT_SECONDS)
    tell(state, SECOND)
    assert acts_of(life, now=NOW + REPORT_SECONDS + 1) == [FollowReport(Followed(2))]
    assert acts_of(life, now=NOW + 2 * REPORT_SECONDS) == []
    (report,) = acts_of(life, now=NOW + 2 * REPORT_SECONDS + 1)
    assert isinstance(report, FollowReport)
    assert [each.stream for each in report.loads] == [str(TWO.streams[0].id)]
    assert life.farewell().loads == ()


def test_a_writer_whose_change_log_is_deleted_is_told_and_writes_nothing_into_a_new_one() -> None:
    state, outbox, life = begun()
    outbox.add(PendingChange(4, 0, b"k", None))
    evolve(state, SetKey("s"), SetRecorded(0, "", None, 0, 2, (), ()), 0)
    with pytest.raises(LogDeletedError):
        acts_of(life)
    tell(state, FIRST)
    evolve(state, SetKey("s"), replace(state.sets["s"], writers=()), 0)
    with pytest.raises(LogDeletedError):
        acts_of(life)


def test_a_writer_that_waits_asks_again_if_the_log_was_deleted_with_its_request() -> None:
    state = new_state(0)
    life = WriterLife(state, "s", "w", 5, Outbox(10), pace=BatchPace(10))
    assert acts_of(life) == [FollowReport(Followed())]
    assert acts_of(life) == []
    key = WriterKey("s", "w", 5)
    evolve(state, key, FollowReport(Followed()).record(0), 0)
    assert acts_of(life) == []
    evolve(state, key, None, 0)
    assert acts_of(life) == []
    assert acts_of(life, now=NOW + ASK_SECONDS) == [FollowReport(Followed())]
    assert acts_of(life, now=NOW + ASK_SECONDS) == []


def test_an_incarnation_that_finds_less_written_than_an_earlier_one_wrote_does_not_begin() -> None:
    state, outbox, _ = begun()
    tell(state, FIRST, life=6)
    again = WriterLife(state, "s", "w", 6, outbox, pace=BatchPace(10))
    with pytest.raises(PositionsLostError, match="up to position 3 were written, and the log has those up to -1 only"):
        acts_of(again, Written())
