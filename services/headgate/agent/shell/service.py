"""The agent's process: one session after the other, until it is stopped.

A session is a loop of turns around the machine, from its first heartbeat to its end. It announces itself at once, and
**starts** until its executor is warm: it answers no owner yet, so none assigns it a table
(coordinator/core/sessions/membership.py). Until then it heartbeats and reads the log; Spark starts on its own thread.

A turn reads what is new on announce, dispatch and changefeed, polls the executor's tasks, lets the machine decide,
writes its facts, and only then runs its effects: nothing is done that is not on the log. The lease is checked
before every step that acts, so that a process that was frozen past its lease does nothing but end its session.
"""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from headgate.agent.core.announcements import announced
from headgate.agent.core.executor import SpanId, TableExecutor, TaskStatus
from headgate.agent.core.messages import AgentInput, SessionStarted
from headgate.agent.core.state import evolve, new_state, task_count
from headgate.agent.shell.figures import FeedFigures
from headgate.agent.shell.reading import TURN_SECONDS, SessionReader
from headgate.agent.shell.session import (
    SETTLE_LEASES_MAX,
    Heartbeat,
    IdWatch,
    Lease,
    SessionLostError,
)
from headgate.agent.shell.turns import Turns, place_word
from headgate.agent.shell.warming import Warming
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.log import (
    Log,
    LogError,
    Partition,
    Writer,
)
from headgate.observability.probes import Probes
from headgate.records.base import Fact
from headgate.records.control import AgentAnnounced, Liveness, TaskState
from headgate.records.keys import AgentKey
from headgate.runtime.machine import Arrived

_log = logging.getLogger(__name__)

WRITE_SECONDS: Final = 2.0
"""How long a turn waits for acknowledgements before it looks at its lease and tries again."""

DRAIN_SECONDS: Final = 10.0
"""How long a stopping agent lets its tables be moved away before it leaves them."""

LOOP: Final = "agent"
"""Its name among the process's probes."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who an agent is. ``address`` is where its HTTP answers, for people."""

    agent: str
    address: str
    capacity_spans: int = 1000
    lease_seconds: float
    drain_seconds: float = DRAIN_SECONDS


class AgentCounters(msgspec.Struct):
    """What happened in this process so far, over all its sessions."""

    sessions: int = 0
    sessions_lost: int = 0
    garbage: int = 0
    facts: int = 0
    load_bytes_per_s: float = 0.0
    feeds: FeedFigures = msgspec.field(default_factory=FeedFigures)


class End(StrEnum):
    """How a session ended."""

    LOST = "lost"
    STOPPED = "stopped"


