"""Debezium Avro on a real lane: a registry that is away, one that is there, and events that nobody can read."""

import io

import fastavro
import msgspec
import pytest

from fixtures.registry_server import RegistryServer, answering
from headgate.agent.core.executor import SpanTask
from headgate.eventlog.kafka import KafkaLog
from headgate_lab.embedded.ports import free_ports
from integration.agent.test_quarantine import executor_with_dead_letters, letters_on, log
from support.kafka_cluster import ANSWER_SECONDS
from support.waiting import eventually

from .conftest import Bed

__all__ = ["log"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

ROW = {
    "type": "record", "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "qty", "type": "int"}],
}  # fmt: skip
ENVELOPE = {
    "type": "record", "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "S", "fields": [{"name": "ts_ms", "type": "long"}]}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
SCHEMAS = {1: {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}, 2: ENVELOPE}


def written(schema_id: int, record: object) -> bytes:
    out = io.BytesIO()
    out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    schema = fastavro.parse_schema(msgspec.json.decode(msgspec.json.encode(SCHEMAS[schema_id])))
    fastavro.schemaless_writer(out, schema, record)
    return out.getvalue()


def event(number: int, *, deleted: bool = False) -> tuple[bytes, bytes]:
    row = {"id": number, "name": f"n{number}", "qty": number}
    before, after = (row, None) if deleted else (None, row)
    value = {"before": before, "after": after, "source": {"ts_ms": 5}, "op": "d" if deleted else "c"}
    return written(1, {"id": number}), written(2, value)


def of_registry(task: SpanTask, url: str) -> SpanTask:
    spec = msgspec.json.decode(task.spec)
    spec["source"] |= {"format": "debezium-avro", "registry": {"url": url}}
    return msgspec.structs.replace(task, spec=msgspec.json.encode(spec | {"on_bad_change": "quarantine"}).decode())


def test_events_wait_for_their_registry_and_only_what_is_bad_is_set_aside(bed: Bed, log: KafkaLog) -> None:
    plan = bed.table("goods")
    events = [event(number) for number in range(6)]
    key, value = event(6)
    truncated, unknown = value[:-4], b"\x00\x00\x00\x00\x63" + value[5:]
    events += [(key, truncated), (key, unknown), (key, value + b"\x00"), event(9), event(0, deleted=True)]
    for each in events:
        bed.raw(plan, *each)
    bed.producer.flush(ANSWER_SECONDS)

    (port,) = free_ports(1)
    executor = executor_with_dead_letters(bed, log)
    task = of_registry(bed.task(plan, 1), f"http://127.0.0.1:{port}")
    executor.add_table(task, prepare=False)

    def waits() -> bool:
        status = executor.status(task.id)
        return status is not None and status.error_code == "registry_unavailable"

    eventually(waits, "the table waits for its registry")
    status = executor.status(task.id)
    assert status is not None
    assert (status.retryable, bed.rows(plan), letters_on(log)) == (True, {}, {})
    assert "topic " + plan.topic in str(status.error)

    with RegistryServer(port) as registry:
        registry.answer = answering(SCHEMAS)
        eventually(lambda: executor.status(task.id).positions == {0: 11}, "all of it is dealt with")  # type: ignore[union-attr]
    assert sorted(bed.rows(plan)) == [1, 2, 3, 4, 5, 9]
    letters = {place.offset: letter for place, letter in letters_on(log).items()}
    assert {offset: letter.error_code for offset, letter in letters.items()} == dict.fromkeys(
        (6, 7, 8), "change_undecodable"
    )
    assert [letters[offset].value for offset in (6, 7, 8)] == [truncated, unknown, value + b"\x00"]
    assert f"schema id 99 is unknown to the registry at http://127.0.0.1:{port}" in letters[7].error
    assert "partition 0, offset 7" in letters[7].error
