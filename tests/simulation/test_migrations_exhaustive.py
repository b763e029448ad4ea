"""Every order of events of one migration, to a depth: answers, lost answers, wishes, deaths of the owner, timers.

The world is the machine and the model of a database (headgate_lab/simulation/migrations/database.py), without a role
loop. States that were met before are not followed again. Guarantee 8 is checked at every fact.
"""

import copy
from typing import Any

import msgspec

from headgate import SCHEMA_VERSION
from headgate.eventlog.log import Delivery, Partition
from headgate.migration.core import effects as fx
from headgate.migration.core.machine import MIGRATIONS, MigrationsState
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.migration import (
    MigrationKey,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationState,
    MigrationStrategy,
)
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    EffectFailed,
    EffectFinished,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)
from headgate_lab.simulation.migrations.database import Database, FencedAtDatabaseError

NOON_MS = 1_795_262_400_000
"""The wall clock stands still: no state is told from another by its times."""

DEPTH = 9
DEPTH_REVERT = 8
STEPS_MAX = 10
DEPTH_TOOL = 7
"""A tool acts by itself, so twice as much can happen at each step."""

STATES_MIN = 1_000
"""Far fewer would mean that the search does not get anywhere."""

WISHES = ((MigrationRequestKind.CANCEL, "m1"), (MigrationRequestKind.RETRY, "m1"))
WISHES_OF_REVERT = (
    (MigrationRequestKind.CANCEL, "v1"),
    (MigrationRequestKind.RETRY, "v1"),
    (MigrationRequestKind.CLEANUP, "m1"),
)


class Node:
    def __init__(self) -> None:
        self.wishes = WISHES
        self.state: MigrationsState = MIGRATIONS.new_state(0)
        self.state.level = SCHEMA_VERSION
        self.database = Database()
        self.owner_rev = 0
        self.offset = 0
        self.now = 0.0
        self.out: list[Any] = []
        self.timers: set[str] = set()

    def give(self, given: Any) -> None:
        decision = MIGRATIONS.decide(self.state, given, Now(self.now, NOON_MS))
        for fact in decision.facts:
            MIGRATIONS.evolve(self.state, fact.key, fact.value, -1)
            if isinstance(fact.key, MigrationKey) and fact.value is not None:
                self.database.check(fact.key.migration, fact.value)  # type: ignore[arg-type]
        for effect in decision.effects:
            if isinstance(effect, SetTimer):
                self.timers.add(effect.name)
            elif isinstance(effect, CancelTimer):
                self.timers.discard(effect.name)
            else:
                self.out.append(effect)

    def ask(self, kind: MigrationRequestKind, migration: str, spec: str | None = None) -> None:
        self.offset += 1
        key = MigrationRequestKey(f"r{self.offset}")
        record = MigrationRequested(kind, migration, spec, None, None, "", 0)
        MIGRATIONS.evolve(self.state, key, record, self.offset)
        self.give(Arrived(Delivery(Partition(key.topic, 0), self.offset, key, record)))

    def finish(self, effect: Any, *, is_lost: bool) -> None:
        """Run the effect to its end; ``is_lost``: all was done, but nobody knows."""
        self.out.remove(effect)
        try:
            result = list(self.database.steps("o", self.owner_rev, effect))[-1]
        except FencedAtDatabaseError:
            result = EffectFailed("fenced")
        self.give(EffectFinished(effect, EffectFailed("lost") if is_lost else result))

    def examined(self, action: str) -> None:
        """It can be done; there is nothing else to do just now."""
        (effect,) = self.out
        self.out = []
        self.give(EffectFinished(effect, fx.Examined(action, "t", "db", is_immediate=False)))

    def break_down(self, effect: Any) -> None:
        """The effect was not begun."""
        self.out.remove(effect)
        self.give(EffectFinished(effect, EffectFailed("away")))

    def tool_acts(self, *, is_heard: bool) -> None:
        """The tool makes its next step; its report may be lost."""
        report = self.database.tool_acts("m1")
        if report is not None and is_heard:
            self.give(report)

    def die(self, done: int, *, is_outlived: bool = False) -> None:
        """The owner is killed when ``done`` steps of its effects were done; the next one takes over."""
        for effect in self.out:
            steps = self.database.steps("o", self.owner_rev, effect)
            for _ in range(done):
                next(steps, None)
        self.database.process_died("o", is_outlived=is_outlived)
        self.out, self.timers = [], set()
        self.owner_rev += 1
        self.give(TermBegan(self.owner_rev))

    def tick(self) -> None:
        """Everything that is set runs out."""
        self.now += 61.0
        due, self.timers = sorted(self.timers), set()
        for name in due:
            self.give(TimerFired(name))

    def choices(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("tick", None), ("die", 0), ("die", 1), ("die", 9)]
        found += [("ask", wish) for wish in self.wishes]
        if any(table.tool_of is not None for table in self.database.tables.values()):
            found += [("tool", True), ("tool", False), ("outlive", 0), ("outlive", 9), ("says_failed", None)]
        for index in range(len(self.out)):
            found += [("finish", (index, False)), ("finish", (index, True)), ("break_down", index)]
        return found

    def follow(self, choice: tuple[str, Any]) -> "Node":
        node = copy.deepcopy(self)
        kind, argument = choice
        match kind:
            case "tick":
                node.tick()
            case "die":
                node.die(argument)
            case "outlive":
                node.die(argument, is_outlived=True)
            case "tool":
                node.tool_acts(is_heard=argument)
            case "says_failed":
                node.give(fx.ToolReported("m1", fx.ToolStatus.FAILED))
            case "ask":
                node.ask(*argument)
            case "finish":
                node.finish(node.out[argument[0]], is_lost=argument[1])
            case "break_down":
                node.break_down(node.out[argument])
        return node

    def identity(self) -> bytes:
        """What matters for what can happen next; counters that only grow do not."""
        records = [
            (name, msgspec.structs.replace(record, owner_rev=0, attempt=0, retries=min(record.retries, 2), message=""))
            for name, record in sorted(self.state.migrations.items())
        ]
        term = self.state.term
        assert term is not None
        tables = [(name, table.attempt > 0, table.copied, table.changed, table.left, table.tool_of is not None,
                   table.fence > table.tool_rev)
                  for name, table in sorted(self.database.tables.items())]  # fmt: skip
        waiting = sorted(outcome.status.value for outcome in self.state.outcomes.values())[-2:]
        kinds = [type(effect).__name__ for effect in self.out]
        return msgspec.json.encode((records, kinds, sorted(self.timers), sorted(term.uncertain), sorted(term.cleaning),
                                    sorted(term.said_failed), tables, waiting))  # fmt: skip


