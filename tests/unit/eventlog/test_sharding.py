"""Which partition a fact goes to."""

import pytest

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.sharding import DEADLETTER, SHARDED_TOPICS, place, shard_of
from headgate.migration.core.kind import MIGRATION_KIND
from headgate.records.registry import KEY_FORMS
from support.eventlog_contract import ANNOUNCE, DISPATCH_1, ended, heartbeat


def test_a_feeds_shard_never_changes() -> None:
    """Fixed values: state stands where an older version put it (CRC-32 of "shop" is 0xac6a4ca2)."""
    assert [shard_of("shop", shards) for shards in (1, 2, 8)] == [0, 0, 2]
    assert {shard_of(f"feed-{n}", 8) for n in range(200)} == set(range(8))


def test_a_cluster_has_a_shard() -> None:
    with pytest.raises(ValueError, match="at least one"):
        shard_of("shop", 0)


def test_a_coordinator_reads_announce_and_every_sharded_topic_of_state() -> None:
    assert {ANNOUNCE.topic, *SHARDED_TOPICS} == set(KEY_FORMS) - {DEADLETTER, "generation", *MIGRATION_KIND.topics}
    assert COORDINATOR_KIND.topics == SHARDED_TOPICS


def test_facts_are_placed_by_shard_and_announcements_are_not() -> None:
    assert place(ended("s1").fact, 1) == ended("s1", at=DISPATCH_1)
    assert place(heartbeat(1).fact, 1) == heartbeat(1)
