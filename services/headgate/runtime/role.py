"""The role loop: how one process becomes, is, and stops being the owner of a shard. Kafka alone decides.

    STANDBY ──campaign──▶ CAMPAIGNING ──init──▶ REPLAYING ──at end──▶ SERVING ──step_down──▶ ENDED
       ▲ tails its topics    fences the last owner   to the end captured     turns (term.py)
       └──── WAITING ◀──── on any error: the state is thrown away; a deterministic back-off ───────────┘

Precedent: Kafka's own group coordinator (its coordinator-common). A role whose commit was refused, fenced or left
uncertain does not know what the log contains; so it forgets everything and reads the log again, as a new standby. This
is the only recovery path (ADR 0001).

``turn(now)`` never waits and takes the time as an argument, so a simulator can drive it; a process calls
``wait(seconds)`` between turns, which returns early when records arrive. One thread drives; ``finish``, ``resign`` and
``status`` may be called from others.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from headgate.eventlog.log import Log, LogError, NewerSchemaError, Partition, TransactionalWriter
from headgate.records.base import Fact
from headgate.runtime.candidate import Candidate
from headgate.runtime.machine import Machine, Now
from headgate.runtime.settings import RoleCounters, RoleSettings
from headgate.runtime.term import Term, TermEffect

__all__ = ["Role", "RoleCounters", "RoleEndedError", "RoleSettings", "RoleState", "RoleStatus", "TermEffect"]

StateT = TypeVar("StateT")

TURN_SECONDS_MAX: Final = 0.25
"""Longest pause between turns: /livez and the gap rule need turns far more often than a lease."""

CATCHING_UP_SECONDS: Final = 0.02
"""Pause when an end of the log, or an effect's result, is awaited and the last turn brought nothing."""

KEPT_SECONDS_MIN: Final = 60.0
"""A shard that was given away to even out the shares, and came back, stays for so long: the other process could not
keep it."""

