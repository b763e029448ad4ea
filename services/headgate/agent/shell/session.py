"""A session of an agent, kept alive by acknowledged heartbeats. It ends when its lease is lost, and never resumes.

The owner judges a session by the heartbeats it reads; the session judges itself, stricter: its lease runs from the
moment the last acknowledged heartbeat was *sent*. So it knows that it is lost before anybody else may conclude it, and
a process that was frozen finds the lease gone as soon as it looks. What is lost stays lost: the next session has
another id and shares no key with this one. What the sink needs beyond that is its own fence.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from headgate.eventlog.log import Log, LogError
from headgate.eventlog.repeats import Repeats
from headgate.eventlog.sharding import ANNOUNCE, place
from headgate.records.base import Fact, Key, Record
from headgate.records.control import AgentAnnounced, Liveness
from headgate.records.keys import AgentKey, SessionKey
from headgate.runtime.clocks import elapsed_seconds
from headgate.supervision.threads import BackgroundThread

_log = logging.getLogger(__name__)
_log.addFilter(Repeats(logging.WARNING))  # that a session has lost its lease is always news

Clock = Callable[[], float]

HEARTBEATS_PER_LEASE: Final = 5
"""Four in a row may be late before anybody is taken for dead."""

SETTLE_HEARTBEATS: Final = 3
"""So many times of its own an agent announces itself before it takes it that no elder lives and starts Spark: 0.6 of a
lease. An elder that lives is read at least in two of the spaces between, even if one of its own heartbeats is late.
Longer would hold up every restart after a crash; who is slower than that is still found, only later."""

SETTLE_LEASES_MAX: Final = 3.0
"""An open transaction of an owner that died may hide announcements for a minute: no session is awaited longer."""


class SessionLostError(Exception):
    """This session is over: its lease ran out, or the owner wrote it dead. The process may begin another."""


class IdInUseError(Exception):
    """Another process lives under this agent's name, and was there first."""


class Lease:
    """The right to continue until a moment that only acknowledged heartbeats move. Any thread may ask."""

    def __init__(self, seconds: float, clock: Clock = elapsed_seconds) -> None:
        self.seconds = seconds
        self._clock = clock
        self._sent_at = clock()
        self._lost = False

    def renew(self, sent_at: float) -> None:
        """A heartbeat sent at ``sent_at`` has been acknowledged. Does not bring back what is lost."""
        if not self.lost():
            self._sent_at = max(sent_at, self._sent_at)

    def left(self) -> float:
        """Seconds left, never below 0."""
        return 0.0 if self.lost() else self._sent_at + self.seconds - self._clock()

    def lost(self) -> bool:
        """Whether the session has ended. An ended session never resumes."""
        self._lost = self._lost or self._clock() >= self._sent_at + self.seconds
        return self._lost

    def give_up(self) -> None:
        """End it now."""
        self._lost = True

    def check(self) -> None:
        """Raise SessionLostError if it is over."""
        if self.lost():
            raise SessionLostError(f"no acknowledged heartbeat for {self.seconds:g} s")


