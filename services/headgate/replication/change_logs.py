"""The ranges of change logs that spans may apply, from the topic generation and the sink's positions.

One thread checks ten times a second, so that a child's stream starts soon after its parents have ended even if no batch
comes. A lane checks for itself between the end of a batch and the next plan (``catch_up``): whatever is in the batch
was written by a client that had read of its stream, so the stream is on the topic by then.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Limited
from headgate.agent.core.span.states import OVER, Span
from headgate.eventlog.log import Log, LogError
from headgate.generation.changelog.core.bounds import bounds_of, gaps_of
from headgate.generation.core.ranges import MapError
from headgate.generation.core.state import GenerationState
from headgate.generation.shell.tail import GenerationTail
from headgate.records.control import Positions
from headgate.replication.feed_parts import FeedIncarnation, feed_of
from headgate.replication.span_table import SpanTable
from headgate.sources.change_logs import (
    ChangeLogGapError,
    ChangeLogMissingError,
    ChangeLogUnavailableError,
    reader_of_feed,
)
from headgate.supervision.threads import BackgroundThread

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.1
"""Between two looks: a child begins later by that much at most."""

IDLE_SECONDS: Final = 0.5
"""While no span reads a change log."""

RETRY_SECONDS: Final = 2.0
"""After a failure: nothing new begins in the meantime, and no batch is planned."""

NEIGHBOURS_SECONDS: Final = 0.5
"""How often the sink is asked where other parts of a table are, while one waits for them."""

UNKNOWN: Final = sys.maxsize
"""An offset that no span has received."""

UNREAD: Final = -1
"""Of a partition of which the sink knows nothing yet."""


class Limits(msgspec.Struct, frozen=True):
    """See Limited."""

    firsts: Positions = {}
    limits: Positions = {}
    limits_at: int = 0


class _Followed:
    """One change log; ``lock`` is its tail's, which serves one thread at a time."""

    def __init__(self, log: Log, name: str) -> None:
        self.lock = threading.Lock()
        self.tail = GenerationTail(log, name, f"feeds-of-{name}")


