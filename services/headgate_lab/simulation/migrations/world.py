"""Migrations under crashes: the real machine and role loop, a log and a database in memory, random faults.

Owners are killed, frozen and thawed at every step of every effect; the database fails before and after it has done
what it was asked for. Guarantee 8 is checked at every record that is committed. Then the faults stop, and everything
must come to an end.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from headgate.eventlog.log import Partition
from headgate.migration.core import effects as fx
from headgate.migration.core.effects import ToolReported, ToolStatus
from headgate.migration.core.kind import MIGRATION_KIND
from headgate.migration.core.machine import MIGRATIONS, MigrationsState
from headgate.migration.core.spec import MigrationSpec, parse_spec, written
from headgate.migration.core.state import TERMINAL
from headgate.records.control import OutcomeStatus
from headgate.records.migration import (
    FEED,
    MigrationKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationState,
    MigrationStrategy,
)
from headgate.runtime.machine import EffectFailed
from headgate.runtime.role import TermEffect
from headgate_lab.simulation.migrations.database import Database, FencedAtDatabaseError, require
from headgate_lab.worlds.kernel import OwnerProcess, OwnerWorld

__all__ = ["MigrationWorld"]

TOPIC: Final = Partition("migration", 0)
LEASE_SECONDS: Final = 2.0
STEP_SECONDS: Final = 0.25
TOOL_CHANCE: Final = 0.1
"""That a tool makes its next step in a step of the world's: a migration takes some seconds."""

FAULTY_STEPS: Final = 600
CALM_STEPS: Final = 4_000
MIGRATIONS_COUNT: Final = 5


