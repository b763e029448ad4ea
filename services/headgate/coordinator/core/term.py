"""One owner's memory for one term: observations, requests and effects that are in no record.

Which answers came live, which timers run, whether the barrier is open, what is left of an operator's long request. Only
``decide`` writes it; it ends with the term, as the loop's timers do, and a new owner makes its own from the records.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.coordinator.core.loads import Loads
from headgate.coordinator.core.ranking import Ranking
from headgate.records.control import Assignment, Epoch
from headgate.records.keys import SpanKey

SessionId = tuple[str, str]
"""(agent, session)."""


class TimerPurpose(msgspec.Struct, frozen=True):
    """What a timer of this term was set for: ``kind`` determines the meaning of ``subject`` (machine.py)."""

    kind: str
    subject: Any


class RoleWait(msgspec.Struct, frozen=True):
    """The role that a span waits for, and since when (monotonic)."""

    role: Assignment
    since: float


@dataclass(slots=True)
class Drain:
    """One session being emptied on request; ``is_done`` once it has no role left, then held empty (relocation.py)."""

    request: str
    is_done: bool = False
    left_count: int = 0
    """Its roles when they were counted last."""
    holds: int = 0


@dataclass(slots=True)
class Rebalance:
    """One feed being spread evenly: what is still to be moved (None before the plan is made), what is moving now."""

    request: str
    plan: deque[tuple[SpanKey, SessionId]] | None = None
    moving: dict[SpanKey, SessionId] = field(default_factory=dict)
    moved_count: int = 0
    failed_count: int = 0


@dataclass(slots=True)
class Joiner:
    """A session that should get its share of the spans: since when nothing new was started, and what it was offered."""

    since: float
    offered: set[SpanKey] = field(default_factory=set)
    moving_count: int = 0
    failed_count: int = 0
    """Of those offered: neither there nor on their way any more."""


@dataclass(slots=True)
class Spread:
    """A request to spread one feed, or all: feeds that are still waiting, and the result of the others."""

    waiting: set[str]
    is_of_all: bool = False
    moved_count: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """By feed: why not all of it could be moved."""


@dataclass(slots=True)
class TermMemory:
    """One owner's memory between its election and its end; see the module's docstring."""

    owner_rev: int
    epochs_issued: int = 0
    is_open: bool = False
    """The sync barrier is over."""
    awaited: set[SessionId] = field(default_factory=set)
    names: dict[str, SessionId] = field(default_factory=dict)
    """By agent: the session that has its name, if several live under it (membership.py)."""
    newcomers: set[SessionId] = field(default_factory=set)
    """Sessions whose unasked answer came live: no earlier owner can have given them a role (membership.py)."""
    retry_due: Ranking[SpanKey] = field(default_factory=Ranking)
    """Failed spans whose back-off is over, waiting for an agent."""
    forgetting: set[str] = field(default_factory=set)
    """Feeds whose rows the service is removing from the sink."""
    discovering: set[str] = field(default_factory=set)
    """Feeds whose source is being checked."""
    unapplied: dict[str, dict[str, int]] = field(default_factory=dict)
    """Feed → what the last check of its source has found not applied (effects.py)."""
    complete: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    """Feed → the spans that had applied everything at the last check of its source, and when that was (ms)."""
    last_looks: dict[str, bool] = field(default_factory=dict)
    """Feeds at their target that wait for a last check of their source; True once it has found nothing new."""
    timers: dict[str, TimerPurpose] = field(default_factory=dict)
    drains: dict[SessionId, Drain] = field(default_factory=dict)
    """Sessions whose spans leave on request, and those that are empty now and are assigned none for a while."""
    rebalances: dict[str, Rebalance] = field(default_factory=dict)
    """By feed: the request to spread its spans evenly that is under way."""
    spreads: dict[str, Spread] = field(default_factory=dict)
    """By request: the rebalances that it stands for."""
    met: set[SessionId] = field(default_factory=set)
    """Sessions that have answered: one that answers for the first time has joined (joining.py)."""
    joiners: dict[SessionId, Joiner] = field(default_factory=dict)
    is_even_due: bool = False
    """The joiners' time has come, but they have not been checked yet."""
    resting: set[SpanKey] = field(default_factory=set)
    """Spans whose move by a scheduler failed recently."""
    loads: Loads = field(default_factory=Loads)
    starting: dict[SpanKey, RoleWait] = field(default_factory=dict)
    """Spans whose primary must start, the longest first (waiting.py)."""
    draining: dict[SpanKey, RoleWait] = field(default_factory=dict)
    """Spans whose primary must drain and seal, the longest first."""
    drained_at: dict[SessionId, float] = field(default_factory=dict)
    """When a session that must drain something last ended a drain (monotonic)."""
    stops: dict[tuple[SpanKey, SessionId], float] = field(default_factory=dict)
    """Which session must stop writing before a span can be assigned, and since when (monotonic), the longest first."""
    passed_over: dict[SessionId, dict[SpanKey, Epoch]] = field(default_factory=dict)
    """Sessions that have overrun a wait for a span, up to which epoch: the owner no longer waits for them there."""
    unreviewed: deque[SpanKey] = field(default_factory=deque)
    """Spans still to review, piece by piece: all when the term begins, and those of a session that has ended."""
    sweeping: dict[SessionId, deque[SpanKey]] = field(default_factory=dict)
    """The rest of a sweep that is under way."""
    avoided: dict[SpanKey, SessionId] = field(default_factory=dict)
    """The session that had a span last and overran its time, or was refused by the sink: others are preferred."""
    divisions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(feed, table) that is being divided differently: for which request, None for the split scheduler."""
    pauses: dict[tuple[str, str], str] = field(default_factory=dict)
    """(feed, table) that is being sealed because of a pause_table: for which request."""
    maintenances: dict[SpanKey, str] = field(default_factory=dict)
    """Span whose agent maintains the sink's table: for which optimize_table request."""
    copies: dict[tuple[str, str], str] = field(default_factory=dict)
    """(feed, table) of which rows are copied from the source: for which resync_table."""

    def issue(self) -> Epoch:
        """The next epoch: numbers are the term's, so no two assignments of a term share one."""
        self.epochs_issued += 1
        return Epoch(self.owner_rev, self.epochs_issued)
