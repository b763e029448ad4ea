"""A cluster in memory whose owners answer every request at once, and the command line opened on it."""

import itertools
import json
import random
import time
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import pytest

import headgate.app
import headgate.cli
from headgate.app import cluster
from headgate.config.feed import parse_feed
from headgate.eventlog.log import Partition, Placed
from headgate.generation.changelog.core.planning import first_map
from headgate.generation.core.state import chunks_of
from headgate.migration.core.spec import MigrationSpec, written
from headgate.records.base import Fact, Key, Record
from headgate.records.control import RequestSettled, SpanPlan
from headgate.records.generation import (
    ChunkKey,
    GenerationOutcomeKey,
    GenerationOwnerKey,
    GenerationPhase,
    GenerationRecorded,
    GenerationRequestKey,
    KeyLoad,
    PolicyRequestKey,
    ReaderKey,
    ReaderReported,
    SetKey,
    SetRecorded,
    StreamLoad,
    WriterAdmitted,
    WriterKey,
    WriterReported,
)
from headgate.records.keys import AgentKey, FeedKey, OutcomeKey, OwnerKey, RequestKey
from headgate.records.migration import (
    MigrationApprovalKey,
    MigrationKey,
    MigrationOutcomeKey,
    MigrationOwnerKey,
    MigrationRequestKey,
    MigrationStrategy,
)
from headgate.records.timestamps import (
    RingKey,
    RingNode,
    RingRecorded,
    TimestampGeneration,
    TimestampLeft,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
    TimestampsRequestKey,
)
from headgate.runtime import requests
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.memory_log.partition import LogEntry, PartitionLog
from support import build
from support.migration_records import recorded

RecordT = TypeVar("RecordT", bound=Record)

DATABASE: Final = "db"
ALTER: Final = "alter table items add column note text"
FEED: Final = json.dumps(
    {
        "feed": "shop",
        "source": {"topics": ["shop.public.items"], "format": "debezium-json"},
        "sink": {"type": "postgresql", "dsn": "host=localhost", "table": "public.items"},
    }
)
LAKE: Final = json.dumps(
    {
        "feed": "lake",
        "source": {"topics": ["shop.public.items"], "format": "debezium-json"},
        "sink": {"type": "delta", "dsn": "file:///lake", "table": "public.items"},
    }
)


class Owners(MemoryBroker):
    """A cluster whose owners answer every request at once, with the same outcome."""

    def __init__(self) -> None:
        super().__init__(shards=2)
        self.outcome: RequestSettled | None = None
        self.on_committed = self._answer
        for shard in range(self.shards):
            for owner in (OwnerKey(shard), GenerationOwnerKey(shard)):
                self.put(owner, build.owner_announced(schema_version=2, level=2))
        self.put(AgentKey("a1", "s1"), build.agent_announced())
        self.put(MigrationOwnerKey(0), build.owner_announced(schema_version=2, level=2))
        for shard in range(self.shards):
            for key, value in known():
                self.put(key, value, shard)

    def put(self, key: Key, value: Record | None, shard: int = 0) -> None:
        self.append(Placed(Partition(key.topic, 0 if key.topic == "announce" else shard), Fact(key, value)), 2)

    def add_topic(self, topic: str) -> None:
        """A topic that the cluster in memory does not have."""
        self._logs |= {Partition(topic, shard): PartitionLog() for shard in range(self.shards)}

    def written(self) -> int:
        """How many records the log has."""
        return sum(map(self.end_offset, self.partitions()))

    def requested(self, kind: type[RecordT]) -> list[RecordT]:
        """Every record of that kind, in the order of each partition."""
        return [
            entry.value
            for partition in self.partitions()
            for entry in self.entries(partition, 0, self.end_offset(partition), 10_000)
            if isinstance(entry.value, kind)
        ]

    def left_over(self) -> int:
        """How many requests are still on the log."""
        held = {
            key: entry.value
            for partition in self.partitions()
            for entry in self.entries(partition, 0, self.end_offset(partition), 10_000)
            if outcome_of(key := entry.key) is not None
        }
        return sum(value is not None for value in held.values())

    def _answer(self, partition: Partition, entry: LogEntry) -> None:
        outcome = outcome_of(entry.key)
        if outcome is not None and entry.value is not None and self.outcome is not None:
            self.append(Placed(Partition(outcome.topic, partition.number), Fact(outcome, self.outcome)), 2)


def outcome_of(key: Key | str) -> Key | None:
    match key:
        case RequestKey():
            return OutcomeKey(key.request)
        case MigrationRequestKey() | MigrationApprovalKey():
            return MigrationOutcomeKey(key.request)
        case GenerationRequestKey() | PolicyRequestKey() | TimestampsRequestKey():
            return GenerationOutcomeKey(key.set, key.request)
    return None


def known() -> Iterator[tuple[Key, Record]]:
    """Two feeds, a change log, a timestamp set and a migration that can be asked about."""
    plan = SpanPlan(span="public.items", topic="shop.public.items", table="public.items", start={0: 0})
    yield FeedKey("shop"), build.feed_recorded(spec=parse_feed(FEED).to_json(), spans=(plan,))
    yield FeedKey("lake"), build.feed_recorded(spec=parse_feed(LAKE).to_json(), spans=(plan,))
    log = first_map(8, 1, random.Random(1).getrandbits)  # noqa: S311 (ids, not secrets)
    generation = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, (), "", 0)
    yield ChunkKey("s", 1, 0), chunks_of(log, 0)[0]
    yield SetKey("s"), SetRecorded(0, "t", None, 8, 1, (generation,), (WriterAdmitted("w", 1, is_over=False),))
    load = StreamLoad(str(log.streams[0].id), 1_000, 10.0, (KeyLoad(-5, 1), KeyLoad(5, 1)))
    yield WriterKey("s", "w", 1), WriterReported(1, 0, -1, False, (load,), time.time_ns() // 1_000_000)
    yield ReaderKey("s", "r1"), ReaderReported(0, 0)
    yield TimestampReaderKey("t", "r2"), TimestampLeft(0, 0)
    yield RingKey("t", 5), RingRecorded(0, (RingNode("a", 1, 12, (-50, 50)),))
    yield TimestampSetKey("t"), TimestampSetRecorded(0, 1_000, 0, (TimestampGeneration(5, 1, None, (), ""),))
    yield (
        MigrationKey("m1"),
        recorded(written(MigrationSpec(statement=ALTER, database=DATABASE, strategy=MigrationStrategy.DIRECT))),
    )


@cache
def _import_commands() -> None:
    """A command that is imported while its cluster is replaced here would keep that one for all later tests."""
    for package in (headgate.cli, headgate.app):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def answering_owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """The cluster that every command of this process opens from here on. Waiting for an owner takes no time."""
    _import_commands()
    broker = Owners()

    def opened(_settings: object) -> Any:
        log = broker.client()
        log.close = lambda: None  # type: ignore[attr-defined]
        return log

    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(requests, "time", clock)  # each look at the clock is a second
    monkeypatch.setattr(cluster, "open_log", opened)
    monkeypatch.setattr(cluster, "cluster_settings", lambda _flags: SimpleNamespace(prefix="headgate."))
    monkeypatch.setattr(cluster, "check_takes_connections", lambda _bootstrap: None)
    return broker
