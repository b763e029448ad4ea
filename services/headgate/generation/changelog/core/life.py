"""One session of a writer: its acts in order, which the shell or a simulation carries out.

``turn`` gives the acts for one poll of the newest records. Between two acts a process may pause for hours, or end: the
acts are all that others can see of it, so whatever can go wrong with a writer goes wrong between two of them.

    TAKE_ID       take the writer's transactional.id, which fences every earlier holder
    READ_RECORDS  read the topic generation to its current end
    READ_WRITTEN  read the writer's position from the log; the act's answer is a Written
    Write         one transaction, under the id that was taken
    Report        report how far this life has followed, and what load it has written
"""

from collections.abc import Generator
from enum import Enum, auto
from math import inf
from typing import Final

import msgspec

from headgate.generation.changelog.core.following import Followed, FollowingStep, StepKind, next_step
from headgate.generation.changelog.core.load_sketch import LoadSketch
from headgate.generation.changelog.core.outbox import Batch, Outbox, Written
from headgate.generation.changelog.core.pacing import BatchPace
from headgate.generation.core.ranges import LogStream
from headgate.generation.core.state import GenerationState
from headgate.records.generation import StreamLoad, WriterReported

REPORT_SECONDS: Final = 10.0
"""Between two reports of load. All who follow the log fetch each of them, some 3 KB: a hundred writers make ten a
second. A shorter time has fewer changes in it, and a log is not re-partitioned for a burst of seconds."""


ASK_SECONDS: Final = 5.0
"""A request to be admitted is on the log within milliseconds. After so long without it, it was deleted."""


class LifeOverError(Exception):
    """This life may write no more. ``is_replaced``: another process is the writer; else begin another life."""

    def __init__(self, *, is_replaced: bool) -> None:
        super().__init__("another process has replaced it" if is_replaced else "the owner has fenced it")
        self.is_replaced = is_replaced


class LogDeletedError(Exception):
    """The change log was deleted while it was written; one of the same name is another one."""


class Simple(Enum):
    """Acts without data; see the module's docstring."""

    TAKE_ID = auto()
    READ_RECORDS = auto()
    READ_WRITTEN = auto()


class Write(msgspec.Struct, frozen=True):
    """Changes with their partitions, and the position after them, in one transaction."""

    batch: Batch


class FollowReport(msgspec.Struct, frozen=True):
    """``followed``, visible to all processes; ``loads``, if they were measured by the generation that it follows."""

    followed: Followed
    loads: tuple[StreamLoad, ...] = ()

    def record(self, now_ms: int, *, leaving: bool = False) -> WriterReported:
        """As a record; ``promise`` of a life that leaves is its last position."""
        at = self.followed
        return WriterReported(
            at.epoch, at.promised_epoch, at.promise, leaving=leaving, loads=self.loads, reported_ms=now_ms
        )


Act = Simple | Write | FollowReport
Turn = Generator[Act, Written | None, None]


class WriterLife:
    """How far one life is. ``state`` is read to the newest record before each ``turn``, by who carries it out."""

    def __init__(
        self, state: GenerationState, name: str, writer: str, life: int, outbox: Outbox, *, pace: BatchPace
    ) -> None:
        self.followed = Followed()
        self.life = life
        self.is_started = False
        self._state, self._name, self._writer = state, name, writer
        self._outbox, self._pace = outbox, pace
        self._closed: tuple[LogStream, ...] = ()
        self._asked_at = -inf
        self._sketch = LoadSketch(seed=life)
        self._measured_from = 0.0

    def turn(self, now: float) -> Turn:
        """The acts that are due; each is done when the next is asked for. READ_WRITTEN wants its answer sent.

        ``now``: monotonic seconds.
        Raises LifeOverError, LogDeletedError, PositionsLostError, and MapError where a generation's chunks are missing
        or corrupt.
        """
        step = self._step()
        match step.kind:
            case StepKind.LOST | StepKind.REPLACED:
                raise LifeOverError(is_replaced=step.kind is StepKind.REPLACED)
            case StepKind.DELETED:
                raise LogDeletedError
            case StepKind.JOIN:
                yield from self._join(now)
            case StepKind.START:
                yield from self._start(now)
            case StepKind.SWITCH:
                yield from self._switch(step, now)
            case StepKind.PROMISE:
                yield from self._promise(step)
            case StepKind.RELEASE:
                self._closed = ()
                self.followed = Followed(self.followed.epoch)
            case StepKind.WRITE:
                yield from self._write()
                yield from self._report_load(now)

    def farewell(self) -> FollowReport:
        """What an incarnation that stops permanently has written is its promise."""
        return FollowReport(Followed(self.followed.epoch, self.followed.promised_epoch, self._outbox.written.ahead))

    def _step(self) -> FollowingStep:
        return next_step(self._state, self._name, self._writer, self.life, self.followed)

    def _join(self, now: float) -> Turn:
        """Ask to be admitted; again if the change log was deleted, and the request with it."""
        is_known = (self._writer, self.life) in self._state.writers.get(self._name, {})
        if not is_known and now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            yield FollowReport(self.followed)

    def _start(self, now: float) -> Turn:
        yield Simple.TAKE_ID
        # The id is taken: only what is on the log now counts, also for whether this life may write at all.
        yield Simple.READ_RECORDS
        step = self._step()
        if step.kind is not StepKind.START:
            return
        written = yield Simple.READ_WRITTEN
        self._outbox.begin(written or Written())
        yield from self._switch(step, now)
        self.is_started = True

    def _switch(self, step: FollowingStep, now: float) -> Turn:
        self._closed = ()
        self.followed = Followed(step.epoch)
        self._measure_from(now)
        yield FollowReport(self.followed)

    def _promise(self, step: FollowingStep) -> Turn:
        if self._outbox.has_held:
            yield from self._write()
            return
        self._closed = () if step.switch is None else step.switch.closed
        self.followed = Followed(self.followed.epoch, step.epoch, self._outbox.written.ahead)
        yield FollowReport(self.followed)

    def _write(self) -> Turn:
        log = self._state.map_of(self._name, self.followed.epoch)
        batch = self._outbox.take(log, self._closed, self._pace.changes, self._pace.size_bytes)
        if batch is not None:
            yield Write(batch)
            self._outbox.commit()
            self._sketch.count(batch)

    def _report_load(self, now: float) -> Turn:
        if now - self._measured_from < REPORT_SECONDS:
            return
        loads = self._sketch.loads(self._state.map_of(self._name, self.followed.epoch), now)
        self._measure_from(now)
        yield FollowReport(self.followed, loads)

    def _measure_from(self, now: float) -> None:
        self._measured_from = now
        self._sketch.begin(now)