class AgentSession:
    """One session, from its first heartbeat to its end."""

    def __init__(
        self,
        options: AgentOptions,
        log: Log,
        executor_factory: Callable[[], TableExecutor],
        probes: Probes,
        counters: AgentCounters,
        *,
        warming: Warming,
        former: str | None,
    ) -> None:
        self.key = AgentKey(options.agent, uuid.uuid4().hex[:12])
        self._options = options
        self._log = log
        self._factory = executor_factory
        self._probes = probes
        self._counters = counters
        self._state = new_state(options.agent, self.key.session, log.shards)
        self._bytes: dict[SpanId, int] = {}
        self._counted_at = time.monotonic()
        self._warming = warming
        self._executor: TableExecutor | None = None
        self._lease = Lease(options.lease_seconds)
        self._told_level = log.level.writes
        self._watch = IdWatch(self.key, former)
        self._heartbeat = Heartbeat(log, self.key, self._lease, self._announcement, on_lost=self._kill)

    def run(self, stop: threading.Event) -> End:
        """Live until the lease is lost, the log ends it, or ``stop`` is set and the tables are gone."""
        self._counters.sessions += 1
        _log.info("session %s of agent %s begins", self.key.session, self.key.agent)
        writer = self._log.writer(f"agent/{self.key.agent}/{self.key.session}")
        reader = SessionReader(self._log, self.key.session, self._watch, self._count_garbage)
        self._heartbeat.start()
        is_over = False
        try:
            self._replay(reader)
            executor = self._started(reader, stop)
            if executor is not None:
                self._turns(executor, reader, writer, stop)
        except SessionLostError as lost:
            is_over = True
            _log.warning("session %s is over: %s", self.key.session, lost)
            return End.LOST
        finally:
            # Whatever the reason: nothing of this session writes beyond this line.
            self._heartbeat.mute()
            self._lease.give_up()
            self._kill()
            self._counters.sessions_lost += is_over
            # Nothing was ever given to one that was starting: it need not be missed for a lease.
            self._heartbeat.end(forget=self._executor is None and not is_over)
            reader.close()
            writer.close()
        return End.STOPPED

    def _started(self, reader: SessionReader, stop: threading.Event) -> TableExecutor | None:
        """The executor, once the name is ours and all is warm; None if asked to stop before."""
        deadline = time.monotonic() + SETTLE_LEASES_MAX * self._options.lease_seconds
        while not self._watch.settled and time.monotonic() < deadline:
            if stop.is_set():
                return None
            self._follow(reader)
        self._probes.unready(LOOP, "Spark is starting")
        while not self._warming.finished():
            if stop.is_set():
                return None
            self._follow(reader)
        self._executor = self._factory()
        self._lease.check()  # lost before there was anything to kill
        _log.info("session %s is ready: tables can be given to it", self.key.session)
        return self._executor

    def _count_garbage(self) -> None:
        self._counters.garbage += 1

    def _kill(self) -> None:
        if self._executor is not None:
            self._executor.kill()

    # --- reading ------------------------------------------------------------------------------------------------

    def _replay(self, reader: SessionReader) -> None:
        """Adopt what is there, up to an end captured after the first heartbeat.

        An owner's open transaction may hide the end for a minute. No decision here depends on having seen all, so a
        lease is waited for it and no more.
        """
        deadline = time.monotonic() + self._options.lease_seconds
        ends: dict[Partition, int] | None = None
        while ends is None or not reader.reached(ends):
            self._turned()
            if ends is None and self._heartbeat.acknowledged.wait(TURN_SECONDS):
                ends = reader.end_offsets()
            self._adopt(reader)
            if time.monotonic() > deadline and self._heartbeat.acknowledged.is_set():
                _log.warning("session %s starts before the end of the log: a transaction is open", self.key.session)
                return

    def _follow(self, reader: SessionReader) -> None:
        """Read along without deciding anything yet."""
        self._turned()
        self._adopt(reader)

    def _adopt(self, reader: SessionReader) -> None:
        for delivery in reader.read():
            evolve(self._state, delivery.key, delivery.value, delivery.offset)
        if self._state.ended is not None:
            raise SessionLostError(f"the owner has recorded the end of this session: {self._state.ended}")

    # --- turns --------------------------------------------------------------------------------------------------

    def _turns(self, executor: TableExecutor, reader: SessionReader, writer: Writer, stop: threading.Event) -> None:
        inputs: deque[AgentInput] = deque([SessionStarted()])
        turns = Turns(
            self._state,
            executor,
            self._lease,
            lambda facts: self._write(writer, facts),
            clock=time.monotonic,
            wall_ms=wall_ms,
            on_progress=self._measure,
        )
        leave_at: float | None = None
        while True:
            self._turned()
            turns.turn(inputs)
            if stop.is_set():
                if leave_at is None:
                    leave_at = time.monotonic() + self._options.drain_seconds
                    self._heartbeat.stopping()
                if not task_count(self._state) or time.monotonic() >= leave_at:
                    return
            deliveries = reader.read()
            self._show(reader)
            self._lease.check()
            inputs.extend(Arrived(delivery) for delivery in deliveries)
            inputs.extend(turns.changes())
            inputs.extend(turns.due())

    def _show(self, reader: SessionReader) -> None:
        """A session that does not see what is decided is not ready, whatever its heartbeats report."""
        if reader.blind is None:
            self._probes.ready(LOOP)
        else:
            self._probes.unready(LOOP, f"the control topics cannot be read: {reader.blind}")

    def _write(self, writer: Writer, facts: list[Fact]) -> None:
        """Until it is acknowledged or the lease is gone: the records are whole states, twice is the same as once."""
        placed = [place_word(fact, self._log.shards) for fact in facts]
        while placed:
            self._turned()
            try:
                writer.write(placed, min(WRITE_SECONDS, self._lease.left()))
            except LogError as error:
                _log.warning("session %s: %d facts not acknowledged: %s", self.key.session, len(placed), error)
            else:
                self._counters.facts += len(placed)
                return

    def _turned(self) -> None:
        self._lease.check()
        self._probes.turned(LOOP)
        if self._log.level.writes != self._told_level:
            self._told_level = self._log.level.writes
            self._heartbeat.hurry()  # owners judge a session by its lease, which the level before could not express

    # --- the announcement ----------------------------------------------------------------------------------------

    def _announcement(self, liveness: Liveness, count: int) -> AgentAnnounced:
        self._told_level = self._log.level.writes
        return announced(
            liveness,
            count,
            wall_ms(),
            capacity_spans=self._options.capacity_spans,
            address=self._options.address,
            load_bytes_per_s=self._counters.load_bytes_per_s,
            lease_seconds=self._lease.seconds,
            level=self._told_level,
        )

    def _measure(self, statuses: Sequence[TaskStatus]) -> None:
        """Bytes a second since the last measure, of the spans that were there then and now; and what feeds count."""
        self._counters.feeds.note(statuses)
        now = time.monotonic()
        counts = {s.id: s.bytes for s in statuses if s.state is TaskState.REPLICATING}
        moved = sum(max(0, counts[span] - self._bytes.get(span, counts[span])) for span in counts)
        self._counters.load_bytes_per_s = moved / max(now - self._counted_at, TURN_SECONDS)
        self._bytes, self._counted_at = counts, now


SESSION_PAUSE_SECONDS: Final = 1.0
"""Before the next session when one could not live: a broken broker is not hammered."""


def run_agent(
    options: AgentOptions,
    log: Log,
    executor_factory: Callable[[], TableExecutor],
    stop: threading.Event,
    *,
    probes: Probes | None = None,
    counters: AgentCounters | None = None,
    warm: Callable[[], None] = lambda: None,
) -> None:
    """Run sessions until ``stop`` is set and the last one has drained.

    ``warm`` makes ready what executors run on, however long that takes; it is run on a thread of its own, before each
    session's executor is made. Raises IdInUseError, NewerSchemaError, what ``warm`` raises, and the machine's errors
    about a log that contradicts itself.
    """
    counters = counters or AgentCounters()
    probes = probes or Probes(options.lease_seconds)
    probes.expect(LOOP)
    warming = Warming(warm)
    former: str | None = None
    while not stop.is_set():
        session = AgentSession(options, log, executor_factory, probes, counters, warming=warming, former=former)
        if session.run(stop) is End.STOPPED:
            break
        former = session.key.session
        probes.unready(LOOP, "between two sessions")
        stop.wait(SESSION_PAUSE_SECONDS)
    probes.forget(LOOP)
