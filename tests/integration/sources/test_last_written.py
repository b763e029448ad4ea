"""How far a connector has come, by the newest records of topics on a real broker."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
import urllib3
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from headgate.config.registry_spec import RegistrySpec
from headgate.config.source_spec import SourceSpec
from headgate.eventlog.connection import KafkaConnection
from headgate.sources.last_written import LastWritten, last_written
from headgate_lab.embedded.registry import EmbeddedRegistry
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_topics

pytestmark = pytest.mark.integration

FIRST_MS = 1_767_000_000_000

SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "ts_ms", "type": "long"}, {"name": "snapshot", "type": ["null", "string"]}],
            },
        },
    ],
}


def event(op: str, seconds: int, snapshot: str | None) -> dict[str, Any]:
    source = {"ts_ms": FIRST_MS + seconds * 1000, "snapshot": snapshot}
    return {"op": op, "source": source, "before": None, "after": None}


def plain(op: str, seconds: int, snapshot: str | None = None) -> bytes:
    return json.dumps(event(op, seconds, snapshot)).encode()


def with_schema(op: str, seconds: int, snapshot: str | None = None) -> bytes:
    return json.dumps({"schema": {"type": "struct"}, "payload": event(op, seconds, snapshot)}).encode()


def avro(registry: EmbeddedRegistry) -> Callable[..., bytes]:
    url, body = f"{registry.url}/subjects/last-written-value/versions", json.dumps({"schema": json.dumps(SCHEMA)})
    answer = urllib3.request(
        "POST", url, body=body, headers={"Content-Type": "application/json"}, timeout=ANSWER_SECONDS
    )
    number = int(answer.json()["id"])

    def written(op: str, seconds: int, snapshot: str | None = None) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, SCHEMA, event(op, seconds, snapshot))
        return b"\0" + number.to_bytes(4, "big") + buffer.getvalue()

    return written


@pytest.mark.parametrize("form", ["plain", "with schema", "avro"])
def test_the_newest_change_of_all_partitions_counts_and_rows_of_a_snapshot_do_not(
    kafka_bootstrap: str, kafka_prefix: str, schema_registry: EmbeddedRegistry, form: str
) -> None:
    made = {"plain": plain, "with schema": with_schema}.get(form) or avro(schema_registry)
    connection, producer = KafkaConnection(kafka_bootstrap), Producer({"bootstrap.servers": kafka_bootstrap})
    topics = {f"{kafka_prefix}a": 2, f"{kafka_prefix}b": 1, f"{kafka_prefix}empty": 1}
    make_topics(connection.admin, *(NewTopic(name, count, 1) for name, count in topics.items()))

    def write(name: str, partition: int, value: bytes | None, seconds: int) -> None:
        at = FIRST_MS + seconds * 1000
        producer.produce(f"{kafka_prefix}{name}", key=b"{}", value=value, partition=partition, timestamp=at)
        assert producer.flush(ANSWER_SECONDS) == 0

    registry = RegistrySpec(url=schema_registry.url) if form == "avro" else None
    spec = SourceSpec(topics=tuple(topics), format="debezium-avro" if registry else "debezium-json", registry=registry)

    def found(*, has_snapshot: bool = True) -> LastWritten:
        return last_written(connection, spec, topics, has_snapshot=has_snapshot)

    assert found(has_snapshot=False) == LastWritten()
    assert "has not written anything" in found().copying

    write("b", 0, made("r", 2, "first"), 2)
    write("a", 0, made("r", 2, "last_in_data_collection"), 3)
    assert "may still be copying" in found().copying, "of another table, or of changes that came since it began"
    write("a", 1, made("r", 2, "last"), 3)
    assert found() == LastWritten(None, FIRST_MS + 3_000, None), "how late the changes behind it are is not known"
    write("b", 0, made("r", 50), 51)
    assert found() == LastWritten(None, FIRST_MS + 51_000, 0)

    write("a", 0, made("c", 3), 4)
    write("a", 1, made("u", 9), 12)
    write("a", 1, made("d", 7), 8)
    write("b", 0, None, 60)
    write("b", 0, b"no event", 61)
    assert found() == LastWritten(FIRST_MS + 9_000, FIRST_MS + 61_000, 3_000)
    write("b", 0, made("r", 70, "incremental"), 71)
    assert found() == LastWritten(FIRST_MS + 9_000, FIRST_MS + 71_000, 3_000), "it is read beside the log"
    write("b", 0, made("r", 72, "true"), 73)
    again = found()
    assert again.delay_ms is None
    assert "may still be copying" in again.copying, "a second snapshot"

    ends = [TopicPartition(f"{kafka_prefix}{name}", at, OFFSET_END) for name, at in (("a", 0), ("a", 1), ("b", 0))]
    for deleted in connection.admin.delete_records(ends).values():
        deleted.result(ANSWER_SECONDS)
    assert found() == LastWritten(), "all that it wrote has expired"
    producer.close()
    connection.close()
