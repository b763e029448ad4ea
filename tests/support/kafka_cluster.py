"""A Headgate cluster on a real broker, and somebody else on its topics: for tests of what the log port cannot do."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.topics import topic_name
from headgate.provisioning.time_scale import scaled_seconds
from support.codec import encode
from support.eventlog_contract import SHARDS
from support.topic_changes import FETCH_WAIT_MS, change_settings

ANSWER_SECONDS = scaled_seconds(120.0)
"""For a broker to answer, or a process that was killed to be gone, while the machine does other things as well."""


class Cluster(msgspec.Struct, frozen=True):
    """What headgate.config's settings say of a cluster."""

    bootstrap: str
    cluster: str
    shards: int = SHARDS
    replication_factor: int = 1
    cloudevents: bool = False
    kafka: Mapping[str, Any] = {}


class Foreigner:
    """Somebody else on our topics: raw bytes, and transactions left as they are."""

    def __init__(self, cluster: Cluster, **properties: Any) -> None:
        self._cluster = cluster
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, **properties})

    def put(self, partition: Partition, key: bytes | None, value: bytes | None) -> None:
        self.producer.produce(
            topic_name(self._cluster.cluster, partition.topic), partition=partition.number, key=key, value=value
        )

    def put_fact(self, placed: Placed) -> None:
        self.put(placed.partition, *encode(placed.fact))

    def flush(self) -> None:
        assert self.producer.flush(ANSWER_SECONDS) == 0

    def close(self) -> None:
        """Dropped, as our own writers are (log_writer.py): ``Producer.close`` fails on a fenced instance."""
        self.producer.purge()
        del self.producer


Foreign = Callable[..., Foreigner]
"""Makes one, given properties of its producer; it is closed when the test is over."""


def set_topic(cluster: Cluster, topic: str, **settings: str) -> None:
    """Change settings of a control topic (dots written as underscores); returns once the broker goes by them."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    change_settings(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic_name(cluster.cluster, topic), named)


def delete_before(cluster: Cluster, partition: Partition, offset: int) -> None:
    """Delete a partition's records before ``offset``; Kafka allows it only beside the policy "delete"."""
    set_topic(cluster, partition.topic, cleanup_policy="compact,delete")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    place = KafkaPartition(topic_name(cluster.cluster, partition.topic), partition.number, offset)
    for future in admin.delete_records([place]).values():
        future.result(ANSWER_SECONDS)


def first_offset(cluster: Cluster, partition: Partition) -> int:
    """Offset of the first record that is still there, whoever wrote it; -1 if there is none."""
    given = {"enable.partition.eof": True, "fetch.wait.max.ms": FETCH_WAIT_MS}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look", **given})
    consumer.assign([KafkaPartition(topic_name(cluster.cluster, partition.topic), partition.number, 0)])
    try:
        message = consumer.poll(20)
        return -1 if message is None or message.error() is not None else int(message.offset())
    finally:
        consumer.close()