class Heartbeat:
    """Announces a session from a thread of its own, with its own log writer; runs ``on_lost`` when its lease is lost.

    ``announcement`` makes the record from liveness and count; ``on_lost`` is called on that thread, once.
    """

    def __init__(
        self,
        log: Log,
        key: AgentKey,
        lease: Lease,
        announcement: Callable[[Liveness, int], AgentAnnounced],
        *,
        on_lost: Callable[[], None],
        clock: Clock = elapsed_seconds,
    ) -> None:
        self.liveness = Liveness.ALIVE
        self.acknowledged = threading.Event()
        self._key = key
        self._lease = lease
        self._announcement = announcement
        self._on_lost = on_lost
        self._clock = clock
        self._count = 0
        self._wake = threading.Event()
        self._ended = False
        self._writer = log.writer(f"agent/{key.agent}/{key.session}/heartbeat")
        self._thread = BackgroundThread(self._run, name="headgate-heartbeat")

    @property
    def pause(self) -> float:
        """Seconds between heartbeats."""
        return self._lease.seconds / HEARTBEATS_PER_LEASE

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stopping(self) -> None:
        """Report at once that the agent is stopping, which cannot be undone."""
        self.liveness = Liveness.STOPPING
        self._wake.set()

    def hurry(self) -> None:
        """Announce what is new now, not at the next heartbeat."""
        self._wake.set()

    def mute(self) -> None:
        """Announce nothing more, without waiting for what is under way; a lost lease needs no announcement."""
        self._ended = True
        self._wake.set()

    def end(self, *, forget: bool = False) -> None:
        """Mute it, wait for what is under way, and close its log writer; ``forget`` deletes the announcement before."""
        self.mute()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self.pause + 1)
        if forget:
            try:
                self._writer.write([place(Fact(self._key, None), ANNOUNCE.number)], self.pause)
            except LogError as error:
                _log.warning("session %s: its end is not on the log: %s", self._key.session, error)
        self._writer.close()

    def beat(self) -> bool:
        """One heartbeat, never waited for beyond the lease; whether the session still lives."""
        if self._lease.lost():
            return False
        self._count += 1
        fact = Fact(self._key, self._announcement(self.liveness, self._count))
        sent_at = self._clock()
        try:
            self._writer.write([place(fact, ANNOUNCE.number)], min(self.pause, self._lease.left()))
        except LogError as error:
            _log.warning("session %s: heartbeat %d not acknowledged: %s", self._key.session, self._count, error)
        else:
            self._lease.renew(sent_at)
            self.acknowledged.set()
        return not self._lease.lost()

    def _run(self) -> None:
        while not self._ended:
            if not self.beat():
                if not self._ended:
                    _log.error("session %s has lost its lease: every writer is stopped", self._key.session)
                    self._on_lost()
                return
            self._wake.wait(min(self.pause, self._lease.left()))
            self._wake.clear()


class IdWatch:
    """Finds another living session under the same agent's name, by what is read on announce and dispatch.

    A session whose announcement precedes ours on the log was there first, so of two that start at the same moment one
    ends. A predecessor that was killed announces nothing more, except what was on the wire; one that is stopping soon
    will not. One that continues to announce itself after our own announcement is alive, and has the name: ours ends.

    What counts is the order of announcements on the log and not when they are read: a machine on which all is slow, or
    a process that is frozen for a while, reads late what was written at its pace, and finds out the same.
    """

    def __init__(self, key: AgentKey, former: str | None = None) -> None:
        """``former`` is the session that this very process had before: it is over, whatever is still on the log."""
        self._key = key
        self._former = former
        self._own = 0
        """How many of our announcements were read."""
        self._elders: dict[str, int | None] = {}
        """Session → how many of our announcements were read before its first one after ours."""

    @property
    def settled(self) -> bool:
        """Whether no session that was there before ours is expected to report any more that it is alive."""
        return self._own > (SETTLE_HEARTBEATS if self._elders else 0)

    def read(self, key: Key, value: Record | None) -> None:
        """One record, in the order of the log. Raises IdInUseError."""
        match key:
            case SessionKey(agent=self._key.agent):
                self._elders.pop(key.session, None)
            case AgentKey(agent=self._key.agent, session=self._key.session):
                self._own += 1
            case AgentKey(agent=self._key.agent) if key.session != self._former:
                if not isinstance(value, AgentAnnounced) or value.liveness is not Liveness.ALIVE:
                    self._elders.pop(key.session, None)
                elif not self._own:
                    self._elders[key.session] = None
                elif key.session in self._elders:
                    self._heard(key.session, value.address)
            case _:
                pass

    def _heard(self, session: str, address: str) -> None:
        first = self._elders[session]
        if first is None:
            self._elders[session] = self._own
        elif self._own > first:
            raise IdInUseError(
                f"agent name {self._key.agent} is in use by session {session} at {address}: "
                "give this agent another name (HEADGATE_AGENT__NAME), or stop the other one"
            )
