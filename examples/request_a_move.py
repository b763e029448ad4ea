"""Ask for a table to be moved by producing one record, and read what became of it: nothing of Headgate is imported.

    python examples/request_a_move.py localhost:9092 shop public.orders agent-2

A request is a record under ``request/<id>`` on the changefeed topic, in the partition of its feed: CRC-32 of the feed's
name modulo the number of partitions. The owner answers under ``outcome/<id>`` in the same partition: ``accepted`` while
it is under way, then ``done``, ``failed`` or ``refused``, with the reason. Whoever asked then deletes the request.
"""

import argparse
import io
import json
import struct
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from zlib import crc32

import fastavro
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SCHEMAS = Path(__file__).parents[1] / "schemas"
REQUESTED = (1901, "operation_requested.v1.avsc")
"""The oldest version: everything that reads the topics understands it."""
SETTLED = (2001, "request_settled.v1.avsc")
FINAL = ("done", "failed", "refused")
SECONDS_MAX = 30.0


def encode(schema_id: int, file: str, record: dict[str, Any]) -> bytes:
    """``record`` in Confluent framing."""
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.schema.load_schema(SCHEMAS / file), record)
    return out.getvalue()


def produce(bootstrap: str, topic: str, partition: int, key: str, value: bytes | None) -> None:
    """Write one record and wait until it is acknowledged."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(
        topic, key=key, value=value, partition=partition, on_delivery=lambda error, _: failures.append(error)
    )
    if producer.flush(SECONDS_MAX) or failures[0] is not None:
        sys.exit(f"the record was not acknowledged: {failures or bootstrap}")


def outcome(consumer: Consumer, request: str, deadline: float) -> dict[str, Any]:
    """What became of the request; waits for it."""
    schema = fastavro.schema.load_schema(SCHEMAS / SETTLED[1])
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        if message.value() is None:
            continue
        if message.key().decode() == f"outcome/{request}":
            settled: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(message.value()[5:]), schema, None)
            if settled["status"] in FINAL:
                return settled
    sys.exit("no outcome in time. Check that an owner runs: `headgate coordinator list`")


def main() -> None:
    """Ask, wait, say; status 0 only if it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port of a broker")
    parser.add_argument("feed")
    parser.add_argument("table")
    parser.add_argument("agent")
    parser.add_argument("--cluster", default="headgate", help="prefix of the topics' names")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for the outcome")
    given = parser.parse_args()

    topic, request = f"{given.cluster}.changefeed", uuid.uuid4().hex
    settings = {"bootstrap.servers": given.bootstrap, "group.id": "request-a-move", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions
    except KafkaException as error:
        sys.exit(f"Kafka at {given.bootstrap}: {error.args[0].str()}")
    if not partitions:
        sys.exit(f"topic {topic} does not exist at {given.bootstrap}")
    shard = crc32(given.feed.encode()) % len(partitions)
    # From where the topic ends now: the outcome comes behind the request.
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, shard), timeout=SECONDS_MAX)
    consumer.assign([TopicPartition(topic, shard, end)])

    wanted = {
        "kind": "move_table",
        "feed": given.feed,
        "spec": None,
        "table": given.table,
        "agent": given.agent,
        "requested_by": "examples/request_a_move.py",
        "requested_ms": time.time_ns() // 1_000_000,
    }
    key = f"request/{request}"
    produce(given.bootstrap, topic, shard, key, encode(*REQUESTED, wanted))
    try:
        settled = outcome(consumer, request, time.monotonic() + given.timeout)
    finally:
        produce(given.bootstrap, topic, shard, key, None)
        consumer.close()
    print(json.dumps(settled, ensure_ascii=False))
    sys.exit(0 if settled["status"] == "done" else 1)


if __name__ == "__main__":
    main()