BACKOFF_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses after 1, 2, … falls in a row, the last for all further ones, so that a broken broker is not flooded."""


class RoleState(StrEnum):
    """The state of a role."""

    STANDBY = "standby"
    CAMPAIGNING = "campaigning"
    REPLAYING = "replaying"
    SERVING = "serving"
    WAITING = "waiting"
    ENDED = "ended"


class RoleStatus(msgspec.Struct, frozen=True):
    """What /readyz and metrics need: ready is ``replayed``, ``owner_id`` known and not ``blind``.

    ``blind`` is the reason why records may be missing from what the role has read. ``turned_at`` is monotonic.
    """

    state: RoleState
    owner_rev: int | None
    replayed: bool
    owner_id: str | None
    turned_at: float | None
    last_error: str | None
    blind: str | None = None


class RoleEndedError(Exception):
    """The role cannot, or need not, continue in this process; the message contains why and what to do."""


class Role(Generic[StateT]):
    """One role of one shard in one process, from its first standby to its end."""

    def __init__(
        self,
        settings: RoleSettings,
        machine: Machine[StateT],
        log: Log,
        *,
        run_effect: Callable[[TermEffect], None],
        counters: RoleCounters | None = None,
        on_commit: Callable[[Sequence[Fact]], None] = lambda _facts: None,
    ) -> None:
        """Nothing is read or written before the first turn.

        ``run_effect`` submits and returns at once; the result comes back through ``finish`` with the same TermEffect.
        ``on_commit`` sees every committed batch of facts. Neither may raise.
        """
        self._settings = settings
        self._machine = machine
        self._log = log
        self._run_effect = run_effect
        self._on_commit = on_commit
        self.counters = counters if counters is not None else RoleCounters()
        self._state = RoleState.WAITING
        self._candidate: Candidate[StateT] | None = None
        self._term: Term[StateT] | None = None
        self._resume_at = float("-inf")
        self._falls_in_a_row = 0
        self._turned_at: float | None = None
        self._resigning = False
        self._ceding = False
        self._keep_until = float("-inf")
        self._failure: LogError | None = None
        self._last_error: str | None = None

    def turn(self, now: Now) -> float:
        """Do what is due. Return the seconds until the next turn, unless records or results come first.

        Raises RoleEndedError when the role has ended, has met a newer schema, or its replay makes no progress any more.
        """
        if self._state is RoleState.ENDED:
            raise RoleEndedError(self._last_error)
        previous, self._turned_at = self._turned_at, now.monotonic
        try:
            if previous is not None and now.monotonic - previous > self._settings.lease_seconds:
                # The state before the gap may have changed since, and others may have judged this role silent.
                self._fall(f"no turn for {now.monotonic - previous:.1f} s, longer than the lease", now.monotonic)
            if self._resigning:
                self._step_down(now)
                return 0.0
            if self._ceding:
                self._ceding = False
                self._cede(now, "resigned on request")
            return self._step(now)
        except NewerSchemaError as error:
            self._end(f"a newer Headgate has written to the log; upgrade this one: {error}")
            raise RoleEndedError(self._last_error) from error
        except LogError as error:
            pause = BACKOFF_SECONDS[min(self._falls_in_a_row, len(BACKOFF_SECONDS) - 1)]
            self._falls_in_a_row += 1
            self._fall(f"{type(error).__name__}: {error}", now.monotonic + pause)
            return min(pause, TURN_SECONDS_MAX)

    def wait(self, seconds: float) -> bool:
        """Wait for records at most ``seconds`` (and at most TURN_SECONDS_MAX), and keep them for the next turn.

        False, at once, if the role has no reader to wait on (between a fall and the next start): sleep instead.
        """
        if self._candidate is None:
            return False
        if self._failure is None:
            try:
                self._candidate.fetch(min(max(seconds, 0.0), TURN_SECONDS_MAX))
            except LogError as error:
                self._failure = error
        return True

    def finish(self, effect: TermEffect, result: Any) -> bool:
        """Give an effect's result to the term that requested it; one of an earlier term is dropped.

        From any thread. False if too many results wait already: keep this one and retry.
        """
        term = self._term
        if term is None or term.owner_rev != effect.owner_rev:
            return True
        return term.finish(effect, result)

    def give(self, given: Any) -> bool:
        """Give the machine an input of its own, processed at the owner's next turn, from any thread.

        False if this process owns nothing now, or too many inputs wait: the input was not accepted.
        """
        term = self._term
        return term is not None and term.give(given)

    def resign(self) -> None:
        """Step down at the next turn, from any thread: the role then ends and never resumes."""
        self._resigning = True

    def cede(self) -> None:
        """Step down at the next turn, from any thread, but stay: as a standby that lets the others go first."""
        self._ceding = True

    def close(self) -> None:
        """Close the log at once, without resigning; a standby finds out by the lease. Idempotent."""
        self._end("closed")

    @property
    def view(self) -> StateT:
        """The machine's state, to be read between turns by the driving thread."""
        return self._machine.new_state(self._settings.shard) if self._candidate is None else self._candidate.state

    @property
    def positions(self) -> Mapping[Partition, int] | None:
        """How far its topics were read; None between a fall and the next start."""
        return None if self._candidate is None else self._candidate.positions()

    @property
    def stands(self) -> bool:
        """Whether it owns the shard or would take it: it has not ended, and has not just fallen. From any thread."""
        is_fresh = self._turned_at is None
        return self._state is not RoleState.ENDED and (is_fresh or self._candidate is not None)

    def digest(self) -> str:
        """The machine's own digest of its state."""
        return self._machine.digest(self.view)

    @property
    def status(self) -> RoleStatus:
        """The role's current status."""
        term, candidate = self._term, self._candidate
        owner = candidate.watch.owner if candidate is not None else None
        owner_id = None if owner is None or owner.lease_seconds <= 0 else owner.owner_id
        return RoleStatus(
            state=self._state,
            owner_rev=None if term is None else term.owner_rev,
            replayed=candidate is not None and candidate.replayed,
            owner_id=owner_id if term is None else self._settings.owner_id,
            turned_at=self._turned_at,
            last_error=self._last_error,
            blind=None if candidate is None else candidate.blind,
        )

    def _step(self, now: Now) -> float:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if now.monotonic < self._resume_at:
            return min(self._resume_at - now.monotonic, TURN_SECONDS_MAX)
        if self._candidate is None:
            self._candidate = Candidate(self._settings, self._machine, self._log, self.counters, now.monotonic)
            self._state = RoleState.STANDBY
        self._candidate.fetch(0.0)
        if self._term is not None:
            return self._serve(self._candidate, self._term, now)
        if self._candidate.writer is not None:
            return self._replay(self._candidate, self._candidate.writer, now)
        return self._stand_by(self._candidate, now)

    def _stand_by(self, candidate: Candidate[StateT], now: Now) -> float:
        moved = candidate.follow(now)
        if candidate.is_time_to_campaign(now.monotonic):
            self._state = RoleState.CAMPAIGNING
            self.counters.campaigns += 1
            candidate.campaign(now.monotonic)
            self._state = RoleState.REPLAYING
            return 0.0
        if moved:
            return 0.0
        if candidate.is_waiting_for_end():
            return CATCHING_UP_SECONDS
        return min(candidate.watch.runs_out_at() - now.monotonic, TURN_SECONDS_MAX)

    def _replay(self, candidate: Candidate[StateT], writer: TransactionalWriter, now: Now) -> float:
        moved = candidate.follow(now)
        if candidate.is_at_end():
            self._begin_term(candidate, writer, now)
            return 0.0
        candidate.end_hanging(now.monotonic)
        stalled = candidate.stalled(now.monotonic)
        if stalled is not None:
            self._end(stalled)
            raise RoleEndedError(stalled)
        return 0.0 if moved else CATCHING_UP_SECONDS

    def _begin_term(self, candidate: Candidate[StateT], writer: TransactionalWriter, now: Now) -> None:
        candidate.replayed = True
        candidate.serve()
        term = Term(
            settings=self._settings,
            machine=self._machine,
            state=candidate.state,
            leases=candidate.leases,
            roster=candidate.roster,
            level=self._log.level,
            readership=candidate.readership,
            writer=writer,
            counters=self.counters,
            run_effect=self._run_effect,
            on_commit=self._on_commit,
        )
        is_failover = not candidate.watch.is_vacant()
        term.announce(now)
        self.counters.failovers += is_failover
        # Results may come back while the first effects are being submitted, so the term is known before it opens.
        self._term = term
        term.open(now)
        self._falls_in_a_row = 0
        self._state = RoleState.SERVING

    def _serve(self, candidate: Candidate[StateT], term: Term[StateT], now: Now) -> float:
        moved = bool(candidate.inbox)
        term.turn(now, candidate.inbox, self._log, candidate.positions())
        if moved:
            return 0.0
        poorer = candidate.roster.poorer(now.monotonic)
        if poorer is not None and now.monotonic >= self._keep_until:
            self._keep_until = now.monotonic + KEPT_SECONDS_MIN
            self._cede(now, f"gave the shard to {poorer}, who owns fewer")
            return 0.0
        awaiting = term.is_judging() or term.awaits_results()
        longest = CATCHING_UP_SECONDS if awaiting else TURN_SECONDS_MAX
        return min(max(term.next_due() - now.monotonic, 0.0), longest)

    def _step_down(self, now: Now) -> None:
        reason = "resigned"
        try:
            if self._term is not None:
                self._term.step_down(now)
        except LogError as error:
            reason = f"resigned, but could not record that in Kafka, so a standby waits for the lease: {error}"
        self._end(reason)

    def _cede(self, now: Now, reason: str) -> None:
        if self._term is not None:
            self._term.step_down(now)
            # A lease is time for every standby to campaign; if there is none, this one does after it.
            self._fall(reason, now.monotonic + self._settings.lease_seconds)

    def _fall(self, reason: str, resume_at: float) -> None:
        """Throw the state away; start as new at ``resume_at``."""
        self.counters.falls += 1
        self._last_error = reason
        self._resume_at = resume_at
        self._let_go(RoleState.WAITING)

    def _end(self, reason: str) -> None:
        if self._state is not RoleState.ENDED:
            self._last_error = reason
            self._let_go(RoleState.ENDED)

    def _let_go(self, state: RoleState) -> None:
        candidate, self._candidate = self._candidate, None
        self._term = None
        self._failure = None
        self._state = state
        if candidate is not None:
            candidate.close()
