"""A writer's next step for its change log's generations, decided from the newest records.

A writer is a source, for example one partition of a topic. The process that writes its changes has its id, one process
at a time. Each process is a *life* of the writer, with a higher number than the one before. A life asks to be admitted,
waits until the owner's record admits it, and only then takes the writer's transactional.id, which fences the lives
before it. From then on:

    PROMISE    a switch is prepared: hold back what it closes; the highest position written so far is the promise
    RELEASE    that switch came to nothing: write on as before
    SWITCH     it is committed: write on by the new map
    WRITE      nothing has changed

Nothing is written to a closed stream from PROMISE on, and the owner's END markers follow all of the writer's changes
there. So a reader that reads parents to their ENDs before children gets each key's changes in order.
"""

from enum import Enum, auto

import msgspec

from headgate.generation.core.ranges import MapSwitch
from headgate.generation.core.state import GenerationState, current_of
from headgate.records.generation import GenerationPhase, GenerationRecorded


class StepKind(Enum):
    """See the module's docstring. ``JOIN``: ask to be admitted, and wait. ``START``: take the transactional.id.

    ``LOST``: this life is over, it was fenced or given up: begin another. ``REPLACED``: another process is the writer.
    ``DELETED``: the change log was deleted, and perhaps created again.
    """

    JOIN = auto()
    START = auto()
    PROMISE = auto()
    RELEASE = auto()
    SWITCH = auto()
    WRITE = auto()
    LOST = auto()
    REPLACED = auto()
    DELETED = auto()


class Followed(msgspec.Struct, frozen=True):
    """How far a life has followed: the generation that it writes by (0: it has not started), and its open promise."""

    epoch: int = 0
    promised_epoch: int = 0
    promise: int = -1


class FollowingStep(msgspec.Struct, frozen=True):
    """What to do now. ``epoch`` is the generation it is about; ``switch``: what that closes, for PROMISE."""

    kind: StepKind
    epoch: int = 0
    switch: MapSwitch | None = None


def next_step(  # noqa: PLR0911 - a case for each step
    state: GenerationState, name: str, writer: str, life: int, followed: Followed
) -> FollowingStep:
    """The next step of a life. Raises MapError where a generation's chunks are missing or corrupt."""
    record = state.sets.get(name)
    admitted = None if record is None else next((each for each in record.writers if each.writer == writer), None)
    if record is None or admitted is None or admitted.life < life:
        return FollowingStep(StepKind.DELETED if followed.epoch else StepKind.JOIN)
    if admitted.life > life:
        return FollowingStep(StepKind.REPLACED)
    if admitted.is_over:
        return FollowingStep(StepKind.LOST)
    current = current_of(record)
    if current is None:
        return FollowingStep(StepKind.JOIN)
    if followed.epoch != current.epoch:
        state.map_of(name, current.epoch)
        return FollowingStep(StepKind.SWITCH if followed.epoch else StepKind.START, current.epoch)
    prepared = next((each for each in record.generations if each.phase is GenerationPhase.PREPARED), None)
    is_asked = prepared is not None and any(cut.writer == writer and cut.life == life for cut in prepared.cuts)
    if prepared is not None and is_asked and followed.promised_epoch == prepared.epoch:
        return FollowingStep(StepKind.WRITE, current.epoch)
    if followed.promised_epoch:
        return FollowingStep(StepKind.RELEASE, current.epoch)
    if prepared is not None and is_asked:
        return FollowingStep(StepKind.PROMISE, prepared.epoch, _switch(state, name, prepared))
    return FollowingStep(StepKind.WRITE, current.epoch)


def _switch(state: GenerationState, name: str, generation: GenerationRecorded) -> MapSwitch:
    return MapSwitch.between(state.map_of(name, generation.follows), state.map_of(name, generation.epoch))
