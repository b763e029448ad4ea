"""One term of one owner: everything that exists only while it serves, and that is lost with it.

A turn gives the machine its inputs one after the other (records read, finished effects, timers, silent holders), lets
it evolve each decision's facts at once, and commits all facts of the turn in one transaction. Effects are handed out
only after that commit, so an owner that was fenced, and does not know it yet, has no visible effect. A turn that has
effects but no facts commits its heartbeat, because an empty transaction proves nothing: a fenced producer may commit
one.

Timers, leases, effects and their results belong to the term object. The driver drops the object, and the state with it,
as soon as one commit does not return.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from headgate.eventlog.log import Delivery, FencedError, Log, Partition, SchemaLevel, TransactionalWriter
from headgate.records.base import Fact
from headgate.records.control import OwnerAnnounced
from headgate.runtime.kind import Sign, SignOfLife
from headgate.runtime.leases import HolderLeases
from headgate.runtime.levels import Readership
from headgate.runtime.machine import (
    OFFSET_UNKNOWN,
    Arrived,
    CancelTimer,
    EffectFinished,
    HolderSilent,
    Machine,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)
from headgate.runtime.roster import Roster
from headgate.runtime.settings import HEARTBEATS_PER_LEASE, RoleCounters, RoleSettings
from headgate.runtime.timers import Timers

StateT = TypeVar("StateT")

TURN_FACTS_MAX: Final = 5_000
"""No further input is taken in a turn that has this many facts: a commit stays far below the client's queue bound."""

TIDYING_SHARD: Final = 0
"""All shards share announce; one owner tidies it."""

TURN_TIMERS_MAX: Final = 1_000
"""Timers fired in one turn; the rest is late, which timers may be."""

RESULTS_MAX: Final = 10_000
"""Results of effects, and inputs from outside, that wait for their turn; more means that the machine gets more than it
can process."""


class TermEffect(msgspec.Struct, frozen=True):
    """An effect to run, with its term; return it unchanged with the result."""

    owner_rev: int
    effect: Any


