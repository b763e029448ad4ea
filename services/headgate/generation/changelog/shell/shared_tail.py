"""The topic ``generation`` for all writers of a process: read and decoded once, and their reports written together.

If each writer followed the topic by itself, it would need a consumer and a producer, some nine threads of librdkafka.
With a hundred writers in one process that was a thousand threads, each woken by every record, and a switch took ten
seconds.

Writers that are given the same log share one tail. Each still has a state of its own, and adopts records on its own
thread, one after the other: the state never changes between two of its acts.

What is wrong with one writer's report is that writer's error only. If one of the two shared threads crashes, every
writer gets a TailCrashedError.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import ClassVar, Final

import msgspec

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Delivery, LogError, Partition, Placed, Writer
from headgate.eventlog.replay import READ_STALL_SECONDS_MAX
from headgate.eventlog.sharding import ANNOUNCE
from headgate.generation.core.state import GenerationState, evolve, new_state, state_for_writer
from headgate.generation.shell.tail import (
    RECORDS_MAX,
    WRITE_SECONDS_MAX,
    partition_of_set,
    write_at_level,
)
from headgate.records.base import Fact, Key
from headgate.records.generation import GenerationOwnerKey, WriterKey
from headgate.supervision.threads import BackgroundThread

__all__ = ["TailCrashedError", "WriterTail"]

LOOK_SECONDS: Final = 0.2
"""Longest wait for records, and for reports to be written: so soon the threads notice that no writer is left."""

RETRY_SECONDS: Final = 0.3
"""Pause after an error of the reader; the writers get the error, and start again after the same pause."""

REPORTS_MAX: Final = 500
"""Reports that are written together; they are small, and each thread has one at most."""


class TailCrashedError(LogError):
    """A thread that all writers of the process share has crashed, so none of them can write any more."""

    code: ClassVar[str] = "change-writers-crashed"


class WriterTail:
    """A tail (tail.py) for one writer on one thread. ``wake`` is set when there is something to adopt."""

    def __init__(self, log: KafkaLog, name: str, writer: str, wake: threading.Event) -> None:
        """Raises LogError."""
        self.name, self.writer, self.wake = name, writer, wake
        self.state: GenerationState = new_state(0)
        self.awaited: int | None = None
        self._log = log
        self._partition = partition_of_set(log, name)
        self._new: deque[Delivery | LogError] = deque()
        self._shared = _join(log, self._partition, self)

    @property
    def stopped(self) -> str | None:
        """Why records may be missing from ``state``, None if none are."""
        return self._shared.stopped

    def take(self) -> None:
        """Adopt what has come. Raises LogError, if the topic could not be read."""
        while self._new:
            item = self._new.popleft()
            if isinstance(item, LogError):
                raise item
            evolve(self.state, item.key, item.value, item.offset)

    def read_to_end(self) -> None:
        """Adopt all up to the end that the topic has now. Raises LogError."""
        end = self._log.end_offsets([self._partition])[self._partition]
        self.awaited, moved_at, seen = end, time.monotonic(), -1
        try:
            while self._shared.position < end:
                self._wait_and_take()
                if self._shared.position != seen:
                    seen, moved_at = self._shared.position, time.monotonic()
                if time.monotonic() - moved_at > READ_STALL_SECONDS_MAX:
                    raise LogError(f"generation/{self._partition.number} cannot be read to its end {end}")
        finally:
            self.awaited = None
        self.take()

    def say(self, fact: Fact) -> None:
        """Write a record and wait until it is stored; before that, until an owner has announced the level for it.

        Raises LogError if no owner has; LevelTooLowError.
        """
        write_at_level(lambda: self._shared.write(Placed(self._partition, fact)), self._wait_and_take, self.state)

    def _wait_and_take(self) -> None:
        self.wake.wait(LOOK_SECONDS)
        self.wake.clear()
        self.take()

    def give(self, item: Delivery | LogError) -> None:
        """Called by the shared thread, with its lock held."""
        self._new.append(item)
        self.wake.set()

    def close(self) -> None:
        """Let go. Idempotent."""
        _part(self._log, self._partition, self)


class _Waiting(msgspec.Struct, frozen=True):
    """A report on its way. ``done`` gets its result once it is written, or the error."""

    placed: Placed
    done: "Future[None]"


class _SharedTail:
    """One partition's records, for as long as there are writers; a thread reads, another writes reports."""

    def __init__(self, log: KafkaLog, partition: Partition) -> None:
        self._log, self._partition = log, partition
        # Owners' announcements contain the schema level, below which no records about generations can be written.
        self._reader = log.reader({ANNOUNCE: 0, partition: 0})
        self._lock = threading.Lock()
        self._state = new_state(partition.number)
        self._members: list[WriterTail] = []
        self._reports: queue.Queue[_Waiting] = queue.Queue(REPORTS_MAX)
        self._is_over = False
        self._crash: TailCrashedError | None = None
        self.position = 0
        for target in (self._read, self._write):
            BackgroundThread(
                target, name="change-writers", detail=str(partition.number), on_crash=self._on_crash
            ).start()

    @property
    def stopped(self) -> str | None:
        """See WriterTail; safe to call from any thread."""
        return self._reader.stopped

    def join(self, member: WriterTail) -> None:
        """Another writer; it begins with what is known by now."""
        with self._lock:
            member.state = state_for_writer(self._state, member.name, member.writer)
            self._members.append(member)
            if self._crash is not None:
                member.give(self._crash)

    def part(self, member: WriterTail) -> bool:
        """One writer less; whether it was the last one, and this is over."""
        with self._lock:
            if member in self._members:
                self._members.remove(member)
                self._is_over = not self._members
            return self._is_over

    def write(self, placed: Placed) -> None:
        """Write a report and wait until the broker has acknowledged it.

        Raises LogError, and what the codec raises for a report that cannot be encoded.
        """
        waiting = _Waiting(placed, Future())
        if self._crash is not None:
            raise self._crash
        try:
            self._reports.put(waiting, timeout=WRITE_SECONDS_MAX)
            waiting.done.result(2 * WRITE_SECONDS_MAX)
        except (queue.Full, TimeoutError) as error:
            raise LogError(f"a report was not written within {2 * WRITE_SECONDS_MAX:g} s") from error

    # --- the threads ---

    def _read(self) -> None:
        while not self._is_over:
            try:
                items = self._reader.poll(RECORDS_MAX, LOOK_SECONDS)
            except LogError as error:
                with self._lock:
                    for member in self._members:
                        member.give(error)
                time.sleep(RETRY_SECONDS)
                continue
            with self._lock:
                self._adopt([item for item in items if isinstance(item, Delivery)])
        self._reader.close()

    def _adopt(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            evolve(self._state, each.key, each.value, each.offset)
            for member in self._members:
                if _concerns(each.key, member):
                    member.give(each)
        self.position = self._reader.positions()[self._partition]
        for member in self._members:
            if member.awaited is not None and self.position >= member.awaited:
                member.wake.set()

    def _write(self) -> None:
        """What has come while the reports before were written is written together."""
        writer = self._log.writer("change-writers")
        while not self._is_over:
            batch = list(self._next_reports())
            if not batch:
                continue
            self._write_together(writer, batch)
        writer.close()

    def _write_together(self, writer: Writer, batch: list[_Waiting]) -> None:
        """Write reports and settle each. If one of several is faulty, write each alone, to find out which."""
        try:
            writer.write([each.placed for each in batch], WRITE_SECONDS_MAX)
        except LogError as error:
            for each in batch:
                each.done.set_exception(error)
        except Exception as error:  # noqa: BLE001 - raised again on the thread of the writer whose report it is
            if len(batch) == 1:
                batch[0].done.set_exception(error)
                return
            for each in batch:
                self._write_together(writer, [each])
        else:
            for each in batch:
                each.done.set_result(None)

    def _on_crash(self, error: BaseException) -> None:
        with self._lock:
            self._crash = TailCrashedError(
                f"a thread of this process's change writers has crashed: {type(error).__name__}: {error}. Restart the "
                "process and report the error; its traceback is in the log"
            )
            for member in self._members:
                member.give(self._crash)
        for each in self._next_reports():
            each.done.set_exception(self._crash)

    def _next_reports(self) -> Iterator[_Waiting]:
        try:
            yield self._reports.get(timeout=LOOK_SECONDS)
            while True:
                yield self._reports.get_nowait()
        except queue.Empty:
            return


def _concerns(key: Key, member: WriterTail) -> bool:
    if isinstance(key, WriterKey):
        return key.set == member.name and key.writer == member.writer
    return isinstance(key, GenerationOwnerKey) or getattr(key, "set", None) == member.name


_tails: Final[dict[tuple[KafkaLog, Partition], _SharedTail]] = {}
_joining: Final = threading.Lock()


def _join(log: KafkaLog, partition: Partition, member: WriterTail) -> _SharedTail:
    """The one of this process for a log's partition, with another member. Raises LogError."""
    with _joining:
        shared = _tails.get((log, partition))
        if shared is None:
            shared = _tails[log, partition] = _SharedTail(log, partition)
        shared.join(member)
        return shared


def _part(log: KafkaLog, partition: Partition, member: WriterTail) -> None:
    """One writer less; with the last one its threads end."""
    with _joining:
        shared = _tails.get((log, partition))
        if shared is not None and shared.part(member):
            del _tails[log, partition]
