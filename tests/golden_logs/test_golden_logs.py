"""What earlier versions have written gives the state that it gave them: whole, and after the cleaner has been there.

``v<N>/`` holds what a Headgate of schema level N wrote. The newest level's dumps are recorded anew by ``pytest
tests/golden_logs --rewrite-golden-logs``, for review as a diff. Those of a released level are the past:
``released.json`` keeps their hashes, and those of the schema files they were written with, and nothing changes them.
``--release-golden-logs`` adds the newest level there.
"""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golden_logs.dump import DELETED, Dump, Line, read_dump, record_in
from golden_logs.histories import (
    HERE,
    RELEASED,
    ReleasedError,
    coordinator_forms,
    deletable_forms,
    hashes,
    newest_level,
    partitions_of_shard,
    rewrite,
)
from headgate.coordinator.core.machine import COORDINATOR
from headgate.eventlog.codec import CodecGarbage
from headgate.records.control import (
    FeedState,
    Liveness,
    OperationKind,
    OutcomeStatus,
    ReplicationState,
    TaskState,
    WantedState,
)
from headgate_lab.memory_log.partition import LogEntry, PartitionLog
from support.codec import decode

LEVELS = sorted(int(path.name.removeprefix("v")) for path in HERE.glob("v*") if path.is_dir())
DUMPS = sorted(HERE.glob("v*/*.tsv"))

WORDS = (Liveness, ReplicationState, TaskState, FeedState, WantedState, OperationKind, OutcomeStatus)

UNHEARD_OF = {(FeedState, FeedState.FINISHED), (FeedState, FeedState.REMOVED), (WantedState, WantedState.FINISHED)}
"""What no history comes to: no feed has an end yet, and a feed that is removed is a tombstone."""


def replayed(entries: Iterable[tuple[Any, LogEntry]], shard: int) -> str:
    """The digest after the records of one shard, partition by partition, as a reader of this version reads them."""
    state = COORDINATOR.new_state(shard)
    mine = partitions_of_shard(shard)
    for partition, entry in entries:
        if partition in mine and not isinstance(entry.key, str):
            COORDINATOR.evolve(state, entry.key, entry.value, entry.offset)
    return COORDINATOR.digest(state)


def entry_of(line: Line) -> LogEntry:
    """The line as this version's codec reads its bytes."""
    try:
        key, value = decode(line.partition.topic, line.key.encode(), line.value)
    except CodecGarbage as garbage:
        return LogEntry(line.offset, line.key, None, None, garbage.reason)
    return LogEntry(line.offset, key, value, None)


def log_of(dump: Dump) -> dict[Any, PartitionLog]:
    logs: dict[Any, PartitionLog] = {}
    for line in dump.lines:
        log = logs.setdefault(line.partition, PartitionLog())
        assert line.offset >= log.end, "a partition's records stand in the order of their offsets"
        log.entries.append(entry_of(line))
        log.end = line.offset + 1
    return logs


def entries_of(logs: dict[Any, PartitionLog]) -> list[tuple[Any, LogEntry]]:
    return [(partition, entry) for partition, log in sorted(logs.items()) for entry in log.entries]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_written_gives_the_state_it_gave(path: Path) -> None:
    dump = read_dump(path)
    logs = log_of(dump)
    shards = sorted(dump.digests)
    assert {shard: replayed(entries_of(logs), shard) for shard in shards} == dump.digests
    # The topics come in any order.
    assert {shard: replayed(reversed_topics(logs), shard) for shard in shards} == dump.digests
    before = sum(len(log.entries) for log in logs.values())
    for partition, log in logs.items():
        log.compact(partition, before=None, drop_tombstones=True)
    assert sum(len(log.entries) for log in logs.values()) < before
    assert {shard: replayed(entries_of(logs), shard) for shard in shards} == dump.digests


def reversed_topics(logs: dict[Any, PartitionLog]) -> list[tuple[Any, LogEntry]]:
    return [(partition, entry) for partition, log in sorted(logs.items(), reverse=True) for entry in log.entries]


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_bytes_say_what_stands_beside_them(path: Path) -> None:
    for line in read_dump(path).lines:
        entry = entry_of(line)
        if isinstance(entry.key, str):
            assert line.says.startswith("garbage: ")
        elif entry.value is None:
            assert line.says == DELETED
        else:
            assert record_in(line.says, entry.key.record) == entry.value, line


def test_the_newest_dumps_say_everything_that_can_be_said() -> None:
    lines = [line for path in DUMPS if path.parent.name == f"v{newest_level()}" for line in read_dump(path).lines]
    entries = [(line, entry_of(line)) for line in lines]
    said_under = {type(entry.key) for _, entry in entries if entry.value is not None}
    assert said_under == coordinator_forms()
    deleted = {type(entry.key) for line, entry in entries if line.says == DELETED}
    assert deleted == deletable_forms()
    assert any(line.says.startswith("garbage: ") for line in lines)
    words = {word for _, entry in entries if entry.value is not None for word in words_in(entry.value)}
    assert {(kind, word) for kind in WORDS for word in kind} - words == UNHEARD_OF


def words_in(record: Any) -> set[tuple[type[StrEnum], StrEnum]]:
    """Equal words of different kinds are not the same: "failed" is said of tasks, feeds and requests."""
    values = msgspec.structs.asdict(record).values()
    return {(type(value), value) for value in values if isinstance(value, StrEnum)}


@pytest.mark.parametrize("level", sorted(RELEASED))
def test_what_was_released_is_never_changed(level: str) -> None:
    found = hashes(int(level))
    changed = {name for name, value in RELEASED[level].items() if found.get(name) != value}
    assert changed == set(), f"level {level} is released: a change is a new version of the record"
    # Only a record type of its own may join a level later on (docs/adr/0008).
    assert {name for name in found if name.startswith("v")} <= RELEASED[level].keys()


def test_the_newest_level_is_dumped() -> None:
    assert newest_level() in LEVELS, "new schemas: pytest tests/golden_logs --rewrite-golden-logs, and read the diff"


@pytest.mark.parametrize("level", sorted(RELEASED))
def test_a_released_level_is_not_recorded_anew(level: str) -> None:
    with pytest.raises(ReleasedError, match="is released"):
        rewrite(int(level))


def test_a_dump_that_was_tampered_with_is_noticed() -> None:
    dump = read_dump(HERE / "v1" / "simulation.tsv")
    cut = Dump(dump.digests, tuple(line for line in dump.lines if line.partition.topic != "dispatch"))
    assert replayed(entries_of(log_of(cut)), 0) != dump.digests[0]
