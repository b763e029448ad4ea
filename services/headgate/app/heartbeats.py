"""Whether a service of a cluster runs, by its next heartbeat, whose timestamp is the broker's."""

import time
from typing import Final

import msgspec

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.log import Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.eventlog.topics import topic_name
from headgate.sources.offsets import end_offsets

__all__ = ["HEARTBEAT_SECONDS", "Heartbeat", "next_heartbeat"]

_ANNOUNCE: Final = "announce"

HEARTBEAT_SECONDS: Final = 6.0
"""Longer than any service with the default lease waits between two heartbeats."""

_POLL_SECONDS: Final = 0.5


class Heartbeat(msgspec.Struct, frozen=True):
    """Its writer, from the key (``agent/a1/…``), and when the broker appended it: milliseconds since 1970."""

    key: str
    stamped_ms: int


def next_heartbeat(connection: KafkaConnection, cluster: str, seconds: float = HEARTBEAT_SECONDS) -> Heartbeat | None:
    """The next one that is written, None if none comes within ``seconds``. Raises LogError, SourceError."""
    topic = topic_name(cluster, _ANNOUNCE)
    start = {Partition(topic, 0): end_offsets(connection, {topic: 1})[topic][0]}
    deadline = time.monotonic() + seconds
    with PartitionReader(connection, start, client_id="headgate-heartbeats") as reader:
        while time.monotonic() < deadline:
            for message in reader.poll(1, _POLL_SECONDS):
                return Heartbeat((message.key() or b"").decode(errors="replace"), int(message.timestamp()[1]))
    return None
