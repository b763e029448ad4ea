"""Print the current record of every key of a control topic, one JSON object a line: confluent-kafka and fastavro alone.

    python examples/read_topics.py localhost:9092 dispatch

A value is 0x00, four bytes of schema id (big-endian), then the Avro body; `schemas/ids.json` says which id is which
schema. No value means that the key was deleted. Read committed records only: coordinators write in transactions.
"""

import argparse
import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

SCHEMAS = Path(__file__).parents[1] / "schemas"
SECONDS_MAX = 30.0
"""How long the broker may take for one answer."""


def decode(value: bytes, schemas: dict[int, Any]) -> tuple[str, Any]:
    """Name and fields of the record in ``value``. Raises ValueError for bytes that are none."""
    magic, schema_id = struct.unpack_from(">bI", value)
    if magic != 0 or schema_id not in schemas:
        raise ValueError(f"no Confluent framing, or unknown schema id: {value[:5]!r}")
    schema = schemas[schema_id]
    return schema["name"].rpartition(".")[2], fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)


def load_schemas(folder: Path = SCHEMAS) -> dict[int, Any]:
    """Schema id → parsed schema."""
    ids = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
    return {int(number): fastavro.schema.load_schema(folder / one["schema"]) for number, one in ids.items()}


def current(bootstrap: str, topic: str) -> dict[str, tuple[int, int, bytes]]:
    """Key → partition, offset and value of the newest committed record, for each key that is not deleted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-topics",  # never joined: partitions are assigned below
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        if found.error is not None:
            sys.exit(f"{topic}: {found.error}")
        partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions]
        # As far as it goes now. On a topic that is written all the time the end is never said to be reached; on a quiet
        # one the last record may stand before the end, for behind it there are marks of transactions.
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=SECONDS_MAX)[1] for each in partitions}
        consumer.assign(partitions)
        newest: dict[str, tuple[int, int, bytes]] = {}
        unread = set(ends)
        while unread:
            message = consumer.poll(SECONDS_MAX)
            if message is None:
                sys.exit(f"{topic}: nothing from {bootstrap} for {SECONDS_MAX:g} s")
            if message.error() is not None:
                if message.error().name() != "_PARTITION_EOF":
                    raise KafkaException(message.error())
                unread.discard(message.partition())
                continue
            if message.value() is None:
                newest.pop(message.key().decode(), None)
            else:
                newest[message.key().decode()] = (message.partition(), message.offset(), message.value())
            if message.offset() + 1 >= ends[message.partition()]:
                unread.discard(message.partition())
        return newest
    finally:
        consumer.close()


def main() -> None:
    """One line a key, sorted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port of a broker")
    parser.add_argument("topic", help="announce, changefeed, checkpoint, dispatch or sync (or any other control topic)")
    parser.add_argument("--cluster", default="headgate", help="prefix of the topics' names")
    given = parser.parse_args()
    schemas = load_schemas()
    try:
        newest = current(given.bootstrap, f"{given.cluster}.{given.topic}")
    except KafkaException as error:
        sys.exit(f"Kafka at {given.bootstrap}: {error.args[0].str()}")
    for key, (partition, offset, value) in sorted(newest.items()):
        name, fields = decode(value, schemas)
        line = {"key": key, "partition": partition, "offset": offset, "type": name, "value": fields}
        print(json.dumps(line, ensure_ascii=False, default=repr))


if __name__ == "__main__":
    main()