class ChangeLogFollower:
    """All change logs of an executor. ``ask_neighbours`` has a span's neighbours looked up; the answer is ``heard``."""

    def __init__(self, table: SpanTable, log: Log | None, ask_neighbours: Callable[[Span, Positions], None]) -> None:
        self._table = table
        self._log = log
        self._ask_neighbours = ask_neighbours
        self._followed: dict[str, _Followed] = {}
        self._opening = threading.Lock()
        self._neighbours: dict[SpanId, tuple[FeedIncarnation, Positions]] = {}
        """By span: the incarnation of its feed that was asked about, and the answer."""
        self._asked_at: dict[SpanId, float] = {}
        self._stop = threading.Event()
        self._thread: BackgroundThread | None = None

    def close(self) -> None:
        """End within a turn. Idempotent."""
        self._stop.set()

    def opened(
        self, span: Span, positions: Positions, ends: Positions, ask: Callable[[Positions], Positions]
    ) -> Limits:
        """What may be applied of a span that is being opened at ``positions``; ``ends`` were asked for before.

        ``ask`` asks the sink about further partitions. Raises SourceError, SinkError.
        """
        name = change_log_of(span)
        if name is None:
            return Limits()
        followed = self._follow(name)
        try:
            with followed.lock:
                followed.tail.read_what_is_committed()
                state = followed.tail.state
                unread = _neighbours_of(state, name, span)
            found = ask(unread) if unread else {}
            self.heard(span, found)
            with followed.lock:
                self._check(span, name, state, positions, ends)
                return _limits(followed.tail, name, span, positions, found)
        except (LogError, MapError) as error:
            raise ChangeLogUnavailableError(f"change log {name}: {error}") from error

    def _check(self, span: Span, name: str, state: GenerationState, positions: Positions, ends: Positions) -> None:
        reader = reader_of_feed(span.id.feed)
        if name not in state.sets:
            raise ChangeLogMissingError(f"change log {name} no longer exists on the topic generation")
        if reader not in state.readers.get(name, {}):
            raise ChangeLogUnavailableError(
                f"change log {name} does not know reader {reader} yet, so streams that the feed must read could "
                "be retired. Its coordinator registers it within seconds"
            )
        for partition, (first, upto) in gaps_of(state, name, positions, ends).items():
            raise ChangeLogGapError(
                f"{span.task.plan.table}: change log {name}, topic {span.task.plan.topic}, partition {partition}: "
                f"offsets {first} to {upto - 1} are of a stream that was retired before the feed had read it, so their "
                "order is not known any more; make the feed again from a fresh copy of the table"
            )

    def catch_up(self, name: str) -> int:
        """Read what is on the topic by now, inform the spans, and return the offset; UNKNOWN if that fails."""
        try:
            followed = self._follow(name)
            with followed.lock:
                followed.tail.read_what_is_committed()
                self._tell(name, followed.tail)
                return followed.tail.position
        except (LogError, MapError, ChangeLogUnavailableError) as error:
            _log.warning("change log %s cannot be followed, so nothing of it is applied: %s", name, error)
            return UNKNOWN

    def heard(self, span: Span, positions: Positions) -> None:
        """Record the sink's positions on partitions of other parts of the span's table."""
        self._neighbours[span.id] = (FeedIncarnation.of_task(span.task), positions)

    def _follow(self, name: str) -> _Followed:
        if self._log is None:
            raise ChangeLogUnavailableError(f"change log {name}: this executor has no control topics")
        with self._opening:
            if name not in self._followed:
                try:
                    self._followed[name] = _Followed(self._log, name)
                except LogError as error:
                    raise ChangeLogUnavailableError(f"change log {name}: {error}") from error
            if self._thread is None:  # of an executor that has something to follow
                self._thread = BackgroundThread(self._run, name="headgate-change-logs")
                self._thread.start()
            return self._followed[name]

    def _tell(self, name: str, tail: GenerationTail) -> None:
        """Apply the current limits to every span of the log. The log's own lock is held.

        The limits of a log with thousands of streams take milliseconds. They are computed outside the lock of the
        span table, which every batch of every feed needs.
        """
        with self._table.changed:
            asked = [
                (span, {partition: span.reached(partition) for partition in span.positions})
                for span in self._table.all()
                if change_log_of(span) == name and _is_followed(span)
            ]
        for span, reached in asked:
            now = _limits(tail, name, span, reached, self._known_of_neighbours(span))
            with self._table.changed:
                later = self._table.get(span.id)
                if later is not None and later.life == span.life and _is_followed(later):
                    self._table.apply(span.id, Limited(span.progress.opening, now.firsts, now.limits, now.limits_at))

    def _known_of_neighbours(self, span: Span) -> Positions:
        feed, positions = self._neighbours.get(span.id, (None, {}))
        return positions if feed == FeedIncarnation.of_task(span.task) else {}

    # --- the thread ---

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except (LogError, MapError, ChangeLogUnavailableError) as error:
                _log.warning("change logs cannot be followed for now: %s", error)
                self._stop.wait(RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - an internal error must not end the thread that all spans need
                _log.exception("following change logs")
                self._stop.wait(RETRY_SECONDS)
        for followed in self._followed.values():
            with followed.lock:
                followed.tail.close()

    def _turn(self) -> None:
        spans = [(name, span) for span in self._table.all() if (name := change_log_of(span)) is not None]
        for name in sorted({name for name, _ in spans}):
            followed = self._follow(name)
            with followed.lock:
                while followed.tail.follow(0.0):
                    pass
                self._tell(name, followed.tail)
                waiting = [span for other, span in spans if other == name and span.progress.limits]
                unread = {span.id: _neighbours_of(followed.tail.state, name, span) for span in waiting}
            for span in waiting:
                self._look(span, unread[span.id])
        self._forget({span.id for _, span in spans})
        self._stop.wait(TURN_SECONDS if spans else IDLE_SECONDS)

    def _look(self, span: Span, unread: Positions) -> None:
        now = time.monotonic()
        if unread and now - self._asked_at.get(span.id, 0.0) >= NEIGHBOURS_SECONDS:
            self._asked_at[span.id] = now
            self._ask_neighbours(span, unread)

    def _forget(self, spans: set[SpanId]) -> None:
        for gone in self._asked_at.keys() - spans:
            del self._asked_at[gone]
            self._neighbours.pop(gone, None)


def change_log_of(span: Span) -> str | None:
    """The change log that the span's feed reads, if it reads one."""
    return feed_of(span.task.spec).source.change_log


def _is_followed(span: Span) -> bool:
    return bool(span.progress.positions) and span.phase not in OVER


def _neighbours_of(state: GenerationState, name: str, span: Span) -> Positions:
    """The partitions of the log that are other spans', as nothing is known of them."""
    record = state.sets.get(name)
    count = 0 if record is None else record.partitions
    return {partition: UNREAD for partition in range(count) if partition not in span.task.plan.start}


def _limits(
    tail: GenerationTail, name: str, span: Span, positions: Mapping[int, int], neighbours: Mapping[int, int]
) -> Limits:
    strict = feed_of(span.task.spec).source.strict_generations
    bounds = bounds_of(tail.state, name, {**neighbours, **positions}, strict=strict)
    own = {partition: bounds[partition] for partition in positions}
    return Limits(
        {partition: each.first for partition, each in own.items() if each.first},
        {partition: each.limit for partition, each in own.items() if each.limit is not None},
        tail.position,
    )
