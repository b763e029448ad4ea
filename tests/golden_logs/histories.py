"""The histories that are recorded: the real coordinator and agent machines in the real role loop, nothing made up.

One long run of the simulation, with two shards, owners and agents that die, and an operator who asks for everything;
and some scenario scripts, named after what they show, for what the simulation does not come to.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from golden_logs.dump import Dump, lines_of
from headgate.coordinator.core.machine import COORDINATOR
from headgate.eventlog.log import Partition
from headgate.eventlog.schema_files import schema_directory, schemas
from headgate.eventlog.sharding import ANNOUNCE, SHARDED_TOPICS
from headgate.records.base import Key
from headgate.records.control import WantedState
from headgate.records.generation import GenerationMemberKey, GenerationOwnerKey
from headgate.records.keys import OwnerKey
from headgate.records.migration import MigrationMemberKey, MigrationOwnerKey
from headgate.records.registry import KEY_FORMS
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.simulation.profile import Profile
from headgate_lab.simulation.world import World
from headgate_lab.worlds.kernel import replayed
from scenarios.runner import World as Scenario

HERE: Final = Path(__file__).parent

RELEASED: Final[dict[str, dict[str, str]]] = json.loads((HERE / "released.json").read_bytes())
"""By level, as text: the SHA-256 of its dumps and of the schema files they were written with."""

SIMULATION: Final = "simulation"

SCENARIOS: Final = Path(__file__).parents[1] / "scenarios"

SCRIPTS: Final = (
    *("given_up", "rewind", "update", "balance", "drain", "split", "owner_resigns", "stopping", "prepare_deadline"),
    "pause_table",
    "resync_table",
    "optimize_table",
)
"""What the simulation does not come to, or seldom: feeds that are updated, given up, go on from elsewhere."""

FINAL: Final[set[type[Key]]] = {OwnerKey}
"""Keys that nobody ever deletes: a shard has an owner for ever."""

SEEDS_MAX: Final = 60
"""About every fourth history will do."""

HISTORIES: Final = (SIMULATION, *SCRIPTS)

WHOLE_LIFE: Final = Profile(
    seed=3,
    shards=2,
    coordinators=2,
    agents=3,
    feeds=4,
    tables=2,
    partitions=2,
    capacity=100,
    tick_seconds=0.5,
    ticks=450,
    pace=0.4,
    request_rate=0.1,
    event_rate=0.1,
    lease_seconds=5.0,
    agent_lease_seconds=10.0,
    # Everything that leaves its trace on the log; not the cleaner, who would take it away again.
    rates={
        "kill": 0.003,
        "freeze": 0.002,
        "leave": 0.004,
        "both_movers": 0.01,
        "commit_refused": 0.002,
        "commit_left_open": 0.002,
        "dangling": 0.002,
        "garbage": 0.01,
        "task_failure": 0.01,
        "effect_refused": 0.05,
    },
)


class ReleasedError(Exception):
    """What a released level has written is the past."""


def newest_level() -> int:
    """The level that this code writes."""
    return max(version.version for version in schemas().by_id.values())


def hashes(level: int) -> dict[str, str]:
    """SHA-256 of a level's dumps and of the schema files that it added."""
    dumps = sorted((HERE / f"v{level}").iterdir())
    files = sorted(schema_directory().glob(f"*.v{level}.avsc"))
    named = [(f"v{level}/{path.name}", path) for path in dumps] + [(path.name, path) for path in files]
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in named}


def release(level: int) -> None:
    """From now on nothing of a level may change."""
    text = json.dumps({**RELEASED, str(level): hashes(level)}, indent=2, sort_keys=True)
    (HERE / "released.json").write_text(text + "\n", encoding="utf-8")


def rewrite(level: int) -> None:
    """Record a level's dumps anew. Raises ReleasedError."""
    if str(level) in RELEASED:
        raise ReleasedError(f"level {level} is released, its dumps stay: a change is a new version of the record")
    folder = HERE / f"v{level}"
    folder.mkdir(exist_ok=True)
    for name in HISTORIES:
        (folder / f"{name}.tsv").write_text(record(name).text(), encoding="utf-8")


def record(name: str) -> Dump:
    """The history of that name, played now."""
    if name == SIMULATION:
        broker = _whole_life()
    else:
        scenario = Scenario()
        scenario.perform(SCENARIOS / f"{name}.txt")
        broker = scenario.broker
        # Half an hour of heartbeats shows nothing: the cleaner leaves the last of each.
        broker.compact(ANNOUNCE)
    return Dump({shard: _digest(broker, shard) for shard in range(broker.shards)}, tuple(lines_of(broker)))


def _whole_life() -> MemoryBroker:
    """The first history in which a key of every deletable form is deleted, and a feed is recorded as to be removed."""
    for seed in range(1, SEEDS_MAX):
        world = World(replace(WHOLE_LIFE, seed=seed))
        world.run()
        facts = list(_facts(world.broker))
        is_removed = any(getattr(value, "wanted", None) is WantedState.REMOVED for _, value in facts)
        if is_removed and deletable_forms() <= {form for form, value in facts if value is None}:
            return world.broker
    raise AssertionError(f"none of {SEEDS_MAX} histories deletes a key of every form and removes a feed")


def deletable_forms() -> set[type[Key]]:
    """Forms of keys on the topics that roles read, but for those that nobody ever deletes."""
    return coordinator_forms() - FINAL


def coordinator_forms() -> set[type[Key]]:
    """Forms of keys that coordinators and agents write to the topics that roles read."""
    forms = {form for topic in (ANNOUNCE.topic, *SHARDED_TOPICS) for form in KEY_FORMS[topic]}
    return forms - {GenerationOwnerKey, GenerationMemberKey, MigrationMemberKey, MigrationOwnerKey}


def _facts(broker: MemoryBroker) -> Iterator[tuple[type[Any], Any]]:
    for partition in broker.partitions():
        end = broker.end_offset(partition)
        for entry in broker.entries(partition, 0, end, end):
            if entry.committed():
                yield type(entry.key), entry.value


def partitions_of_shard(shard: int) -> tuple[Partition, ...]:
    """All that a coordinator of ``shard`` reads: announce, and its partition of every sharded topic."""
    return (ANNOUNCE, *(Partition(topic, shard) for topic in SHARDED_TOPICS))


def _digest(broker: MemoryBroker, shard: int) -> str:
    """Of the state after replay of the log itself, without bytes in between."""
    return COORDINATOR.digest(replayed(broker, COORDINATOR, partitions_of_shard(shard), shard))
