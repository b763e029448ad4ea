"""A decision while it is being made: facts and effects so far, laid over the state, so that later rules see them."""

from collections.abc import Iterator
from typing import Any, Final, cast

from msgspec.structs import replace

from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.core.state import MigrationsState, Term
from headgate.migration.core.transitions import Cause, Signal, apply
from headgate.records.base import Fact, Key, Record
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.fitting import fitted
from headgate.records.migration import MigrationKey, MigrationOutcomeKey, MigrationRecorded
from headgate.runtime.machine import CancelTimer, Decision, Now, SetTimer

__all__ = ["BURST_SECONDS", "Draft"]

_UNTOUCHED: Final = object()

BURST_SECONDS: Final = (0.0, 1.0, 5.0, 10.0, 20.0)
"""Ticks that follow a submission, a start, an end and a new owner: what has become possible begins within seconds
instead of a minute."""


class Draft:
    """Facts and effects of one decision."""

    def __init__(self, state: MigrationsState, term: Term, now: Now) -> None:
        """An empty decision."""
        self.state = state
        self.term = term
        self.now = now
        self._facts: dict[Key, Record | None] = {}
        self._effects: list[Any] = []

    def migration(self, name: str) -> MigrationRecorded | None:
        """The migration's record, this decision included."""
        found = self._facts.get(MigrationKey(name), _UNTOUCHED)
        return self.state.migrations.get(name) if found is _UNTOUCHED else cast("MigrationRecorded | None", found)

    def migrations(self) -> Iterator[tuple[str, MigrationRecorded]]:
        """All of them, in the order of submission."""
        names = {*self.state.migrations, *(key.migration for key in self._facts if isinstance(key, MigrationKey))}
        found = ((name, self.migration(name)) for name in names)
        known = [(name, record) for name, record in found if record is not None]
        yield from sorted(known, key=lambda item: (item[1].sequence, item[0]))

    def spec(self, record: MigrationRecorded) -> MigrationSpec:
        """The record's spec: it was parsed before it was accepted."""
        return parse_spec(record.spec)

    def spec_of(self, name: str) -> MigrationSpec:
        """The spec of a migration that is known. Raises KeyError."""
        record = self.migration(name)
        if record is None:
            raise KeyError(name)
        return self.spec(record)

    def outcome(self, request: str) -> RequestSettled | None:
        """What became of a request so far."""
        found = self._facts.get(MigrationOutcomeKey(request), _UNTOUCHED)
        return self.state.outcomes.get(request) if found is _UNTOUCHED else cast("RequestSettled | None", found)

    def cause(self, message: str = "", **more: Any) -> Cause:
        """A cause of now."""
        return Cause(owner_rev=self.term.owner_rev, now_ms=self.now.wall_ms, message=message, **more)

    def signal(self, name: str, signal: Signal, cause: Cause | None = None) -> MigrationRecorded:
        """Let the table answer; the migration's record after it. Raises UnknownTransitionError."""
        record = self.migration(name)
        if record is None:
            raise KeyError(name)
        changed = apply(record, signal, cause or self.cause())
        if changed is not record:
            self.put(MigrationKey(name), changed)
        return changed

    def put(self, key: Key, value: Record | None) -> None:
        """A fact; the last one of a key counts."""
        self._facts[key] = None if value is None else fitted(value)

    def settle(self, request: str, status: OutcomeStatus, reason: str) -> None:
        """What became of a request."""
        record = RequestSettled(self.term.owner_rev, status, reason, self.now.wall_ms)
        self.put(MigrationOutcomeKey(request), record)

    def ask(self, name: str, effect: Any) -> None:
        """An effect about a migration; until it returns there is no other about it."""
        stamped = replace(effect, owner_rev=self.term.owner_rev)
        self.term.busy[name] = stamped
        self._effects.append(stamped)

    def add_effect(self, effect: Any) -> None:
        """An effect about no migration that is known yet."""
        self._effects.append(effect)

    def set_timer(self, name: str, seconds: float) -> None:
        """Replaces a timer of the same name."""
        self._effects.append(SetTimer(name, seconds))

    def cancel_timer(self, name: str) -> None:
        """Not an error if it is not set."""
        self._effects.append(CancelTimer(name))

    def burst(self) -> None:
        """Several ticks soon; a burst that is under way begins again."""
        for number, seconds in enumerate(BURST_SECONDS):
            self.set_timer(f"burst/{number}", seconds)

    def decision(self) -> Decision:
        """Everything drafted."""
        return Decision(tuple(Fact(key, value) for key, value in self._facts.items()), tuple(self._effects))
