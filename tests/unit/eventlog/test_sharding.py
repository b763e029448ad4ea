"""Which partition a fact goes to."""

import pytest

from headgate.eventlog.log import Partition
from headgate.eventlog.sharding import DEADLETTER, SHARDED_TOPICS, partitions_of_shard, place, shard_of
from headgate.records.registry import KEY_FORMS
from support.eventlog_contract import ANNOUNCE, DISPATCH_1, ended, heartbeat


def test_a_feeds_shard_never_changes() -> None:
    """Fixed values: state stands where an older version put it (CRC-32 of "shop" is 0xac6a4ca2)."""
    assert [shard_of("shop", shards) for shards in (1, 2, 8)] == [0, 0, 2]
    assert {shard_of(f"feed-{n}", 8) for n in range(200)} == set(range(8))


def test_a_cluster_has_a_shard() -> None:
    with pytest.raises(ValueError, match="at least one"):
        shard_of("shop", 0)


def test_an_owner_reads_announce_and_its_partition_of_every_topic_of_state() -> None:
    assert {partition.topic for partition in partitions_of_shard(1)} == set(KEY_FORMS) - {
        DEADLETTER,
        "generation",
        "migration",
    }
    assert set(partitions_of_shard(1)) == {ANNOUNCE} | {Partition(topic, 1) for topic in SHARDED_TOPICS}


def test_facts_are_placed_by_shard_and_announcements_are_not() -> None:
    assert place(ended("s1").fact, 1) == ended("s1", at=DISPATCH_1)
    assert place(heartbeat(1).fact, 1) == heartbeat(1)
