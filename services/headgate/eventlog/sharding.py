"""The partition of each fact: partition = shard, and the writer always sets it.

A shard is one owner's share of the feeds. All records of a feed are in the same partition number of sync, dispatch,
checkpoint and changefeed, so an owner reads exactly its own partitions; announce is for all and has one. Kafka's own
partitioners hash whole keys and would scatter a feed, so they are never used.
"""

from typing import Final
from zlib import crc32

from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact

ANNOUNCE: Final = Partition("announce", 0)
"""The one partition of the topic that all processes read."""

SHARDED_TOPICS: Final = ("changefeed", "checkpoint", "dispatch", "sync")
"""State topics with one partition per shard, in sorted order."""

DEADLETTER: Final = "deadletter"
"""Also one partition per shard, but no role reads it: it holds dead letters, and nothing is decided by them."""


def shard_of(feed: str, shards: int) -> int:
    """The shard of a feed, by its name: the same in every version and language (CRC-32 of its UTF-8 bytes).

    Text that UTF-8 cannot encode has a shard too, so that looking it up finds nothing instead of failing.
    """
    if shards < 1:
        raise ValueError(f"a cluster has at least one shard, not {shards}")
    return crc32(feed.encode(errors="surrogatepass")) % shards


def place(fact: Fact, shard: int) -> Placed:
    """``fact`` on its key's topic, in ``shard``'s partition."""
    topic = fact.key.topic
    return Placed(ANNOUNCE if topic == ANNOUNCE.topic else Partition(topic, shard), fact)
