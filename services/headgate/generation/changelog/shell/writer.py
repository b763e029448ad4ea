"""ChangeWriter: writes a source's changes to a change log, each exactly once and per key in order.

    with ChangeWriter.open("orders", "orders-0", bootstrap="127.0.0.1:9092") as writer:
        for change in source.read_behind(writer.position):
            writer.write(change.key, change.value, change.number)

A *writer* is a source, for example one partition of a topic, not a process. One process at a time writes a source's
changes, under the writer's id; one that takes over fences the one before. All changes of a key come from one writer.
``position`` is the number of a change at its source, ascending. Changes that are on the log already are left out.

``write`` checks the change (change_checks.py) and puts it into a queue. A thread writes the changes in batches, each in
one transaction with the position. It also follows the generations (core/following.py, core/life.py) and takes part in
switches while nothing is written. If too many changes wait, ``write`` waits. A process that was fenced because it had
paused takes its id again by itself, and resumes from the position on the log.

Any error that the thread cannot recover from is raised by the next ``write``, ``flush``, ``position`` or ``look``.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, Final, Self

import msgspec

from headgate.eventlog.connection import KafkaProperty
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, NewerSchemaError
from headgate.generation.changelog.core.life import LifeOverError, LogDeletedError, Write, WriterLife
from headgate.generation.changelog.core.outbox import OUTBOX_BYTES, Outbox, OutboxFullError, PositionsLostError, Written
from headgate.generation.changelog.core.pacing import BATCH_CHANGES, BatchPace
from headgate.generation.changelog.shell.change_checks import check_size, checked_change
from headgate.generation.changelog.shell.shared_tail import TailCrashedError, WriterTail
from headgate.generation.changelog.shell.wire import NotOursError
from headgate.generation.changelog.shell.writer_acts import ChangeRefusedError, WriterActs
from headgate.generation.core.ranges import MapError
from headgate.generation.shell.own_log import WithOwnLog
from headgate.records.name_lists import number_of
from headgate.supervision.threads import BackgroundThread

__all__ = [
    "ChangeRefusedError",
    "ChangeWriter",
    "LogGoneError",
    "WriterCrashedError",
    "WriterError",
    "WriterLook",
    "WriterReplacedError",
    "WriterStalledError",
]

OUTBOX_CHANGES: Final = 10_000
"""Changes that may wait to be written: some seconds of a switch under load."""

WAIT_SECONDS: Final = 60.0
"""How long ``write`` and ``flush`` wait without progress before they raise: longer than a broker's restart or an
owner's take-over."""

IDLE_SECONDS: Final = 1.0
"""Longest rest while nothing comes, neither a change nor a record of the owner: reports of load are due by time."""

RETRY_SECONDS: Final = 0.3
"""Pause after an error, before the next life begins."""

LIFE_RANDOM_BITS: Final = 20
"""Of a life's number, so that two processes that start at once have different ones."""


class WriterError(LogError):
    """The writer cannot continue; the message contains the reason and what to do."""

    code: ClassVar[str] = "change-writer"


class WriterReplacedError(WriterError):
    """Another process writes under this id."""

    code: ClassVar[str] = "change-writer-replaced"


class WriterStalledError(WriterError):
    """Nothing was written for a while."""

    code: ClassVar[str] = "change-writer-stalled"


class LogGoneError(WriterError):
    """The change log was deleted, or has lost what was written to it."""

    code: ClassVar[str] = "change-log-gone"


class WriterCrashedError(WriterError):
    """The writer's thread ended with an unexpected error: a bug."""

    code: ClassVar[str] = "change-writer-crashed"


class WriterLook(msgspec.Struct, frozen=True):
    """A writer at one moment. ``position`` is valid once it ``is_started``; ``waiting`` changes are not written yet.

    ``last_error``: why it is not started or cannot write at the moment, or empty.
    """

    is_started: bool
    position: int
    waiting: int
    waiting_bytes: int
    last_error: str


