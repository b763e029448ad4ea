"""A database as far as a migration can see: what an effect does there, step by step.

It keeps the contract that strategies keep at real databases (headgate.migration.strategies.contract): every effect
first raises a fence to its owner's term, so that nothing an older owner still does there can land; an effect that is
run again finds what is there. ``changed`` counts how often a migration's change came into force. A revert takes the
table before of the migration that it reverts for its copy: that must be there, and must not be dropped then.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import parse_spec
from headgate.records.migration import FEED, Artifact, MigrationRecorded, MigrationState

SHADOW = (Artifact("table", "shadow"),)
OLD = (Artifact("table", "old"),)
BACK = (Artifact(FEED, "back"),)
COPY_STEPS = 3


class MigrationBrokenError(AssertionError):
    """Something that must hold of migrations does not: guarantee 8, or one that it rests on."""


def require(is_so: bool, what: str) -> None:
    """Raises MigrationBrokenError."""
    if not is_so:
        raise MigrationBrokenError(what)


class FencedAtDatabaseError(Exception):
    """A newer owner has taken the migration over at the database."""


@dataclass
class SimulatedTable:
    """What one migration is at the database. ``attempt`` is 0 where nothing of it runs there."""

    fence: int = -1
    attempt: int = 0
    copied: int = 0
    changed: int = 0
    left: tuple[Artifact, ...] = ()
    tool_of: str | None = None
    """The process whose child does the work, where it is not the server itself."""
    tool_rev: int = -1
    """The term in which it was started."""
    reverts: str | None = None
    """Whose table before is its copy, while it runs."""


@dataclass
class Database:
    """Migrations by id."""

    tables: dict[str, SimulatedTable] = field(default_factory=dict)

    def steps(self, owner: str, owner_rev: int, effect: Any) -> Iterator[Any]:
        """Run an effect: each ``next`` does one thing there and gives None, the last one gives the result."""
        table = self.tables.setdefault(effect.migration, SimulatedTable())

        def fenced() -> None:
            if table.fence > owner_rev:
                raise FencedAtDatabaseError

        fenced()
        table.fence = owner_rev
        yield None
        fenced()
        reverts = parse_spec(effect.record.spec).reverts
        if isinstance(effect, fx.CleanUpMigration):
            takers = [name for name, other in self.tables.items() if other.reverts == effect.migration]
            require(effect.keeps_tables or not takers, f"the table before of {effect.migration} is {takers}'s copy")
            table.left = tuple(a for a in table.left if effect.keeps_tables and a.kind != FEED)
            yield fx.CleanedUp(table.left)
        elif table.changed:
            yield fx.Completed("", table.left)
        elif isinstance(effect, fx.StartMigration) and reverts is not None:
            theirs = self.tables[reverts]
            if theirs.fence > owner_rev:
                raise FencedAtDatabaseError
            theirs.fence = owner_rev
            if not set(OLD) <= set(theirs.left):
                yield fx.Refused("the table before is gone")
                return
            # Nothing is copied, it only catches up.
            table.attempt, table.copied, table.reverts = effect.record.attempt, COPY_STEPS - 1, reverts
            yield progress(table)
        elif isinstance(effect, fx.StartMigration):
            table.attempt, table.copied, table.left = effect.record.attempt, 0, ()
            yield None
            fenced()
            table.left = SHADOW
            table.tool_of = owner if is_tool(effect.record) else None
            table.tool_rev = owner_rev
            yield progress(table)
        elif isinstance(effect, fx.CutOverMigration):
            yield None
            fenced()
            if table.reverts is not None:
                require(set(OLD) <= set(self.tables[table.reverts].left), "the table before went while it was the copy")
                self.tables[table.reverts].left = ()
            if not table.changed:  # a tool may have done it since then
                change(table, is_kept=parse_spec(effect.record.spec).keep_way_back)
            yield fx.Completed("", table.left)
        else:
            yield self._at_once(table, effect)

    def _at_once(self, table: SimulatedTable, effect: Any) -> Any:
        match effect:
            case fx.StopMigration():
                begun = BACK if table.reverts is not None else ()
                if table.reverts is not None and not set(BACK) & set(self.tables[table.reverts].left):
                    self.tables[table.reverts].left += BACK
                table.attempt, table.tool_of, table.reverts = 0, None, None
                return fx.Stopped(table.left, way_back=begun)
            case fx.WatchMigration() if is_tool(effect.record) and table.tool_of is None:
                return fx.Broke("the tool has ended", table.left)
            case fx.WatchMigration() if is_tool(effect.record):
                return fx.ToolSeen(is_live=True, artifacts=table.left)
            case fx.WatchMigration():
                table.copied = min(table.copied + 1, COPY_STEPS)
                return progress(table)
            case fx.AdoptMigration():
                return progress(table) if table.attempt else fx.NotThere()
            case _:
                raise TypeError(type(effect).__name__)

    def tool_acts(self, migration: str) -> fx.ToolReported | None:
        """A tool's next step, and its report; None where no tool is at work.

        It puts the copy in the table's place by itself, unless the migration was taken over since it was started.
        """
        table = self.tables.get(migration, SimulatedTable())
        if table.tool_of is None:
            return None
        if table.fence > table.tool_rev:
            table.tool_of = None  # its sessions were ended, and it gets no new ones
            return None
        if table.copied < COPY_STEPS:
            table.copied += 1
            return fx.ToolReported(migration, fx.ToolStatus.RUNNING, "copying", table.copied)
        change(table)
        return fx.ToolReported(migration, fx.ToolStatus.COMPLETE)

    def process_died(self, owner: str, *, is_outlived: bool = False) -> None:
        """Tools are children of their owner's process; one in a process group of its own may outlive it."""
        for table in self.tables.values():
            if table.tool_of == owner and not is_outlived:
                table.tool_of = None

    def check(self, name: str, record: MigrationRecorded) -> None:
        """Guarantee 8: a terminal state is a fact at the moment at which it is committed."""
        table = self.tables.setdefault(name, SimulatedTable())
        said_twice = record.message.startswith("duplicate DDL")
        require(table.changed <= 1, f"{name} was changed {table.changed} times")
        if record.state is MigrationState.COMPLETE and not said_twice:
            require(table.changed == 1, f"{name} is recorded complete, but was not changed")
        if record.state in (MigrationState.FAILED, MigrationState.CANCELLED):
            require(table.changed == 0, f"{name} is recorded {record.state}, but was changed")
            require(table.attempt == 0, f"{name} is recorded {record.state}, but still runs")
            require(table.tool_of is None, f"{name} is recorded {record.state}, but its tool runs")


def is_tool(record: MigrationRecorded) -> bool:
    """Whether a child of the owner's process does it."""
    return '"pt-osc"' in record.spec


def progress(table: SimulatedTable) -> fx.Progressed:
    """How far its copy is."""
    ready = table.copied >= COPY_STEPS
    stage = "ready" if ready else "copying"
    return fx.Progressed(stage, table.copied, COPY_STEPS, is_ready_to_complete=ready, artifacts=table.left)


def change(table: SimulatedTable, *, is_kept: bool = False) -> None:
    """The change comes into force; the table before is left."""
    table.changed += 1
    table.attempt, table.tool_of, table.left, table.reverts = 0, None, OLD + BACK * is_kept, None
