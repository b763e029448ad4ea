"""What a writer does next, by what stands on the log."""

import random

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.following import Followed, StepKind, next_step
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.records.generation import (
    ChunkKey,
    GenerationPhase,
    GenerationRecorded,
    SetKey,
    SetRecorded,
    WriterAdmitted,
    WriterCut,
)

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 1, BITS)
TWO = next_map(ONE, resize(ONE, 2), [1, 2], 8, BITS)
FIRST = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, (), "", 0)
CUT = WriterCut("w", 5, None, ended=False)
PREPARED = GenerationRecorded(2, GenerationPhase.PREPARED, 1, 1, (CUT,), {}, (), "", 0)
COMMITTED = replace(PREPARED, phase=GenerationPhase.COMMITTED, cuts=(replace(CUT, position=9),))
CLOSING = replace(FIRST, phase=GenerationPhase.CLOSING)


def told(*generations: GenerationRecorded, life: int = 5, is_over: bool = False) -> GenerationState:
    state = new_state(0)
    for log in (ONE, TWO):
        evolve(state, ChunkKey("s", log.generation, 0), chunks_of(log, 0)[0], 0)
    record = SetRecorded(0, "t", None, 8, 2, generations, (WriterAdmitted("w", life, is_over),))
    evolve(state, SetKey("s"), record, 0)
    return state


@pytest.mark.parametrize(
    ("state", "followed", "kind"),
    [
        (new_state(0), Followed(), StepKind.JOIN),
        (told(FIRST, life=4), Followed(), StepKind.JOIN),
        (told(), Followed(), StepKind.JOIN),
        (told(FIRST, life=6), Followed(1), StepKind.REPLACED),
        (told(FIRST, is_over=True), Followed(1), StepKind.LOST),
        (told(FIRST), Followed(), StepKind.START),
        (told(FIRST), Followed(1), StepKind.WRITE),
        (told(FIRST, PREPARED), Followed(1), StepKind.PROMISE),
        (told(FIRST, replace(PREPARED, cuts=())), Followed(1), StepKind.WRITE),
        (told(FIRST, PREPARED), Followed(1, 2, 7), StepKind.WRITE),
        (told(FIRST, replace(PREPARED, phase=GenerationPhase.ABORTED)), Followed(1, 2, 7), StepKind.RELEASE),
        (told(FIRST, replace(PREPARED, epoch=3)), Followed(1, 2, 7), StepKind.RELEASE),
        (told(CLOSING, COMMITTED), Followed(1, 2, 9), StepKind.SWITCH),
        (told(CLOSING, COMMITTED), Followed(), StepKind.START),
        (told(CLOSING, COMMITTED), Followed(2), StepKind.WRITE),
    ],
)
def test_the_next_step(state: GenerationState, followed: Followed, kind: StepKind) -> None:
    assert next_step(state, "s", "w", 5, followed).kind is kind


def test_a_promise_is_about_what_is_closed() -> None:
    step = next_step(told(FIRST, PREPARED), "s", "w", 5, Followed(1))
    assert step.switch is not None
    assert step.switch.closed == ONE.streams
    assert step.epoch == 2
