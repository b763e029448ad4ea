"""The migration owner's draft: the state of migrations, with everything decided so far."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.core.state import MigrationsState, MigrationTerm
from headgate.migration.core.transitions import Cause, MigrationSignal, apply
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.levels import withheld
from headgate.records.migration import MigrationKey, MigrationOutcomeKey, MigrationRecorded
from headgate.runtime import draft

__all__ = ["BURST_SECONDS", "MigrationDraft"]

BURST_SECONDS: Final = (0.0, 1.0, 5.0, 10.0, 20.0)
"""Ticks that follow a submission, a start, an end and a new owner: what has become possible begins within seconds
instead of a minute."""


class MigrationDraft(draft.Draft[MigrationsState, MigrationTerm]):
    """Facts and effects of one decision (runtime/draft.py)."""

    def migration(self, name: str) -> MigrationRecorded | None:
        """The migration's record, this decision included."""
        return self.decided(MigrationKey(name), self.state.migrations.get(name))

    def record(self, name: str, record: MigrationRecorded) -> None:
        """Decide a migration's record, without fields that are not in the log's schema level."""
        self.put(MigrationKey(name), withheld(record, self.state.level))

    def migrations(self) -> Iterator[tuple[str, MigrationRecorded]]:
        """All migrations, in the order of submission."""
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
        """The latest outcome of a request."""
        return self.decided(MigrationOutcomeKey(request), self.state.outcomes.get(request))

    def cause(self, message: str = "", **more: Any) -> Cause:
        """A cause with the present time."""
        return Cause(owner_rev=self.term.owner_rev, now_ms=self.now.wall_ms, message=message, **more)

    def signal(self, name: str, signal: MigrationSignal, cause: Cause | None = None) -> MigrationRecorded:
        """Apply the transition of a signal, and return the record after it. Raises KeyError, UnknownTransitionError."""
        record = self.migration(name)
        if record is None:
            raise KeyError(name)
        changed = apply(record, signal, cause or self.cause())
        if changed is not record:
            self.record(name, changed)
        return changed

    def settle(self, request: str, status: OutcomeStatus, reason: str) -> None:
        """Decide the outcome of a request."""
        self.put_outcome(MigrationOutcomeKey(request), status, reason)

    def ask(self, name: str, effect: Any) -> None:
        """Run an effect about a migration. No other effect about it may run until it returns."""
        stamped = replace(effect, owner_rev=self.term.owner_rev)
        self.term.busy[name] = stamped
        self.add_effect(stamped)

    def burst(self) -> None:
        """Schedule several ticks soon. A burst that is under way starts again."""
        for number, seconds in enumerate(BURST_SECONDS):
            self.set_timer("burst", number, seconds)