class ChangeWriter(WithOwnLog):
    """One writer's process. Use it from one thread; ``close`` it, or use it as a context."""

    def __init__(
        self,
        log: KafkaLog,
        name: str,
        writer: str,
        *,
        outbox_changes: int = OUTBOX_CHANGES,
        outbox_bytes: int = OUTBOX_BYTES,
        batch_changes: int = BATCH_CHANGES,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Nothing is written before the owner has admitted this life; ``position`` waits for that. Raises LogError."""
        self._log, self._name, self._writer = log, name, writer
        self._wait_seconds = wait_seconds
        self._pace = BatchPace(batch_changes)
        self._outbox = Outbox(outbox_changes, outbox_bytes)
        self._wake = threading.Event()
        self._tail = WriterTail(log, name, writer, self._wake)
        self._acts = WriterActs(log, name, writer, self._tail, self._pace)
        self._life: WriterLife | None = None
        self._changed = threading.Condition()
        self._started = False
        self._stopping = False
        self._fatal: LogError | None = None
        self._last_error = (
            "the owner has not admitted it yet. Check that `headgate serve generation` runs and that the change log "
            "exists"
        )
        self._thread = BackgroundThread(self._run, name="change-writer", detail=writer, on_crash=self._on_crash)
        self._thread.start()

    @classmethod
    def open(
        cls,
        name: str,
        writer: str,
        *,
        bootstrap: str,
        cluster: str = "headgate",
        kafka: dict[str, KafkaProperty] | None = None,
    ) -> Self:
        """A writer for set ``name`` on a Kafka cluster. Raises LogError."""
        return cls._opened(lambda log: cls(log, name, writer), bootstrap, cluster, kafka)

    @property
    def position(self) -> int:
        """The source's last change on the log, -1 for none. Raises LogError.

        The source continues behind it, or sends again from anywhere before. It may do so at any time, for example after
        it has reconnected: ``write`` leaves out what is on the log or waits to be written.
        """
        with self._changed:
            self._wait(lambda: self._started)
            self._outbox.resend()
            return self._outbox.written.position

    def write(
        self,
        key: bytes,
        value: bytes | None,
        position: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Take one change; False if it is on the log already. Waits while too many wait.

        Raises PositionError for a position that is not a 64-bit integer from 0 on or does not follow the one before,
        ChangeTypeError, ReservedHeaderError, ChangeTooLargeError (the change is not taken; others can follow), and
        LogError if the writer cannot continue.
        """
        change = checked_change(key, value, position, headers)
        with self._changed:
            self._wait(lambda: self._started)
            check_size(change, self._writer, self._acts.limit_bytes)
            while True:
                try:
                    is_new = self._outbox.add(change)
                except OutboxFullError:
                    self._wait(self._has_room)
                else:
                    self._wake.set()
                    return is_new

    def look(self) -> WriterLook:
        """How it is doing, without waiting. Raises LogError."""
        with self._changed:
            self._check()
            box = self._outbox
            reason = self._last_error or self._blind()
            return WriterLook(self._started, box.written.position, len(box), box.waiting_bytes, reason)

    def _blind(self) -> str:
        stopped = self._tail.stopped
        return "" if stopped is None else f"it does not see switches, because the topic cannot be read: {stopped}"

    def _has_room(self) -> bool:
        return self._outbox.has_room

    def flush(self) -> int:
        """Wait until every change is on the log; the last position. Raises LogError."""
        with self._changed:
            self._wait(lambda: self._started and len(self._outbox) == 0)
            return self._outbox.written.position

    def close(self) -> None:
        """Report that this writer stops, and stop. Does not wait for changes that were not flushed. Idempotent."""
        with self._changed:
            self._stopping = True
        self._wake.set()
        self._thread.join(self._wait_seconds)
        if not self._thread.is_alive():
            self._close_own_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        """Until it is so, as long as changes are written in the meantime. The lock is held."""
        self._check()
        written, deadline = self._outbox.written, time.monotonic() + self._wait_seconds
        while not is_so():
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                raise WriterStalledError(self._stalled())
            self._check()
            if self._outbox.written != written:
                written, deadline = self._outbox.written, time.monotonic() + self._wait_seconds

    def _stalled(self) -> str:
        first = self._outbox.first_waiting
        waiting = (
            ""
            if first is None
            else f", {number_of(len(self._outbox), 'change')} unwritten, the first at position {first}"
        )
        reason = self._last_error or "a switch of generations holds its changes back"
        if self._name not in self._tail.state.sets:
            reason = (
                f"change log {self._name!r} does not exist. Create it with `headgate generation create`, and check "
                "that `headgate serve generation` runs"
            )
        return f"writer {self._writer} of {self._name} wrote nothing for {self._wait_seconds:g} s{waiting}: {reason}"

    def _check(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._stopping:
            raise WriterError(f"writer {self._writer} of {self._name} is closed")

    # --- the thread ---

    def _run(self) -> None:
        while not self._stopping and self._fatal is None:
            try:
                if not self._turn():
                    self._wake.wait(IDLE_SECONDS)
            except LifeOverError as error:
                if error.is_replaced:
                    self._fail(WriterReplacedError(self._replaced()))
                self._last_error = "the owner fenced it, because it did not answer a switch in time"
                self._lose_life()
            except (NewerSchemaError, ChangeRefusedError, TailCrashedError) as error:
                self._fail(error)
            except LogDeletedError:
                self._fail(LogGoneError(f"change log {self._name} was deleted while {self._writer} wrote to it"))
            except PositionsLostError as error:
                self._fail(
                    LogGoneError(
                        f"change log {self._name} has lost what {self._writer} wrote to it: {error}. It was "
                        "re-created, or its topics were deleted. To write all changes of the source to the new one, "
                        "open the writer again and continue from its position"
                    )
                )
            except (LogError, MapError, NotOursError) as error:
                self._last_error = f"{type(error).__name__}: {error}"
                self._lose_life()
                time.sleep(RETRY_SECONDS)
        self._leave()

    def _replaced(self) -> str:
        return f"Another process writes to {self._name} as {self._writer}. A writer must be one process at a time"

    def _on_crash(self, error: BaseException) -> None:
        self._fail(
            WriterCrashedError(
                f"writer {self._writer} of {self._name} stopped because of an internal error: {type(error).__name__}: "
                f"{error}. Its traceback is in the log. Report it, and open the writer again"
            )
        )
        self._acts.let_go()
        self._tail.close()

    def _turn(self) -> bool:
        """Adopt new records and do what follows from them; False if nothing was to be done."""
        self._wake.clear()
        life = self._life or self._begin_life()
        self._tail.take()
        followed, turn = life.followed, life.turn(time.monotonic())
        answer: Written | None = None
        has_acted = False
        while True:
            with self._changed:
                try:
                    act = turn.send(answer)
                except StopIteration:
                    self._started = self._started or life.is_started
                    if life.is_started and len(self._outbox) == 0:
                        self._last_error = ""
                    self._changed.notify_all()
                    return has_acted or life.followed != followed
            answer = self._acts.carry_out(act, life.life)
            has_acted = True
            if isinstance(act, Write):
                self._last_error = ""

    def _begin_life(self) -> WriterLife:
        self._tail.read_to_end()
        state = self._tail.state
        record = state.sets.get(self._name)
        reports = state.writers.get(self._name, {})
        known = [life for writer, life in reports if writer == self._writer]
        known += [each.life for each in (record.writers if record else ()) if each.writer == self._writer]
        number = (max(known, default=0) >> LIFE_RANDOM_BITS) + 1
        life = number << LIFE_RANDOM_BITS | secrets.randbits(LIFE_RANDOM_BITS)
        self._life = WriterLife(state, self._name, self._writer, life, self._outbox, pace=self._pace)
        return self._life

    def _lose_life(self) -> None:
        self._life = None
        self._acts.let_go()

    def _fail(self, error: LogError) -> None:
        with self._changed:
            self._fatal = error
            self._changed.notify_all()

    def _leave(self) -> None:
        """Report that this life has ended, so that no process waits for it."""
        had_id = self._acts.has_id
        self._acts.let_go()
        try:
            if self._fatal is None and had_id and self._life is not None:
                self._acts.say(self._life.farewell(), self._life.life, leaving=True)
        except LogError as error:
            self._last_error = str(error)
        self._tail.close()
        with self._changed:
            self._changed.notify_all()
