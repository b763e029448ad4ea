"""ChangeWriter: writes a source's changes to a change log, each once and per key in order, whatever is re-partitioned.

    with ChangeWriter.open("orders", "orders-0", bootstrap="127.0.0.1:9092") as writer:
        for change in source.read_behind(writer.position):
            writer.write(change.key, change.value, change.number)

A *writer* is a source, say one partition of a topic, not a process: whoever writes this source's changes uses its id,
one process at a time; one that takes over fences the one before. All changes of a key come from one writer.
``position`` is the number of a change at its source, ascending; what stands on the log already is left out.

``write`` only takes the change; a thread writes them in batches, each in one transaction with the position, follows the
generations (core/following.py, core/life.py), and answers switches also while nothing is written. If too many changes
wait, ``write`` waits. A process that was fenced because it had paused takes its id again by itself, and goes on where
the log says.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, Final, Self

import msgspec

from headgate.eventlog.connection import KafkaConnection, KafkaProperty
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, NewerSchemaError
from headgate.eventlog.topics import topic_name
from headgate.generation.core.life import LifeOverError, WriterLife
from headgate.generation.core.outbox import OUTBOX_BYTES, Change, Outbox, OutboxFullError, Written
from headgate.generation.core.ranges import MapError
from headgate.generation.core.tokens import token_of_key
from headgate.generation.shell.shared_tail import WriterTail
from headgate.generation.shell.wire import (
    NotOursError,
    check_headers,
)
from headgate.generation.shell.writer_acts import WriterActs

__all__ = [
    "ChangeWriter",
    "WriterError",
    "WriterLook",
    "WriterReplacedError",
    "WriterStalledError",
    "open_generation_log",
]

OUTBOX_CHANGES: Final = 10_000
"""Changes that may wait to be written: some seconds of a switch under load."""

BATCH_CHANGES: Final = 1_000
"""Changes in one transaction: far more and its readers wait, far fewer and its cost is all there is."""

WAIT_SECONDS: Final = 60.0
"""How long ``write`` and ``flush`` wait before they say why nothing moves: a broker's restart, an owner's take-over."""

IDLE_SECONDS: Final = 1.0
"""Longest rest while nothing comes, neither a change nor a record of the owner: reports of load are due by time."""

RETRY_SECONDS: Final = 0.3
"""Pause after an error, before the next life begins."""

LIFE_RANDOM_BITS: Final = 20
"""Of a life's number, so that two processes that start at once have different ones."""


class WriterError(LogError):
    """The writer cannot go on; the message says why and what to do."""

    code: ClassVar[str] = "change-writer"


class WriterReplacedError(WriterError):
    """Another process writes under this id."""

    code: ClassVar[str] = "change-writer-replaced"


class WriterStalledError(WriterError):
    """Nothing was written for a while."""

    code: ClassVar[str] = "change-writer-stalled"


class WriterLook(msgspec.Struct, frozen=True):
    """A writer at one moment. ``position`` counts once it ``is_started``; ``waiting`` changes are not written yet."""

    is_started: bool
    position: int
    waiting: int
    waiting_bytes: int
    last_error: str


def open_generation_log(bootstrap: str, cluster: str, kafka: dict[str, KafkaProperty] | None = None) -> KafkaLog:
    """The control topics, for a process that needs none but ``generation``. Raises LogError."""
    connection = KafkaConnection(bootstrap, kafka)
    broker = connection.broker_cluster_id()
    topic = topic_name(cluster, "generation")
    found = connection.admin.list_topics(topic, timeout=10.0).topics.get(topic)
    if found is None or not found.partitions:
        raise LogError(
            f"control topic {topic} does not exist on Kafka at {bootstrap}: create the cluster's topics (headgate "
            f"topic create), or check the cluster's name {cluster!r}"
        )
    return KafkaLog(connection, cluster, shards=len(found.partitions), broker_cluster_id=broker)