def submitted(strategy: MigrationStrategy, *, keep_way_back: bool = False) -> Node:
    node = Node()
    node.give(TermBegan(0))
    spec = MigrationSpec(
        statement="ALTER TABLE t ADD c int", database="db", strategy=strategy, keep_way_back=keep_way_back
    )
    node.ask(MigrationRequestKind.SUBMIT, "m1", written(spec))
    node.examined("alter")
    return node


def reverted() -> Node:
    """A migration is complete, its way back is kept, and its revert is submitted."""
    node = submitted(MigrationStrategy.ONLINE, keep_way_back=True)
    for _ in range(STEPS_MAX):
        node.tick()
        while node.out:
            node.finish(node.out[0], is_lost=False)
        if node.state.migrations["m1"].state is MigrationState.COMPLETE:
            break
    spec = MigrationSpec(statement="revert m1", database="db", strategy=MigrationStrategy.ONLINE, reverts="m1")
    node.wishes = WISHES_OF_REVERT
    node.ask(MigrationRequestKind.REVERT, "v1", written(spec))
    node.examined("revert")
    return node


def search(start: Node, migration: str, depth: int) -> set[MigrationState]:
    met, front = {start.identity()}, [start]
    ends: set[MigrationState] = set()
    for _ in range(depth):
        after: list[Node] = []
        for node in front:
            for choice in node.choices():
                child = node.follow(choice)
                ends.add(child.state.migrations[migration].state)
                identity = child.identity()
                if identity not in met:
                    met.add(identity)
                    after.append(child)
        front = after
    assert len(met) > STATES_MIN, len(met)
    return ends


def test_every_order_of_events_of_an_online_migration() -> None:
    assert search(submitted(MigrationStrategy.ONLINE), "m1", DEPTH) == set(MigrationState) - {
        MigrationState.AWAITING_APPROVAL,
        MigrationState.READY,
        MigrationState.FAILED,
    }


def test_every_order_of_events_of_a_tool() -> None:
    assert search(submitted(MigrationStrategy.PT_OSC), "m1", DEPTH_TOOL) == set(MigrationState) - {
        MigrationState.AWAITING_APPROVAL,
        MigrationState.READY,
    }


def test_every_order_of_events_of_a_revert() -> None:
    found = search(reverted(), "v1", DEPTH_REVERT)
    assert found >= {MigrationState.COMPLETE, MigrationState.CANCELLED, MigrationState.FAILED}, found