class Term(Generic[StateT]):
    """A shard's owner at work, from its announce on."""

    def __init__(
        self,
        *,
        settings: RoleSettings,
        machine: Machine[StateT],
        state: StateT,
        leases: HolderLeases,
        roster: Roster,
        level: SchemaLevel,
        readership: Readership,
        writer: TransactionalWriter,
        counters: RoleCounters,
        run_effect: Callable[[TermEffect], None],
        on_commit: Callable[[Sequence[Fact]], None],
    ) -> None:
        """Nothing is written before ``announce``; ``state`` is replayed to the end captured after ``init``."""
        self._settings = settings
        self._machine = machine
        self._state = state
        self._leases = leases
        self._roster = roster
        self._level = level
        self._readership = readership
        self._announced_level = level.writes
        self._writer = writer
        self._counters = counters
        self._run_effect = run_effect
        self._on_commit = on_commit
        self._timers = Timers()
        self._facts: list[Fact] = []
        self._ended: list[SignOfLife] = []
        self._effects: list[Any] = []
        self._results: deque[Any] = deque()
        self._results_lock = threading.Lock()
        self._unfinished = 0
        self._judgement_ends: Mapping[Partition, int] | None = None
        self._heartbeat_at = 0.0
        self.owner_rev = OFFSET_UNKNOWN

    def announce(self, now: Now) -> None:
        """The first commit of the term: its offset is ``owner_rev``. Raises what commits raise."""
        self._announced_level = max(self._announced_level, self._readership.may_rise_to(now.monotonic))
        first = self._settings.announcement(None, self._announced_level, now)
        self.owner_rev = self._write((first,))[0]
        self._machine.evolve(self._state, first.key, first.value, self.owner_rev)
        self._counters.terms += 1
        self._leases.renew_all(now.monotonic)
        self._heartbeat_at = now.monotonic

    def open(self, now: Now) -> None:
        """Let the machine take over, and announce again with the owner_rev in it. Raises what commits raise."""
        self._decide(TermBegan(self.owner_rev), now)
        self._commit(now)

    def finish(self, effect: TermEffect, result: Any) -> bool:
        """Keep a result for the next turn, from any thread; False if too many wait already: retry later."""
        with self._results_lock:
            if len(self._results) >= RESULTS_MAX:
                return False
            self._results.append(EffectFinished(effect.effect, result))
            return True

    def give(self, given: Any) -> bool:
        """Keep an input of the machine's own for the next turn, from any thread; False if too many wait already."""
        with self._results_lock:
            if len(self._results) >= RESULTS_MAX:
                return False
            self._results.append(given)
            return True

    def turn(self, now: Now, inbox: deque[Delivery], log: Log, positions: Mapping[Partition, int]) -> None:
        """Take inputs, decide, commit, run effects. ``positions`` shows how far ``inbox`` reaches.

        Raises FencedError when a later owner has announced itself, and what commits and ``end_offsets`` raise.
        """
        while inbox and not self._is_full():
            self._receive(inbox.popleft(), now)
        self._take_results(now)
        self._fire_timers(now)
        if not inbox:
            self._judge(now, log, positions)
        self._writer.seen(positions)
        self._commit(now)

    def step_down(self, now: Now) -> None:
        """Record on the log that the shard is free, so that a standby campaigns at once."""
        self._write((self._settings.announcement(self.owner_rev, self._announced_level, now, resigned=True),))

    def next_due(self) -> float:
        """Monotonic time at which a turn has something to do even if nothing is read; the past if it has by now."""
        with self._results_lock:
            if self._results:
                return float("-inf")
        # While suspects are being judged no further lease is checked, so none can be due.
        lease = None if self.is_judging() else self._leases.next_deadline()
        deadlines = (self._heartbeat_at, self._timers.next_deadline(), lease)
        return min(deadline for deadline in deadlines if deadline is not None)

    def is_judging(self) -> bool:
        """Whether the log is being read to an end, to judge silent holders."""
        return self._judgement_ends is not None

    def awaits_results(self) -> bool:
        """Whether effects are running whose results have not been decided on yet."""
        return self._unfinished > 0

    def _receive(self, delivery: Delivery, now: Now) -> None:
        key, value = delivery.key, delivery.value
        self._roster.learn(key, value, now.monotonic)
        self._readership.learn(key, value, now.monotonic)
        if self._settings.is_mine(key):
            if isinstance(value, OwnerAnnounced):
                self._check_owner(value, delivery.offset)
            return
        self._machine.evolve(self._state, key, value, delivery.offset)
        sign = self._settings.kind.sign(key, value)
        if sign is not None:
            self._leases.learn(sign, now.monotonic)
        self._decide(Arrived(delivery), now)

    def _check_owner(self, record: OwnerAnnounced, offset: int) -> None:
        owner_rev = offset if record.owner_rev is None else record.owner_rev
        if owner_rev > self.owner_rev:
            raise FencedError(
                f"shard {self._settings.shard}: {record.owner_id} announced owner_rev {owner_rev}, "
                f"mine is {self.owner_rev}: my term is over"
            )

    def _take_results(self, now: Now) -> None:
        for _ in range(len(self._results)):
            if self._is_full():
                return
            with self._results_lock:
                finished = self._results.popleft()
            self._unfinished -= isinstance(finished, EffectFinished)
            self._decide(finished, now)

    def _fire_timers(self, now: Now) -> None:
        mark = self._timers.mark()
        for _ in range(TURN_TIMERS_MAX):
            name = None if self._is_full() else self._timers.take_due(now.monotonic, mark)
            if name is None:
                return
            self._decide(TimerFired(name), now)

    def _judge(self, now: Now, log: Log, positions: Mapping[Partition, int]) -> None:
        """Report silent holders to the machine, once everything written before the suspicion has been read."""
        if self._judgement_ends is None:
            if not self._leases.suspect(now.monotonic):
                return
            self._judgement_ends = log.end_offsets(self._settings.partitions())
        if any(positions[partition] < end for partition, end in self._judgement_ends.items()):
            return
        self._judgement_ends = None
        for holder in self._leases.take_silent():
            self._decide(HolderSilent(holder, self._leases.lease(holder)), now)

    def _decide(self, given: Any, now: Now) -> None:
        decision = self._machine.decide(self._state, given, now)
        for fact in decision.facts:
            self._adopt(fact, now)
        for effect in decision.effects:
            # Timers are not visible outside, so they need not wait for the commit.
            if isinstance(effect, SetTimer):
                self._timers.set(effect.name, now.monotonic + effect.delay_seconds)
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect.name)
            else:
                self._effects.append(effect)

    def _adopt(self, fact: Fact, now: Now) -> None:
        self._machine.evolve(self._state, fact.key, fact.value, OFFSET_UNKNOWN)
        sign = self._settings.kind.sign(fact.key, fact.value)
        if sign is not None:
            self._leases.learn(sign, now.monotonic)
            if sign.sign is Sign.ENDED:
                self._ended.append(sign)
        self._facts.append(fact)

    def _commit(self, now: Now) -> None:
        if now.monotonic >= self._heartbeat_at or (self._effects and not self._facts):
            # A process that reads this one knows the level; until it is committed everything else stays at the old one.
            self._announced_level = max(
                self._announced_level, self._level.writes, self._readership.may_rise_to(now.monotonic)
            )
            self._adopt(self._settings.announcement(self.owner_rev, self._announced_level, now), now)
            self._heartbeat_at = now.monotonic + self._settings.lease_seconds / HEARTBEATS_PER_LEASE
            self._tidy_members(now)
        facts, self._facts = tuple(self._facts), []
        effects, self._effects = self._effects, []
        if facts:
            self._write(facts)
        for effect in effects:
            self._unfinished += 1
            self._run_effect(TermEffect(self.owner_rev, effect))

    def _tidy_members(self, now: Now) -> None:
        """Shard 0's owner deletes the keys of processes that ended without doing so, for all shards."""
        if self._settings.shard == TIDYING_SHARD:
            for name in self._roster.forget_gone(now.monotonic):
                self._adopt(Fact(self._settings.kind.member_key(name), None), now)

    def _write(self, facts: Sequence[Fact]) -> list[int]:
        offsets = self._writer.commit([self._settings.place(fact) for fact in facts])
        self._counters.commits += 1
        self._counters.facts += len(facts)
        ended, self._ended = self._ended, []
        self._counters.sessions_ended += len(ended)
        self._counters.failovers += sum(not sign.farewell for sign in ended)
        self._on_commit(facts)
        return offsets

    def _is_full(self) -> bool:
        return len(self._facts) >= TURN_FACTS_MAX
