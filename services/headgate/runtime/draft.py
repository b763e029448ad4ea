"""A decision in progress: records, effects and timers so far, on top of the state.

``decide`` must not change the state's records, yet one input can mean many steps: an agent dies, its spans are lost,
each gets another agent, and each agent has only so many places. A Draft collects the new record of each key, once per
key, and answers every question as if it were true already. Each service adds the questions about its own records.
"""

from typing import Any, Final, Generic, Protocol, TypeVar, cast

from headgate.records.base import Fact, Key, Record
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.fitting import fitted
from headgate.runtime.machine import CancelTimer, Decision, Now, SetTimer

__all__ = ["Draft", "TermMemory", "timer_name"]

_UNTOUCHED: Final = object()


class TermMemory(Protocol):
    """A machine's memory of one term: what it has seen, requested or started that is not in any record."""

    @property
    def owner_rev(self) -> int:
        """The term, which every record of its owner carries."""
        ...


StateT = TypeVar("StateT")
TermT = TypeVar("TermT", bound=TermMemory)
RecordT = TypeVar("RecordT", bound=Record)


class Draft(Generic[StateT, TermT]):
    """Facts and effects of one decision; see the module's docstring."""

    def __init__(self, state: StateT, term: TermT, now: Now) -> None:
        """An empty decision."""
        self.state = state
        self.term = term
        self.now = now
        self._facts: dict[Key, Record | None] = {}
        self._deletions: dict[Key, None] = {}
        self._effects: list[Any] = []

    def decided(self, key: Key, before: RecordT | None) -> RecordT | None:
        """The record that is decided for ``key`` so far; ``before``, the state's, if nothing is."""
        if key in self._deletions:
            return None
        found = self._facts.get(key, _UNTOUCHED)
        return before if found is _UNTOUCHED else cast("RecordT | None", found)

    def is_touched(self, key: Key) -> bool:
        """Whether anything is decided for ``key``."""
        return key in self._facts or key in self._deletions

    def put(self, key: Key, value: Record | None) -> None:
        """Decide a record, in the place where one of this key was decided first. None deletes it there."""
        self._deletions.pop(key, None)
        self._facts[key] = None if value is None else fitted(value)

    def put_last(self, key: Key, value: Record) -> None:
        """Decide a record, after those that are decided already."""
        self._facts.pop(key, None)
        self.put(key, value)

    def delete(self, key: Key) -> None:
        """Delete a record, after everything that is written: no other record names it by then."""
        self._facts.pop(key, None)
        self._deletions[key] = None

    def put_outcome(self, key: Key, status: OutcomeStatus, reason: str) -> None:
        """Decide the outcome of a request."""
        self.put(key, RequestSettled(self.term.owner_rev, status, reason, self.now.wall_ms))

    def add_effect(self, effect: Any) -> None:
        """Request an effect, to run after the commit."""
        self._effects.append(effect)

    def set_timer(self, kind: str, subject: Any, delay_seconds: float) -> None:
        """Request TimerFired, with the name that ``timer_name`` gives. A timer of the same name is replaced."""
        self._effects.append(SetTimer(timer_name(kind, subject), delay_seconds))

    def cancel_timer(self, kind: str, subject: Any) -> None:
        """Forget a timer; not an error if it is not set."""
        self._effects.append(CancelTimer(timer_name(kind, subject)))

    def decision(self) -> Decision:
        """Everything drafted, for the loop."""
        facts = [Fact(key, value) for key, value in self._facts.items()]
        return Decision((*facts, *(Fact(key, None) for key in self._deletions)), tuple(self._effects))


def timer_name(kind: str, subject: Any) -> str:
    """The name of a timer about ``subject``: a key, a tuple of words, one word, or an empty one."""
    if isinstance(subject, Key):
        return f"{kind}/{subject.text()}"
    if isinstance(subject, tuple):
        return "/".join((kind, *map(str, subject)))
    return kind if subject in (None, "") else f"{kind}/{subject}"
