"""A broker that has lost the ends of transactions: killed, their markers cut off its partitions, and started again.

The broker does it by itself where a partition has no leader just when the markers are sent (KAFKA-20734), which nobody
can time.
"""

import struct
from collections.abc import Collection

from headgate.eventlog.log import Partition
from headgate_lab.embedded.broker import EmbeddedKafka

PATIENT = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
"""Settings of a broker that is killed once: let back in after 9 s, and not fenced by itself on a busy machine."""

LENGTH_AT, HEAD_BYTES, ATTRIBUTES_AT, CONTROL = 8, 12, 21, 0x20


def lose_markers(broker: EmbeddedKafka, partitions: Collection[Partition]) -> None:
    """Kill the broker, cut the last batch off each partition, which must be a marker, and start it again.

    Wait before until all markers are written: a commit is answered before they are.
    """
    broker.kill()
    for partition in partitions:
        folder = broker.data_dir / "kafka" / f"{partition.topic}-{partition.number}"
        (segment,) = folder.glob("*.log")
        data = segment.read_bytes()
        last = last_marker(data)
        assert last is not None
        segment.write_bytes(data[:last])
    broker.start()


def last_marker(data: bytes) -> int | None:
    """Where the last batch begins, if it is a marker."""
    at = last = 0
    while at < len(data):
        last, at = at, at + HEAD_BYTES + struct.unpack_from(">i", data, at + LENGTH_AT)[0]
    return last if struct.unpack_from(">h", data, last + ATTRIBUTES_AT)[0] & CONTROL else None
