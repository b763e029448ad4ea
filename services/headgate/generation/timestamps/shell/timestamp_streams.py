"""TimestampStreams: the stream of a write, by its own timestamp, for programs that have only clocks.

    with TimestampStreams.open("orders", bootstrap="127.0.0.1:9092") as streams:
        streams.wait(30)
        stream = streams.stream_of(b"key", write_us)

A thread follows the set's records. A generation is known as soon as its timestamp is on the log, and its writes are
refused until its rows are read. So no write goes to a wrong stream unless clocks differ by more than the set's ring
delay: who has not heard from the topic for as long is refused all streams (GenerationsUnheardError), because a
generation may operate that it does not know. What went wrong all the same is in ``late``.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaProperty
from headgate.eventlog.log import Log, LogError, NewerSchemaError
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timestamp_records import LEEWAY_MS
from headgate.generation.core.tokens import token_of_key
from headgate.generation.shell.own_log import WithOwnLog
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.timeline import GenerationError, GenerationTimeline
from headgate.generation.timestamps.core.timestamp_views import GenerationLate, learn
from headgate.runtime.clocks import elapsed_seconds
from headgate.supervision.threads import BackgroundThread

LOOK_SECONDS: Final = 0.2
"""Longest wait for records: so soon the thread notices that it is to end."""

HEAR_SECONDS: Final = 1.0
"""Between two questions where the topic ends: the answer, once read up to, proves that nothing was missed till then."""

HEARS_PER_DELAY: Final = 4
"""Such questions within a ring delay at least, so that one that is answered late does no harm."""

RETRY_SECONDS: Final = 0.3
"""Pause after an error of the reader."""

LATE_MAX: Final = 1_000
"""Generations that were heard of too late, of which the oldest are forgotten: each is a fault of a clock."""


class GenerationsUnheardError(GenerationError):
    """The topic was not read for so long that an unknown generation may operate. Try again."""


class TimestampStreams(WithOwnLog):
    """One process that writes. Several threads may call ``stream_of``. ``close`` it, or use it as a context."""

    def __init__(
        self,
        log: Log,
        name: str,
        *,
        now_ms: Callable[[], int] = wall_ms,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        """``now_ms``: the wall clock that writes are judged by. ``elapsed``: seconds, for silence. Raises LogError."""
        self._log, self._name, self._now_ms, self._elapsed = log, name, now_ms, elapsed
        self._tail = GenerationTail(log, name, "timestamp-streams")
        self._changed = threading.Condition()
        self._timeline = GenerationTimeline()
        self._late: tuple[GenerationLate, ...] = ()
        self._heard_at = float("-inf")
        self._heard_seconds_max = LEEWAY_MS / 1_000
        self._last_error = ""
        self._fatal: LogError | None = None
        self._stop = threading.Event()
        self._thread = BackgroundThread(self._follow, name="timestamp-streams", detail=name, on_crash=self._on_crash)
        self._thread.start()

    @classmethod
    def open(
        cls, name: str, *, bootstrap: str, cluster: str = "headgate", kafka: dict[str, KafkaProperty] | None = None
    ) -> Self:
        """The streams of set ``name`` on a Kafka cluster. Raises LogError."""
        return cls._opened(lambda log: cls(log, name), bootstrap, cluster, kafka)

    def stream_of(self, key: bytes | int, write_us: int) -> StreamId:
        """The stream for a write with this timestamp in µs; ``key`` are its bytes, or its token.

        Raises GenerationError, by its subclasses: WriteTooNewError, WriteTooOldError (check the clock of the client
        that wrote it), NoGenerationError, GenerationUnreadError, GenerationsUnheardError (try again). Raises LogError
        if the streams cannot be followed any more.
        """
        token = key if isinstance(key, int) else token_of_key(key)
        with self._changed:
            self._check_heard()
            stream = self._timeline.stream_of(write_us, token, self._now_ms())
            # Counted as written at once: a generation that is heard of from now on may be late for it.
            self._timeline = self._timeline.served(write_us)
            return stream

    def wait(self, timeout_seconds: float) -> None:
        """Until a generation is read. Raises GenerationError when there is none in time, LogError as ``stream_of``."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fatal or self._is_ready(), timeout_seconds):
                why = (
                    self._last_error
                    or f"is timestamp set {self._name!r} created, does `headgate serve generation` run?"
                )
                raise GenerationError(f"no generation of {self._name} could be read in {timeout_seconds:g} s: {why}")
            self._check_heard()

    @property
    def generations(self) -> dict[int, bool]:
        """The generations that writes may belong to, by timestamp; whether the rows of each are read."""
        with self._changed:
            return {timestamp_ms: topology is not None for timestamp_ms, topology in self._timeline.generations}

    @property
    def late(self) -> tuple[GenerationLate, ...]:
        """Generations that were heard of too late, the newest last: writes may have gone to wrong streams."""
        with self._changed:
            return self._late

    def close(self) -> None:
        """Follow no more. Idempotent."""
        self._stop.set()
        self._thread.join()
        self._close_own_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- the thread ---

    def _follow(self) -> None:
        asked_at, end = float("-inf"), None
        while not self._stop.is_set():
            try:
                pause = min(HEAR_SECONDS, self._heard_seconds_max / HEARS_PER_DELAY)
                if end is None and self._elapsed() - asked_at >= pause:
                    asked_at, end = self._elapsed(), self._tail.stable_end()
                has_news = self._tail.follow(LOOK_SECONDS)
            except NewerSchemaError as error:
                with self._changed:
                    self._fatal = error
                    self._changed.notify_all()
                break
            except LogError as error:
                with self._changed:
                    self._last_error = str(error)
                end = None
                self._stop.wait(RETRY_SECONDS)
                continue
            if has_news:
                self._learn()
            if end is not None and self._tail.position >= end:
                self._hear(asked_at)
                end = None
        self._tail.close()

    def _on_crash(self, error: BaseException) -> None:
        with self._changed:
            self._fatal = LogError(
                f"the streams of {self._name} are not followed any more, because of an internal error: "
                f"{type(error).__name__}: {error}. Restart the process and report the error"
            )
            self._changed.notify_all()

    def _learn(self) -> None:
        records = self._tail.state.timestamps
        with self._changed:
            self._timeline, late, unread = learn(self._timeline, records, self._name, self._now_ms())
            self._late = (*self._late, *late)[-LATE_MAX:]
            self._last_error = unread[0] if unread else ""
            self._changed.notify_all()

    def _hear(self, asked_at: float) -> None:
        record = self._tail.state.timestamps.sets.get(self._name)
        with self._changed:
            self._heard_at = asked_at
            if record is not None:
                self._heard_seconds_max = (record.ring_delay_ms or LEEWAY_MS) / 1_000
            self._changed.notify_all()

    def _is_ready(self) -> bool:
        known = self._timeline.generations
        return self._heard_at > float("-inf") and any(topology is not None for _, topology in known)

    def _check_heard(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        silent_seconds = self._elapsed() - self._heard_at
        if silent_seconds > self._heard_seconds_max:
            since = "yet" if self._heard_at == float("-inf") else f"for {silent_seconds:.1f} s"
            raise GenerationsUnheardError(
                f"the generations of {self._name} were not heard of {since}, so one may operate that is not known "
                f"here: try again. {self._last_error}".strip()
            )
