"""A Kafka sink with one topic of two partitions, for tests: what it has, and other processes that use it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.config.crash_points import ArmedPoints, CrashPoint
from headgate.config.sink_spec import SinkSpec
from headgate.databases import address
from headgate.eventlog import transactions
from headgate.formats.change import Change, Operation
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch, Positions
from headgate.sinks.contract import ChangeBatch, Claim
from headgate.sinks.kafka.progress import ProgressRecord, partition_of, place_of, progress_key
from headgate.sinks.kafka.sink import KafkaSink
from headgate.sinks.kafka.target import TargetCluster
from integration.sinks.contract import wait_until_frozen
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import FETCH_WAIT_MS, delete_topics, make_topics

HOLDER = Path(__file__).with_name("kafka_holder.py")
RECORD_BYTES_MAX = 4096
MARKER_SECONDS_MAX = scaled_seconds(5.0)
"""For the ends of a transaction to reach its partitions: milliseconds, unless the machine is busy."""
UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def too_large(offset: int) -> Change:
    """A change that the bench's topic does not take."""
    return Change(0, offset, Operation.UPSERT, {"other": 1}, {"other": 1, "value": "x" * RECORD_BYTES_MAX}, None, 0)


def records_of(
    bootstrap: str, topic: str, isolation: str = "read_committed"
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record of a topic, as (partition, key, value), in the order of each partition."""
    found = messages_of(bootstrap, topic, isolation)
    return [(message.partition() or 0, message.key(), message.value()) for message in found]


def messages_of(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """The same with all that records have."""
    found: list[Message] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
    }
    with closing(Consumer(settings)) as consumer:
        partitions = list(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        if isolation == "read_committed":
            _await_ends(bootstrap, consumer, [TopicPartition(topic, partition) for partition in partitions])
        left = len(partitions)
        while left:
            message = consumer.poll(10)
            assert message is not None, "a transaction is open"
            if message.error() is not None:
                left -= 1
            else:
                found.append(message)
    return sorted(found, key=lambda message: message.partition() or 0)


def _await_ends(bootstrap: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """A broker answers a commit before its markers are in the partitions, and until then nobody reads what it has.

    A transaction that is open on purpose is waited for in vain.
    """
    deadline = time.monotonic() + MARKER_SECONDS_MAX
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "test"} | UNCOMMITTED)) as whole:
        for partition in partitions:
            _, end = whole.get_watermark_offsets(partition, ANSWER_SECONDS)
            while time.monotonic() < deadline and consumer.get_watermark_offsets(partition, ANSWER_SECONDS)[1] < end:
                pass


class KafkaBench:
    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        points: Path,
        partitions: int = 2,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """``options``: of the sink, as a feed has them."""
        self.options = dict(options or {})
        self.bootstrap = bootstrap
        self.table = f"{prefix}orders"
        self.progress = f"{prefix}progress"
        self.points = ArmedPoints(points)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        settings = {"max.message.bytes": str(RECORD_BYTES_MAX)}
        make_topics(self.admin, NewTopic(self.table, partitions, 1, config=settings))
        self.targets: list[TargetCluster] = []
        self.sink = self.another()

    def another(self, **options: Any) -> KafkaSink:
        """The same sink as another process has it."""
        at = address.Target(f"kafka://{self.bootstrap}")
        self.targets.append(TargetCluster(at, self.progress))
        spec = SinkSpec(type="kafka", dsn=at.dsn, **(self.options | options))
        return KafkaSink(lambda: at, options=spec, target=self.targets[-1])

    def records(self, isolation: str = "read_committed") -> list[tuple[int, bytes | None, bytes | None]]:
        """Every record of the topic, as (partition, key, value), in the order of each partition."""
        return records_of(self.bootstrap, self.table, isolation)

    def messages(self) -> list[Message]:
        """The same, with all that records have."""
        return messages_of(self.bootstrap, self.table)

    def rows(self) -> dict[int, str | None]:
        rows: dict[int, str | None] = {}
        for _, key, value in self.records():
            number = self.read(key or b"")["id"]
            if value is None:
                rows.pop(number, None)
            else:
                rows[number] = self.read(value).get("value")
        return rows

    def read(self, data: bytes) -> dict[str, Any]:
        """A key or a value."""
        found: dict[str, Any] = msgspec.json.decode(data)
        return found

    def execute(self, statement: str) -> list[tuple]:
        raise NotImplementedError

    def drop(self) -> None:
        delete_topics(self.admin, self.table)

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        """As a restored cluster would be: nobody holds what it says."""
        target = self.targets[0]
        place = place_of(claim, self.table)
        rows = target.ledger.read(self.table).rows[place]
        for holder in {row.holder for row in rows.values()} - {""}:
            target.end(holder)
        to = epoch or claim.epoch
        facts = [
            ProgressRecord(
                partition_of(self.table),
                progress_key(place, partition),
                msgspec.json.encode(msgspec.structs.replace(rows[partition], next=offset, epoch=(to.owner_rev, to.n))),
            )
            for partition, offset in positions.items()
        ]
        with target.claiming("restore") as producer:
            producer.commit("", (), facts)

    def run(self, batch: ChangeBatch, variables: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """A process that applies the batch and prints what became of it."""
        packed = msgspec.msgpack.encode(batch).hex()
        return subprocess.Popen(
            [sys.executable, str(HOLDER), self.bootstrap, self.progress, packed, json.dumps(self.options)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(variables or {})},
        )

    def freeze_at(self, point: CrashPoint, batch: ChangeBatch) -> "subprocess.Popen[str]":
        self.points.arm(point)
        return wait_until_frozen(self.run(batch, self.points.variables))

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        return self.freeze_at(CrashPoint.ROWS_SENT, batch)

    def size(self) -> int:
        return len(self.records())

    @contextmanager
    def answers_lost(self) -> Iterator[None]:
        """Whether the commit was made is not known either."""
        with patch.object(transactions, "COMMIT_SECONDS_MAX", 0.0):
            yield

    def close(self) -> None:
        for target in self.targets:
            target.close()
