"""The door of a span: it is opened at source and sink, and ended there, however often that takes.

All of it runs in a small pool, because a sink may be slow and one table's trouble is not another's. A span whose batch
failed, or whose lane died, comes back through the same door: the sink says where it goes on.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from headgate.agent.executor import SpanId
from headgate.agent.lane.parts import FeedParts
from headgate.agent.lane.span import SpanRun
from headgate.agent.lane.topic_watch import TopicWatch
from headgate.config.crash_points import CrashPoint, reach
from headgate.config.feed import FeedSpecError
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions, TaskState
from headgate.sinks.contract import ChangeBatch, Claim, OffsetRange, Sink, SinkError
from headgate.sources.offsets import SourceError, check_retention
from headgate.sources.topic_ids import check_topic_id, topic_ids

__all__ = ["Board", "SpanKeeper"]

_log = logging.getLogger(__name__)

RETRY_SECONDS_MIN: Final = 0.25
RETRY_SECONDS_MAX: Final = 5.0
FAILURES_MAX: Final = 8
"""A span that cannot be opened so often in a row (about 20 s) is the owner's affair: it is reported failed."""

POOL_THREADS: Final = 8
"""Slow sinks of other feeds must not hold up a claim; more would only queue up at the sink."""

ERROR_LENGTH_MAX: Final = 1_000
"""Java's stack traces belong into the log, not onto a control topic."""


KEPT_SECONDS: Final = 5.0
"""Spans come in crowds: a sink's session is kept for so long after the last of them. At most one per thread."""


class _Sinks:
    """Sinks that are open and not in use, by their feed's spec. For all threads of the pool."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[float, str, FeedParts]] = []
        self._closed = False

    @contextmanager
    def lent(self, spec: str) -> Iterator[FeedParts]:
        """One for the caller alone. It is not kept when anything went wrong with it."""
        with self._lock:
            found = next((kept for kept in self._kept if kept[1] == spec), None)
            if found is not None:
                self._kept.remove(found)
        parts = FeedParts(spec) if found is None else found[2]
        is_good = False
        try:
            yield parts
            is_good = True
        finally:
            with self._lock:
                is_good = is_good and not self._closed
                if is_good:
                    self._kept.append((time.monotonic(), spec, parts))
            if not is_good:
                parts.close()

    def are_due(self, now: float) -> bool:
        """Whether one has not been asked for in a while."""
        return any(now - since > KEPT_SECONDS for since, _, _ in self._kept)

    def purge(self, now: float) -> None:
        """Close those that have not been asked for in a while."""
        with self._lock:
            old = [kept for kept in self._kept if now - kept[0] > KEPT_SECONDS]
            self._kept = [kept for kept in self._kept if kept not in old]
        for _, _, parts in old:
            parts.close()

    def close(self) -> None:
        """Close all, and keep none any more."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
        for _, _, parts in kept:
            parts.close()


