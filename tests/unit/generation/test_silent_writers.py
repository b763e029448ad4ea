"""Who is fenced, and when: the silent, a few at a time, and nobody who answers before its turn has come."""

import random
from typing import Any

import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.changelog.core.switching import (
    ABANDON_SECONDS,
    ABANDON_SECONDS_MAX,
    FENCES_MAX,
    PROMISE_SECONDS,
    PROMISE_SECONDS_MAX,
)
from headgate.generation.core.effects import (
    EndsMeasured,
    EndsWritten,
    FenceWriter,
    MeasureEnds,
    WriteEnds,
    WriterFenced,
)
from headgate.generation.core.state import chunks_of, current_of, evolve, new_state, state_for_writer
from headgate.generation.owner.core.machine import decide
from headgate.records.generation import (
    ChunkKey,
    GenerationPhase,
    GenerationRecorded,
    SetKey,
    SetRecorded,
    WriterAdmitted,
    WriterCut,
    WriterKey,
    WriterReported,
)
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    EffectFailed,
    EffectFinished,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 1, BITS)
TWO = next_map(ONE, resize(ONE, 2), [1, 2], 8, BITS)
COUNT = 40
WRITERS = [f"w{number:02}" for number in range(COUNT)]
FIRST = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, (), "", 0)


class Owner:
    """The machine, with every fact adopted at once; it finds a switch that waits for forty writers."""

    def __init__(self) -> None:
        self.state = new_state(0)
        for log in (ONE, TWO):
            evolve(self.state, ChunkKey("s", log.generation, 0), chunks_of(log, 0)[0], 0)
        cuts = tuple(WriterCut(writer, 1, None, ended=False) for writer in WRITERS)
        second = GenerationRecorded(2, GenerationPhase.PREPARED, 1, 1, cuts, {}, (), "", 0)
        writers = tuple(WriterAdmitted(writer, 1, is_over=False) for writer in WRITERS)
        evolve(self.state, SetKey("s"), SetRecorded(0, "t", None, 8, 2, (FIRST, second), writers), 0)
        self.now = 100.0
        self.timers: dict[str, float] = {}
        self.effects: list[Any] = []
        self.give(TermBegan(1))

    def give(self, given: Any) -> None:
        decision = decide(self.state, given, Now(self.now, 0))
        for fact in decision.facts:
            evolve(self.state, fact.key, fact.value, 1)
        for effect in decision.effects:
            match effect:
                case SetTimer(name=name, delay_seconds=delay):
                    self.timers[name] = self.now + delay
                case CancelTimer(name=name):
                    self.timers.pop(name, None)
                case _:
                    self.effects.append(effect)

    def hear(self, writer: str, epoch: int = 1, promised: int = 2) -> None:
        key, report = (
            WriterKey("s", writer, 1),
            WriterReported(epoch, promised, 7, leaving=False, loads=(), reported_ms=0),
        )
        evolve(self.state, key, report, 1)
        self.give(Arrived(Delivery(Partition("generation", 0), 1, key, report)))

    def wait_until(self, at: float) -> None:
        while due := [name for name, deadline in self.timers.items() if deadline <= at]:
            name = min(due, key=lambda each: self.timers[each])
            self.now = max(self.now, self.timers.pop(name))
            self.give(TimerFired(name))
        self.now = at

    def fenced(self) -> list[str]:
        return [effect.writer for effect in self.effects if isinstance(effect, FenceWriter)]

    def phase(self, epoch: int) -> GenerationPhase:
        return next(each.phase for each in self.state.sets["s"].generations if each.epoch == epoch)


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_the_silent_are_fenced_a_few_at_a_time_and_who_answers_meanwhile_is_left_alone(owner: Owner) -> None:
    owner.wait_until(100 + PROMISE_SECONDS)
    assert owner.fenced() == WRITERS[:FENCES_MAX]
    for writer in WRITERS[FENCES_MAX:-1]:
        owner.hear(writer)
    for effect in tuple(owner.effects):
        owner.give(EffectFinished(effect, WriterFenced(3)))
    assert owner.fenced() == [*WRITERS[:FENCES_MAX], WRITERS[-1]]
    owner.give(EffectFinished(owner.effects[-1], WriterFenced(5)))
    assert owner.phase(2) is GenerationPhase.COMMITTED
    current = current_of(owner.state.sets["s"])
    assert current is not None
    assert {cut.position for cut in current.cuts} == {3, 5, 7}


def test_while_promises_come_nobody_is_fenced_but_not_for_ever(owner: Owner) -> None:
    for writer in WRITERS[:-1]:
        owner.wait_until(owner.now + PROMISE_SECONDS / 2)
        if owner.now >= 100 + PROMISE_SECONDS_MAX:
            break
        assert owner.fenced() == []
        owner.hear(writer)
    owner.wait_until(100 + PROMISE_SECONDS_MAX)
    assert len(owner.fenced()) == FENCES_MAX


def test_while_writers_are_fenced_a_switch_is_not_given_up_but_not_for_ever(owner: Owner) -> None:
    while owner.now < 100 + ABANDON_SECONDS_MAX - 10:
        owner.wait_until(owner.now + ABANDON_SECONDS - 1)
        assert owner.phase(2) is GenerationPhase.PREPARED
        owner.give(EffectFinished(owner.effects.pop(0), WriterFenced(3)))
    owner.wait_until(100 + ABANDON_SECONDS_MAX)
    assert owner.phase(2) is GenerationPhase.ABORTED


def test_streams_are_ended_for_all_writers_by_the_owner_again_if_it_did_not_succeed(owner: Owner) -> None:
    for writer in WRITERS:
        owner.hear(writer)
    assert owner.phase(1) is GenerationPhase.CLOSING
    (ends,) = owner.effects
    assert ends == WriteEnds("s", 2, "t", (ONE.streams[0].partition,), tuple((writer, 7) for writer in WRITERS))
    owner.give(EffectFinished(ends, EffectFailed("no broker")))
    owner.wait_until(owner.now + 1)
    assert owner.effects == [ends, ends]
    owner.give(EffectFinished(ends, EndsWritten()))
    assert all(not each.is_over for each in owner.state.sets["s"].writers)
    assert all(cut.ended for each in owner.state.sets["s"].generations for cut in each.cuts)
    assert owner.effects[2:] == [MeasureEnds("s", 1, "t", (ONE.streams[0].partition,))]


def test_a_writers_state_has_its_own_set_and_reports(owner: Owner) -> None:
    owner.hear("w01")
    owner.hear("w02")
    mine = state_for_writer(owner.state, "s", "w02")
    assert mine.sets == owner.state.sets
    assert mine.map_of("s", 2) == TWO
    assert list(mine.writers["s"]) == [("w02", 1)]
    assert state_for_writer(owner.state, "other", "w02").sets == {}
    evolve(mine, SetKey("s"), None, 2)
    assert "s" in owner.state.sets, "they are apart"


def test_ends_that_are_measured_supersede(owner: Owner) -> None:
    for writer in WRITERS:
        owner.hear(writer)
    owner.give(EffectFinished(owner.effects[0], EndsWritten()))
    (_, measure) = owner.effects
    owner.give(EffectFinished(measure, EndsMeasured({0: 9})))
    assert owner.phase(1) is not GenerationPhase.CLOSING
    assert owner.state.term is not None
    assert owner.state.term.waiting == {}, "nothing is waited for any more"