class ChangeWriter:
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
        self._batch_changes, self._wait_seconds = batch_changes, wait_seconds
        self._outbox = Outbox(outbox_changes, outbox_bytes)
        self._wake = threading.Event()
        self._tail = WriterTail(log, name, writer, self._wake)
        self._acts = WriterActs(log, name, writer, self._tail)
        self._life: WriterLife | None = None
        self._changed = threading.Condition()
        self._started = False
        self._stopping = False
        self._fatal: LogError | None = None
        self._last_error = "it has not been admitted yet: is `headgate serve generation` running, is the log created?"
        self._thread = threading.Thread(target=self._run, name=f"change-writer-{writer}", daemon=True)
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
        return cls(open_generation_log(bootstrap, cluster, kafka), name, writer)

    @property
    def position(self) -> int:
        """The source's last change on the log, -1 for none. Raises WriterError.

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
        """Take one change; False if it stands on the log already. Waits while too many wait.

        Raises PositionError for a position that is not behind the one before, ReservedHeaderError, WriterError.
        """
        check_headers(headers)
        change = Change(position, token_of_key(key), key, value, tuple(headers))
        with self._changed:
            self._wait(lambda: self._started)
            while True:
                try:
                    is_new = self._outbox.add(change)
                except OutboxFullError:
                    self._wait(self._has_room)
                else:
                    self._wake.set()
                    return is_new

    def look(self) -> WriterLook:
        """How it is doing, without waiting. Raises WriterError."""
        with self._changed:
            self._check()
            box = self._outbox
            return WriterLook(self._started, box.written.position, len(box), box.waiting_bytes, self._last_error)

    def _has_room(self) -> bool:
        return self._outbox.has_room

    def flush(self) -> int:
        """Wait until every change stands on the log; the last position. Raises WriterError."""
        with self._changed:
            self._wait(lambda: self._started and len(self._outbox) == 0)
            return self._outbox.written.position

    def close(self) -> None:
        """Say that this writer stops, and stop. What was not flushed is not waited for. Idempotent."""
        with self._changed:
            self._stopping = True
        self._wake.set()
        self._thread.join(self._wait_seconds)

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
        """Until it is so, while something moves. The lock is held."""
        deadline = time.monotonic() + self._wait_seconds
        self._check()
        while not is_so():
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                raise WriterStalledError(
                    f"writer {self._writer} of {self._name} could not write for {self._wait_seconds:g} s: "
                    f"{self._last_error}"
                )
            self._check()

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
                self._last_error = "the owner of generations has fenced it: it did not answer a switch in time"
                self._lose_life()
            except NewerSchemaError as error:
                self._fail(error)
            except (LogError, MapError, NotOursError) as error:
                self._last_error = f"{type(error).__name__}: {error}"
                self._lose_life()
                time.sleep(RETRY_SECONDS)
        self._leave()

    def _replaced(self) -> str:
        return f"another process writes to {self._name} as {self._writer}: a writer is one process at a time"

    def _turn(self) -> bool:
        """One look at what has come, and what is to be done about it; False if that was nothing."""
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
                    self._changed.notify_all()
                    return has_acted or life.followed != followed
            answer = self._acts.carry_out(act, life.life)
            has_acted = True

    def _begin_life(self) -> WriterLife:
        self._tail.read_to_end()
        state = self._tail.state
        record = state.sets.get(self._name)
        reports = state.writers.get(self._name, {})
        known = [life for writer, life in reports if writer == self._writer]
        known += [each.life for each in (record.writers if record else ()) if each.writer == self._writer]
        number = (max(known, default=0) >> LIFE_RANDOM_BITS) + 1
        life = number << LIFE_RANDOM_BITS | secrets.randbits(LIFE_RANDOM_BITS)
        self._life = WriterLife(state, self._name, self._writer, life, self._outbox, batch_changes=self._batch_changes)
        return self._life

    def _lose_life(self) -> None:
        self._life = None
        self._acts.let_go()

    def _fail(self, error: LogError) -> None:
        with self._changed:
            self._fatal = error
            self._changed.notify_all()

    def _leave(self) -> None:
        """The last word: nobody has to wait for this life."""
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