class Board:
    """What all threads of an executor share: the spans, and the lock and signal of every change to them."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.runs: dict[SpanId, SpanRun] = {}
        self.killed = False


class SpanKeeper:
    """Opens and ends spans. Methods are called with the board's lock held."""

    def __init__(self, board: Board, source: KafkaConnection) -> None:
        self._board = board
        self._source = source
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="headgate-span")
        self._sinks = _Sinks()
        self._topics = TopicWatch(board, self, time.monotonic())

    def close(self) -> None:
        """Take no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._sinks.close()

    def turn(self, now: float) -> None:
        """Retry what is due, and end what no batch has any more."""
        if self._sinks.are_due(now):
            self._pool.submit(self._sinks.purge, now)
        if self._topics.is_due(now):
            self._pool.submit(self._topics.look)
        for _, run in sorted(self._board.runs.items()):
            if run.busy:
                continue
            if run.retry_at is not None:
                if run.retry_at <= now:
                    self.submit(run, self.end if run.stop else self.open)
            elif run.stop and not run.over and not run.in_batch:
                self.leave(run)
                self.submit(run, self.end)

    def submit(self, run: SpanRun, step: Callable[[SpanRun], None]) -> None:
        """Run ``step`` in the pool; the span takes no part in anything else meanwhile."""
        if self._board.killed:
            return
        run.busy = True
        run.retry_at = None
        self._pool.submit(self._guarded, run, step)

    def _guarded(self, run: SpanRun, step: Callable[[SpanRun], None]) -> None:
        try:
            step(run)
        except (SinkError, SourceError) as error:
            with self._board.changed:
                self.fail(run, error.code, str(error), retryable=error.retryable)
        except FeedSpecError as error:
            with self._board.changed:
                self.fail(run, "feed_spec", str(error), retryable=False)
        except Exception as error:  # noqa: BLE001 (a fault of ours with one span must not end the thread of all)
            _log.exception("span %s", run.task.id)
            with self._board.changed:
                self.fail(run, "internal", f"{type(error).__name__}: {error}", retryable=False)
        finally:
            with self._board.changed:
                run.busy = False
                self._board.changed.notify_all()

    def open(self, run: SpanRun) -> None:
        """Check sink and source; claim if the span is ours to write. Then it waits for a lane, or flips its own."""
        opened = False
        while not opened:
            with self._board.changed:
                claim, primary = run.claim, run.primary
            seen = topic_ids(self._source, [claim.topic]).get(claim.topic)
            check_topic_id(claim.topic, run.task.plan.topic_id, seen)
            claim = replace(claim, topic_id=seen)
            with self._sinks.lent(run.task.spec) as parts:
                parts.sink.check([claim.table])
                positions = _claimed(parts.sink, claim) if primary else parts.sink.positions(claim)
                known_table = parts.sink.source_table(claim) if primary else None
            ends = check_retention(self._source, claim.topic, positions)
            with self._board.changed:
                opened = (claim.epoch, primary) == (run.task.epoch, run.primary)
                run.claimed = opened and primary
                if opened:
                    run.topic_id = seen
                    run.opened(positions, ends, known_table)
                if self._board.killed or run.stop:
                    return
        with self._board.changed:
            if run.lane is None:
                run.ready_at = time.monotonic()
            elif primary:
                run.state = TaskState.REPLICATING

    def look(self, run: SpanRun) -> None:
        """Find out how far the present writer of a warm span is. What goes wrong shows when it is to be written."""
        if not self._board.killed and not run.primary:
            self._pool.submit(self._look, run, run.opening)

    def _look(self, run: SpanRun, opening: int) -> None:
        try:
            with self._sinks.lent(run.task.spec) as parts:
                positions = parts.sink.positions(run.claim)
        except SinkError as error:
            _log.info("span %s, warm: %s", run.task.id, error)
            return
        with self._board.changed:
            if not run.primary and run.opening == opening:
                run.positions = positions
                self._board.changed.notify_all()

    def settle(self, run: SpanRun) -> None:
        """The sink's positions follow what has been read, though there was nothing of it. No batch has it."""
        with self._board.changed:
            claim, opening = run.claim, run.opening
            ranges = {
                partition: OffsetRange(expected=position, next=run.reached(partition))
                for partition, position in sorted(run.awaited.items())
                if run.reached(partition) > position
            }
        with self._sinks.lent(run.task.spec) as parts:
            applied = parts.writer().apply(ChangeBatch(claim, ranges, []))
        with self._board.changed:
            if run.opening == opening:
                run.positions = {**run.positions, **applied.positions}
                run.rests_since = None

    def end(self, run: SpanRun) -> None:
        """No batch has the span any more: seal it if so asked, claiming first what was never claimed."""
        positions = dict(run.positions)
        if run.stop == "seal":
            with self._sinks.lent(run.task.spec) as parts:
                if not run.claimed:
                    parts.sink.claim(run.claim)
                positions = parts.sink.seal(run.claim)
        with self._board.changed:
            run.positions = positions
            run.state = TaskState.STOPPED
            run.error = None

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """See sources/topic_ids.py."""
        return topic_ids(self._source, topics)

    def fail(self, run: SpanRun, code: str, text: str, *, retryable: bool, held: Sequence[int] = ()) -> None:
        """Leave the lane; try again later, or report the failure. A seal is tried for as long as it may succeed.

        ``held``: the partitions that it keeps from going on; none where it is the span's as a whole.
        """
        self.leave(run)
        run.failures.count(held)
        failures = run.failures.worst
        run.error = (code, text[:ERROR_LENGTH_MAX], retryable)
        if retryable and (run.stop or failures <= FAILURES_MAX):
            delay = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** (failures - 1))
            run.retry_at = time.monotonic() + delay
            _log.warning("span %s: %s (%s); again in %.2f s", run.task.id, text, code, delay)
        else:
            run.state = TaskState.FAILED
            run.retry_at = None
            _log.error("span %s: %s (%s)", run.task.id, text, code)

    def lost(self, run: SpanRun, why: str, *, alone: bool) -> None:
        """Its lane is over. If the span was ``alone`` on it, that is its own failure; else it may be a neighbour's."""
        run.losses += 1
        if alone:
            self.fail(run, "lane_lost", why, retryable=True)
        else:
            self.leave(run)
            if not (run.over or run.busy):
                run.error = ("lane_lost", why[:ERROR_LENGTH_MAX], True)
                run.retry_at = time.monotonic() + min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** (run.losses - 1))

    def restart(self, run: SpanRun, why: str) -> None:
        """Back through the door: a new look at the sink, then a new lane."""
        self.leave(run)
        if not run.stop and not run.over:
            _log.info("span %s: %s; it starts again from the sink's position", run.task.id, why)
            self.submit(run, self.open)

    def leave(self, run: SpanRun) -> None:
        """Off its lane."""
        if run.lane is not None:
            run.lane.part_with(run)
        if run.heir is not None and run in run.heir.heirs:
            run.heir.heirs.remove(run)
        run.lane = run.heir = run.ready_at = None
        run.in_batch = run.held = False
        self._board.changed.notify_all()


def _claimed(sink: Sink, claim: Claim) -> Positions:
    reach(CrashPoint.BEFORE_CLAIM)
    positions = sink.claim(claim)
    reach(CrashPoint.AFTER_CLAIM)
    return positions
