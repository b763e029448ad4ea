"""The interface of a scheduler: its name, when it is called, and what it proposes.

    view of the round ──▶ propose ──▶ moves ──▶ begun by the core, one after the other

The schedulers of a coordinator are asked in their order, and the first whose proposals can be begun has the round: what
follows would take its capacity. They are asked again at every input, and heartbeats are inputs. A scheduler remembers
nothing: what it proposed and could not be begun it may propose again, and what an owner has to remember of its own is
the core's (term.py). So whatever a scheduler proposes, no span gets a second writer: a move that is not possible
when its turn comes is skipped.

Another package adds one by an entry point of the group ``headgate.schedulers``; HEADGATE_SCHEDULERS says which there
are, in which order.
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
    """A span goes to a session: given to it if nobody has the span, else handed over by who has it."""

    key: SpanKey
    target: SessionId


class Division(msgspec.Struct, frozen=True):
    """A table is divided into so many spans, or made whole (1). It is begun if nothing else is happening to it."""

    feed: str
    table: str
    parts: int


Proposal: TypeAlias = Move | Division


class Heat(StrEnum):
    """How busy a table is, beside what can be done about it."""

    HOT = "hot"
    COLD = "cold"
    EVEN = "even"


class TableLoad(msgspec.Struct, frozen=True, order=True):
    """A table as measured: bytes per second of all its spans, how many these are, how many it could be."""

    feed: str
    table: str
    bytes_per_s: float
    parts: int
    partitions: int


class Measured(msgspec.Struct, frozen=True):
    """How busy everything was in the round of measuring that is just over: bytes per second.

    ``loads``: of every session that may be given spans. ``movable``: of its spans that can be moved now. ``tables``: by
    (feed, table). ``last_busiest`` is the session that was too busy when that was last judged, ``streak`` how often in
    a row it had been. ``heats``: by (feed, table), and in how many rounds in a row.
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
    """What a scheduler sees in one round. Nothing is changed through it but what capacity and quota have left."""

    @property
    def capacity(self) -> Capacity:
        """How much each session can take: a move takes of it."""
        ...

    @property
    def quota(self) -> FeedQuota:
        """How many spans of each feed may be set moving: one that is handed over takes of it."""
        ...

    @property
    def measured(self) -> Measured | None:
        """How busy everything is, for a scheduler that is asked when that is measured; else None."""
        ...

    def needy(self) -> Iterable[SpanKey]:
        """Spans that nobody has and somebody should, in order, those given to nobody who may still write them."""
        ...

    def writers_of(self, key: SpanKey) -> Sequence[SessionId]:
        """Sessions that may still write the span: with one of them only this one can have it, with more nobody."""
        ...

    def avoided_of(self, key: SpanKey) -> Collection[SessionId]:
        """Sessions that should have the span only if nobody else can take it."""
        ...

    def targets(self) -> Sequence[SessionId]:
        """Sessions that may be given spans, in order."""
        ...

    def is_target(self, session: SessionId) -> bool:
        """Whether the session is one of them."""
        ...

    def leaving(self) -> Sequence[SessionId]:
        """Sessions that are stopping or being emptied, in order."""
        ...

    def counts(self) -> Mapping[SessionId, int]:
        """Spans of every target; those on their way to a joiner only with it."""
        ...

    def spans_of(self, session: SessionId) -> Iterable[SpanKey]:
        """The session's spans, in order."""
        ...

    def may_move(self, key: SpanKey) -> bool:
        """Whether the span can be handed over now."""
        ...

    def plans(self) -> Iterable[tuple[str, Sequence[tuple[SpanKey, SessionId]]]]:
        """(feed, what is still to be moved, to whom) of feeds to be spread evenly on request, in order."""
        ...

    def joiners(self) -> Mapping[SessionId, int]:
        """Sessions that are to get their share, and how many spans each can be sent now."""
        ...

    def may_join(self, key: SpanKey, joiner: SessionId) -> bool:
        """Whether the span may go to the joiner: it can move, was not offered to it before, its feed allows it."""
        ...


class Asked(StrEnum):
    """What has to be so for a scheduler to be asked in a round."""

    ALWAYS = "always"
    """Nothing: it is asked after every input, and has to be cheap."""
    NEEDED = "needed"
    """A span may want an agent."""
    LEAVING = "leaving"
    """A session is stopping, or being emptied."""
    SPREADING = "spreading"
    """An operator asked to spread a feed evenly, and no agent is leaving."""
    JOINING = "joining"
    """It is time to look at sessions that are to get their share; nobody is leaving, no feed is being spread."""
    MEASURED = "measured"
    """A round of measuring loads is over, with nothing on its way to a joiner or from one who leaves."""


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler; see the module's docstring. ``summary`` is for people; ``propose`` is pure."""

    name: str
    summary: str
    propose: Callable[[View], tuple[Proposal, ...]]
    asked: Asked = Asked.ALWAYS
