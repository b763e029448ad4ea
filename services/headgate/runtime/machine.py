"""The interface of a pure machine, and the types that it shares with the role loop.

A machine is three functions over a state that only it understands::

    new_state(shard) -> state
    evolve(state, key, value, offset)   # the only thing that changes state; live and in replay
    decide(state, input, now) -> Decision(facts, effects)

``decide`` may read the state but never changes what was folded from the log (a machine may keep memory of one term,
which no digest covers and which ends with it). It returns its decisions as facts, which the loop commits in one
transaction and gives to ``evolve`` (at once, so that the next decision of the turn sees them; if the commit does not
return, the whole state is thrown away). Such a fact has no offset yet and is given OFFSET_UNKNOWN; every record that is
read, and the first OwnerAnnounced of a term, has its own. A state may keep only these offsets, or replay would not give
the same state. Effects are run after the commit; their results come back as inputs.
Nothing here knows Kafka, Spark, a clock, randomness, the environment or logging. ``now`` is monotonic seconds,
``now_ms`` the wall clock for the time fields of records only.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from headgate.eventlog.log import Delivery
from headgate.records.base import Fact, Key, Record

__all__ = [
    "OFFSET_UNKNOWN",
    "Arrived",
    "CancelTimer",
    "Decision",
    "Effect",
    "EffectFailed",
    "EffectFinished",
    "HolderSilent",
    "Input",
    "Machine",
    "NoTermError",
    "Now",
    "ResignOwner",
    "SetTimer",
    "TermBegan",
    "TimerFired",
]

StateT = TypeVar("StateT")

OFFSET_UNKNOWN: Final = -1
"""The offset given to ``evolve`` with a fact that is being committed."""


class Now(msgspec.Struct, frozen=True):
    """The time as the loop saw it: ``monotonic`` seconds for durations, ``wall_ms`` for people and recorded times."""

    monotonic: float
    wall_ms: int


# --- inputs ---------------------------------------------------------------------------------------------------


class TermBegan(msgspec.Struct, frozen=True):
    """This role is now the owner: replayed to the end, announced, and ``owner_rev`` is its term."""

    owner_rev: int


class Arrived(msgspec.Struct, frozen=True):
    """A record by another process has been read and evolved."""

    delivery: Delivery


class TimerFired(msgspec.Struct, frozen=True):
    """A timer set by SetTimer has run out (late is possible, early is not)."""

    name: str


class HolderSilent(msgspec.Struct, frozen=True):
    """No sign of life of this holder was read for a lease, with the log read to an end captured after that.

    ``lease_seconds`` is the one it was judged by: announced by the holder, or the owner's setting.
    """

    holder: tuple[str, ...]
    lease_seconds: float


class EffectFailed(msgspec.Struct, frozen=True):
    """A result that every effect may have: it could not be run now, and what is true outside is not known.

    The machine requests the effect again.
    """

    reason: str


class EffectFinished(msgspec.Struct, frozen=True):
    """An effect has been run; ``result`` is of the type that effect names."""

    effect: Any
    result: Any


Input = TermBegan | Arrived | TimerFired | HolderSilent | EffectFinished


# --- effects --------------------------------------------------------------------------------------------------


class SetTimer(msgspec.Struct, frozen=True):
    """Give TimerFired(name) after ``delay_seconds``; a timer of the same name is replaced."""

    name: str
    delay_seconds: float


class CancelTimer(msgspec.Struct, frozen=True):
    """Forget a timer; not an error if it is not set."""

    name: str


class ResignOwner(msgspec.Struct, frozen=True):
    """Release the shard and stand by, behind the others. No result: the term that requested it is over."""

    request: str


class Effect(Protocol):
    """Anything else a machine wants done outside: a frozen struct that the service knows how to run."""


class NoTermError(Exception):
    """An input came before TermBegan: a machine decides only for an owner."""

    def __init__(self, given: Any) -> None:
        super().__init__(f"{type(given).__name__} before TermBegan")


class Decision(msgspec.Struct, frozen=True):
    """A machine's response to one input: facts for one transaction, effects for after it."""

    facts: tuple[Fact, ...] = ()
    effects: tuple[Any, ...] = ()


class Machine(msgspec.Struct, Generic[StateT], frozen=True):
    """A machine as values, so that the loop, the tests and the simulator drive the very same functions."""

    new_state: Callable[[int], StateT]
    evolve: Callable[[StateT, Key, Record | None, int], None]
    decide: Callable[[StateT, Any, Now], Decision]
    digest: Callable[[StateT], str]
