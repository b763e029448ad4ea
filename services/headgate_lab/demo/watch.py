"""What the control topics contain, as it happens: the demo knows of its services only what any reader can know.

One thread reads every partition of every control topic and keeps the current record of each key (the same code shows
``headgate topic``), and when certain things were first seen: a new owner, its first decision, a session, its end. Times
are monotonic seconds of this process, taken when a record was read, so a measured take-over includes the way through
the log.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Condition, Event, Thread
from typing import Final

import msgspec

from headgate.eventlog.log import Delivery, Garbage, Log, LogError, LogReader
from headgate.eventlog.snapshot import Snapshot, all_partitions
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import (
    AgentAnnounced,
    Epoch,
    FeedProgressed,
    Liveness,
    OwnerAnnounced,
    SessionEnded,
    SpanDispatched,
    SpanProgressed,
)
from headgate.records.keys import AgentKey, OwnerKey, ProgressKey, SessionKey

__all__ = ["Chronicle", "Death", "OwnerTerm", "Watch", "WatchError"]

POLL_RECORDS_MAX: Final = 500
POLL_SECONDS: Final = 0.1
"""How late a change is noticed at most, and how late the thread ends."""

JOIN_SECONDS_MAX: Final = 10.0

Check = Callable[[], None]


class WatchError(Exception):
    """The control topics cannot be read, or lack an expected record too long; the message names it."""


class OwnerTerm(msgspec.Struct, frozen=True):
    """An owner's term, and when its announcement was read (monotonic seconds)."""

    owner_id: str
    owner_rev: int
    announced_at: float


class Death(msgspec.Struct, frozen=True):
    """A session declared dead by the owner."""

    agent: str
    session: str
    reason: str
    seen_at: float


class Chronicle:
    """What was read so far, and when: fed record by record, so that a test can feed it any story."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.terms: list[OwnerTerm] = []
        self.decided_at: dict[int, float] = {}
        """owner_rev → when the first record was read that its owner wrote after announcing itself."""
        self.deaths: list[Death] = []
        self.sessions: dict[str, list[str]] = {}
        """Agent → its sessions in the order in which they announced themselves."""
        self.announced_at: dict[str, float] = {}
        """Session → when its first announcement was read."""
        self.heard_at: dict[str | int, float] = {}
        """Session, or owner_rev of a term → when its last announcement was read."""
        self.lag_ms_max = 0
        self._rows: dict[tuple[ProgressKey, Epoch], int] = {}

    def rows_applied(self) -> int:
        """Rows that agents have reported as applied, over all assignments so far."""
        return sum(self._rows.values())

    def is_ready(self, agent: str) -> bool:
        """Whether the agent's newest session is alive, stays, and can be given tables."""
        sessions = self.sessions.get(agent)
        if not sessions or any(death.session == sessions[-1] for death in self.deaths):
            return False
        key = AgentKey(agent, sessions[-1])
        announced = self.snapshot.get(key, AgentAnnounced)
        is_alive = announced is not None and announced.liveness is Liveness.ALIVE
        return is_alive and key not in self.snapshot.starting()

    def take(self, read: Delivery | Garbage, now: float) -> None:
        """One record more, in the order of its partition."""
        self.snapshot.take(read)
        if not isinstance(read, Delivery):
            return
        match read.key, read.value:
            case OwnerKey(), OwnerAnnounced() as announced:
                self._take_term(announced, read.offset, now)
            case AgentKey() as key, AgentAnnounced():
                self.heard_at[key.session] = now
                known = self.sessions.setdefault(key.agent, [])
                if key.session not in known:
                    known.append(key.session)
                    self.announced_at[key.session] = now
            case SessionKey() as key, SessionEnded() as ended:
                self._take_decision(ended.owner_rev, now)
                if not any(death.session == key.session for death in self.deaths):
                    self.deaths.append(Death(key.agent, key.session, ended.reason, now))
            case ProgressKey() as key, SpanProgressed() as progressed:
                self._rows[key, progressed.epoch] = progressed.rows
                self.lag_ms_max = max(self.lag_ms_max, progressed.lag_ms)
            case _, (FeedProgressed() | SpanDispatched()) as decided:
                self._take_decision(decided.owner_rev, now)
            case _:
                pass

    def _take_term(self, announced: OwnerAnnounced, offset: int, now: float) -> None:
        """The first record of a term carries no owner_rev: it is that record's offset."""
        owner_rev = offset if announced.owner_rev is None else announced.owner_rev
        self.heard_at[owner_rev] = now
        if not any(term.owner_rev == owner_rev for term in self.terms):
            self.terms.append(OwnerTerm(announced.owner_id, owner_rev, now))

    def _take_decision(self, owner_rev: int, now: float) -> None:
        # Topics are not ordered among each other: a decision may be read before the announcement of its term.
        self.decided_at.setdefault(owner_rev, now)


class Watch:
    """Reads all control topics until closed. ``seen`` may be looked at while ``condition`` is held."""

    def __init__(self, log: Log, *, silence_seconds_max: float = 0.0) -> None:
        """Start reading from the beginning. Raises LogError.

        A broker that does not answer is waited for up to ``silence_seconds_max``.
        """
        self._silence_seconds_max = silence_seconds_max
        self.seen = Chronicle()
        self.condition = Condition()
        self.failure: LogError | None = None
        self._stopping = Event()
        reader = log.reader(dict.fromkeys(all_partitions(log), 0))
        self._thread = Thread(target=self._run, args=(reader,), name="demo-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._stopping.set()
        self._thread.join(JOIN_SECONDS_MAX)

    def rows_applied(self) -> int:
        """Rows that agents have reported as applied, over all assignments so far."""
        with self.condition:
            return self.seen.rows_applied()

    def wait_for(self, what: str, holds: Callable[[Chronicle], bool], timeout_seconds: float, check: Check) -> float:
        """When ``holds`` was first seen to hold, in monotonic seconds.

        ``check`` is called about once a second and raises when waiting has become pointless. Raises WatchError.
        """
        seconds = scaled_seconds(timeout_seconds)
        deadline = time.monotonic() + seconds
        while True:
            with self.condition:
                failure = self.failure
                if failure is None and holds(self.seen):
                    return time.monotonic()
                if failure is None:
                    self.condition.wait(min(1.0, max(0.0, deadline - time.monotonic())))
            check()
            if failure is not None:  # what was read last may long be untrue
                raise WatchError(f"the control topics cannot be read any more: {failure}") from failure
            if time.monotonic() > deadline:
                raise WatchError(f"waited {seconds:.0f} s without success for this: {what}")

    def _run(self, reader: LogReader) -> None:
        heard_at = time.monotonic()
        with closing(reader):
            while not self._stopping.is_set():
                try:
                    reads = reader.poll(POLL_RECORDS_MAX, POLL_SECONDS)
                except LogError as error:
                    if time.monotonic() - heard_at > self._silence_seconds_max:
                        with self.condition:
                            self.failure = error
                            self.condition.notify_all()
                        return
                    self._stopping.wait(POLL_SECONDS)
                else:
                    heard_at = self._take(reads) if reads else heard_at

    def _take(self, reads: Sequence[Delivery | Garbage]) -> float:
        now = time.monotonic()
        with self.condition:
            for read in reads:
                self.seen.take(read, now)
            self.condition.notify_all()
        return now