class MigrationWorld(OwnerWorld[MigrationsState]):
    """Two processes, and a database at which each effect is several steps; both fail while ``is_faulty``."""

    def __init__(self, seed: int) -> None:
        """A world without an owner yet, in which nothing was asked for."""
        super().__init__(MIGRATION_KIND, MIGRATIONS, lease_seconds=LEASE_SECONDS)
        self.random = random.Random(seed)  # noqa: S311 - a history is its seed
        self.broker.on_committed = self._committed
        self.database = Database()
        self.is_faulty = True
        self.running: dict[str, list[tuple[TermEffect, Iterator[Any]]]] = defaultdict(list)
        self.frozen_steps: Counter[str] = Counter()
        self.births = 0
        self.requests = 0
        self.records: dict[str, MigrationRecorded] = {}
        self.steps = 0

    def run(self) -> None:
        """The whole history. Raises MigrationBrokenError."""
        for step in range(FAULTY_STEPS):
            if step % 60 == 20 and step // 60 < MIGRATIONS_COUNT:
                self.submit(step // 60)
            if step % 60 == 50:
                self.revert(step // 60)
            self.step()
        self.is_faulty = False
        for _ in range(CALM_STEPS):
            self.step()
            if self.is_calm():
                break
        self._judge()

    def _judge(self) -> None:
        """What must be so once everything was left alone for long."""
        state = self.state()
        submitted = [name for name in state.migrations if name.startswith("m")]
        require(len(submitted) == MIGRATIONS_COUNT, f"of {MIGRATIONS_COUNT} migrations {submitted} are recorded")
        for name, record in state.migrations.items():
            # A clean-up whose answer was lost may have left less.
            left = set(self.database.tables[name].left)
            require(left <= set(record.artifacts), f"{name} has left {left}, which its record does not have")
            is_kept = any(artifact.kind == FEED for artifact in record.artifacts)
            require(not (_is_changed_since(state, name) and is_kept), f"{name} can be reverted no more")
            reverts = parse_spec(record.spec).reverts
            if reverts is not None and record.state is MigrationState.COMPLETE:
                require(state.migrations[reverts].artifacts == (), f"{reverts} would drop what its revert has")
        unfinished = [name for name, record in state.migrations.items() if record.state not in TERMINAL]
        require(not unfinished, f"{unfinished} have not ended")
        require(all(name in state.outcomes for name in state.requests), "a request has no outcome")
        accepted = [name for name, outcome in state.outcomes.items() if outcome.status is OutcomeStatus.ACCEPTED]
        require(not accepted, f"{accepted} still wait")
        owner = self.serving()
        require(owner is not None, "an owner is there")
        if owner is not None:
            require(owner.role.digest() == MIGRATIONS.digest(state), "the owner's state is not that of the log")

    def is_calm(self) -> bool:
        """Whether everything that was asked for has come to its end."""
        owner = self.serving()
        if owner is None:
            return False
        view = owner.role.view
        return (
            len(view.requests) == self.requests
            and all(record.state in TERMINAL for record in view.migrations.values())
            and all(name in view.outcomes for name in view.requests)
            and not any(outcome.status is OutcomeStatus.ACCEPTED for outcome in view.outcomes.values())
            and not any(
                _is_changed_since(view, name) and any(artifact.kind == FEED for artifact in record.artifacts)
                for name, record in view.migrations.items()
            )
            and not (view.term and view.term.busy)
        )

    def _committed(self, partition: Partition, entry: Any) -> None:
        if partition != TOPIC:
            return
        if not isinstance(entry.key, MigrationKey) or entry.value is None:
            return
        record, name = entry.value, entry.key.migration
        before = self.records.get(name)
        self.records[name] = record
        if before is None or before.state is not record.state:
            self.database.check(name, record)
        running = [r for r in self.records.values() if r.state == "running"]
        require(len({r.table for r in running}) == len(running), "two migrations of one table run")

    def submitted(self, owner: OwnerProcess[MigrationsState], effect: TermEffect) -> None:
        """An owner begins an effect; it is done a step of the world's at a time."""
        steps = (
            iter([fx.Examined("alter", _table_of(effect.effect), "db", is_immediate=False)])
            if isinstance(effect.effect, fx.ExamineMigration)
            else self.database.steps(owner.name, effect.owner_rev, effect.effect)
        )
        self.running[owner.name].append((effect, steps))

    def _step_effects(self, name: str) -> None:
        for effect, steps in list(self.running[name]):
            result = self._answer(steps)
            if result is not None:
                self.running[name].remove((effect, steps))
                self.owners[name].role.finish(effect, result)

    def _answer(self, steps: Iterator[Any]) -> Any:
        """What becomes of one more step of an effect; None while it runs."""
        if self.is_faulty and self.random.random() < 0.05:
            return EffectFailed("no answer")
        try:
            result = next(steps)
        except FencedAtDatabaseError:
            return EffectFailed("fenced")
        # The answer may be lost although everything was done.
        is_lost = result is not None and self.is_faulty and self.random.random() < 0.05
        return EffectFailed("answer lost") if is_lost else result

    def ask(self, kind: MigrationRequestKind, name: str, spec: str | None = None) -> None:
        """An operator's request."""
        self.requests += 1
        record = MigrationRequested(kind, name, spec, None, None, "sim", 0)
        self.write(MigrationRequestKey(f"r{self.requests}"), record)

    def submit(self, number: int) -> None:
        """A migration of one of three tables, by either strategy."""
        chance = self.random
        strategy = chance.choice([MigrationStrategy.ONLINE, MigrationStrategy.PT_OSC])
        spec = MigrationSpec(
            statement=f"ALTER TABLE t{chance.randrange(3)} change {number}",
            database="db",
            strategy=strategy,
            allow_concurrent=chance.random() < 0.5,
            keep_way_back=strategy is MigrationStrategy.ONLINE and chance.random() < 0.5,
            retain_artifacts_seconds=chance.choice([5.0, 86_400.0]),
        )
        self.ask(MigrationRequestKind.SUBMIT, f"m{number}", written(spec))

    def revert(self, number: int) -> None:
        """Of any that is complete; it may be refused, as one that is not the last of its table."""
        complete = sorted(name for name, record in self.records.items() if record.state is MigrationState.COMPLETE)
        if complete:
            name = self.random.choice(complete)
            spec = MigrationSpec(
                statement=f"revert {name}", database="db", strategy=MigrationStrategy.ONLINE, reverts=name
            )
            self.ask(MigrationRequestKind.REVERT, f"v{number}", written(spec))

    def step(self) -> None:
        """A step of the world's clock: faults, tools, and each owner's turn."""
        self.steps += 1
        self.now += STEP_SECONDS
        if self.is_faulty:
            self._fault()
        self._tools_act()
        while len(self.owners) < 2:
            self.births += 1
            self.start(f"o{self.births}")
        for name in sorted(self.owners):
            if self.frozen_steps[name] > 0:
                self.frozen_steps[name] -= 1
                continue
            self._step_effects(name)
            self.turn(name, 3)

    def _tools_act(self) -> None:
        """Tools continue whatever becomes of their owners, and report to the one that started them, if it hears it."""
        for name, table in sorted(self.database.tables.items()):
            owner = self.owners.get(table.tool_of or "")
            if self.random.random() > TOOL_CHANCE or (report := self.database.tool_acts(name)) is None:
                continue
            if self.is_faulty and self.random.random() < 0.03:
                report = ToolReported(name, ToolStatus.FAILED, message="by its own report")
            if owner is not None and not self.frozen_steps[owner.name] and self.random.random() > 0.1:
                owner.role.give(report)

    def _fault(self) -> None:
        chance = self.random
        for name in sorted(self.owners):
            draw = chance.random()
            if draw < 0.01:
                # What it has sent may still be done by the server after its death.
                for _, steps in self.running[name]:
                    if chance.random() < 0.5:
                        self._finish_at_server(steps)
                self.kill(name)
            elif draw < 0.02:
                self.frozen_steps[name] = chance.randrange(1, 60)
        if chance.random() < 0.03:
            kind = chance.choice(
                [MigrationRequestKind.CANCEL, MigrationRequestKind.RETRY, MigrationRequestKind.CLEANUP]
            )
            self.ask(kind, chance.choice(sorted({f"m{chance.randrange(MIGRATIONS_COUNT)}", *self.records})))

    def _finish_at_server(self, steps: Iterator[Any]) -> None:
        try:
            next(steps, None)
        except FencedAtDatabaseError:
            return

    def kill(self, name: str) -> OwnerProcess[MigrationsState]:
        """An owner's process dies; the tools that it has started may outlive it."""
        self.running.pop(name, None)
        self.database.process_died(name, is_outlived=self.random.random() < 0.5)
        return super().kill(name)


def _table_of(effect: fx.ExamineMigration) -> str:
    return effect.spec.statement.split()[2] if effect.reverted is None else effect.reverted.table


def _is_changed_since(state: MigrationsState, name: str) -> bool:
    record = state.migrations[name]
    return any(
        other.table == record.table and other.state == "complete" and other.ended_ms > record.ended_ms
        for other in state.migrations.values()
    )
