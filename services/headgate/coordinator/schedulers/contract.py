"""The interface of a scheduler: its name, when it is called, and what it proposes.

    view of the round ──▶ propose ──▶ moves ──▶ started by the core, one after the other

A coordinator calls its schedulers in their order, and the first whose proposals can be started has the round: the next
ones would take its capacity. They are called again at every input, and heartbeats are inputs. A scheduler keeps no
state: it may propose again what could not be started, and what an owner has to remember for it is kept by the core
(term.py). So whatever a scheduler proposes, no span gets a second writer: a move that is impossible when its turn comes
is skipped.

Another package adds one by an entry point of the group ``headgate.schedulers``; HEADGATE_SCHEDULERS lists the
schedulers in their order.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from headgate.coordinator.schedulers.capacity import Capacity, FeedQuota
from headgate.records.keys import SpanKey

__all__ = ["Asked", "Division", "Heat", "Measured", "Move", "Proposal", "Scheduler", "SessionId", "TableLoad", "View"]

SessionId: TypeAlias = tuple[str, str]
"""(agent, session)."""


class Move(msgspec.Struct, frozen=True):
    """A span goes to a session: assigned to it if no agent has the span, else handed over by the present one."""

    key: SpanKey
    target: SessionId


class Division(msgspec.Struct, frozen=True):
    """A table is divided into so many spans, or made whole (1). It is started if nothing else happens to the table."""

    feed: str
    table: str
    parts: int


Proposal: TypeAlias = Move | Division


class Heat(StrEnum):
    """How busy a table is, in view of what can be done about it."""

    HOT = "hot"
    COLD = "cold"
    EVEN = "even"


class TableLoad(msgspec.Struct, frozen=True, order=True):
    """A table as measured: bytes per second of all its spans, how many spans it has, how many it could have."""

    feed: str
    table: str
    bytes_per_s: float
    parts: int
    partitions: int


class Measured(msgspec.Struct, frozen=True):
    """How busy everything was in the last round of measuring: bytes per second.

    ``loads``: of every session that may be assigned spans. ``movable``: of its spans that can be moved now. ``tables``:
    by (feed, table). ``last_busiest`` is the session that was too busy when that was last judged, ``streak`` for how
    many rounds in a row. ``heats``: by (feed, table), and for how many rounds in a row.
    """

    loads: Mapping[SessionId, float]
    movable: Mapping[SessionId, Mapping[SpanKey, float]]
    tables: Mapping[tuple[str, str], TableLoad]
    heats: Mapping[tuple[str, str], tuple[Heat, int]]
    last_busiest: SessionId | None
    streak: int

    def streak_with(self, busiest: SessionId | None) -> int:
        """Rounds in a row in which that session was too busy, this one included."""
        if busiest is None:
            return 0
        return self.streak + 1 if busiest == self.last_busiest else 1


class View(Protocol):
    """What a scheduler sees in one round. Schedulers change nothing through it except remaining capacity and quota."""

    @property
    def capacity(self) -> Capacity:
        """How much each session can take: each move uses some of it."""
        ...

    @property
    def quota(self) -> FeedQuota:
        """How many spans of each feed may start to move: each hand-over uses some of it."""
        ...

    @property
    def measured(self) -> Measured | None:
        """How busy everything is, for a scheduler that is called after a round of measuring; else None."""
        ...

    def needy(self) -> Iterable[SpanKey]:
        """Spans that have no agent and need one, in order, except those that must wait for another writer to stop."""
        ...

    def writers_of(self, key: SpanKey) -> Sequence[SessionId]:
        """Sessions that may still write the span: if there is one, only it can have the span; if more, none can."""
        ...

    def avoided_of(self, key: SpanKey) -> Collection[SessionId]:
        """Sessions that should have the span only if no other can take it."""
        ...

    def targets(self) -> Sequence[SessionId]:
        """Sessions that may be assigned spans, in order."""
        ...

    def is_target(self, session: SessionId) -> bool:
        """Whether the session is one of them."""
        ...

    def leaving(self) -> Sequence[SessionId]:
        """Sessions that are stopping or being emptied, in order."""
        ...

    def counts(self) -> Mapping[SessionId, int]:
        """Spans of every target; those on their way to a joiner count only there."""
        ...

    def spans_of(self, session: SessionId) -> Iterable[SpanKey]:
        """The session's spans, in order."""
        ...

    def may_move(self, key: SpanKey) -> bool:
        """Whether the span can be handed over now."""
        ...

    def plans(self) -> Iterable[tuple[str, Sequence[tuple[SpanKey, SessionId]]]]:
        """(feed, its remaining moves with their targets) of feeds to spread evenly on request, in order."""
        ...

    def joiners(self) -> Mapping[SessionId, int]:
        """Sessions that should get their share, and how many spans each can be sent now."""
        ...

    def may_join(self, key: SpanKey, joiner: SessionId) -> bool:
        """Whether the span may go to the joiner: it can move, was not offered to it before, its feed allows it."""
        ...


class Asked(StrEnum):
    """The condition under which a scheduler is called in a round."""

    ALWAYS = "always"
    """None: it is called after every input, and has to be cheap."""
    NEEDED = "needed"
    """A span may need an agent."""
    LEAVING = "leaving"
    """A session is stopping, or being emptied."""
    SPREADING = "spreading"
    """An operator asked to spread a feed evenly, and no agent is leaving."""
    JOINING = "joining"
    """It is time to check the sessions that should get their share; no agent is leaving, no feed is being spread."""
    MEASURED = "measured"
    """A round of measuring loads is over, and nothing is on its way to a joiner or from an agent that leaves."""


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler; see the module's docstring. ``summary`` is for people; ``propose`` is pure."""

    name: str
    summary: str
    propose: Callable[[View], tuple[Proposal, ...]]
    asked: Asked = Asked.ALWAYS
