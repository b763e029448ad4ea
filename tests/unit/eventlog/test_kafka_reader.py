"""KafkaReader over a consumer that fails in the middle of a poll: what came before the error is not lost with it."""

import gc
import struct
import weakref
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from headgate.eventlog.codec import Codec
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import KafkaReader
from headgate.eventlog.leaders import AskedStableEnds
from headgate.eventlog.log import Delivery, LogError, NewerSchemaError, Partition
from headgate.eventlog.partition_reader import PartitionReader
from headgate.eventlog.schema_files import schemas

GENERATION_0 = Partition("generation", 0)
NEWER = struct.pack(">bI", 0, 2799)
"""A schema id of ours that this version does not know."""


def record(offset: int, value: bytes | None = None) -> Any:
    said = {"error": None, "offset": offset, "key": b"s/reader/r", "value": value, "headers": None}
    return message(said)


def failure(code: int) -> Any:
    return message({"error": KafkaError(code), "offset": -1, "key": None, "value": None, "headers": None})


def message(said: dict[str, Any]) -> Any:
    fixed = {"topic": "headgate.generation", "partition": 0}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in (fixed | said).items()})


class Consumer:
    """Gives all its messages in one poll."""

    def __init__(self, *given: Any) -> None:
        self._given = list(given)

    def incremental_assign(self, _partitions: list[Any]) -> None: ...

    def close(self) -> None: ...

    def poll(self, _timeout: float) -> Any:
        return self._given.pop(0) if self._given else None

    def consume(self, _count: int, _timeout: float) -> list[Any]:
        given, self._given = self._given, []
        return given


def reader_of(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> KafkaReader:
    connection = KafkaConnection("127.0.0.1:1")
    real = connection.client
    monkeypatch.setattr(
        connection, "client", lambda make, **how: consumer if make is confluent_kafka.Consumer else real(make, **how)
    )
    return KafkaReader(connection, "headgate", Codec(schemas()), {GENERATION_0: 0})


def offsets(reader: KafkaReader) -> list[int]:
    return [each.offset for each in reader.poll(100, 0.0) if isinstance(each, Delivery)]


def test_an_error_is_raised_after_all_that_came_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reader = reader_of(Consumer(record(0), denied, record(1), denied), monkeypatch)
    assert offsets(reader) == [0, 1], "its positions have passed them, so nobody would read them again"
    with pytest.raises(LogError, match=r"reading headgate\.generation/0"):
        reader.poll(100, 0.0)
    assert reader.positions() == {GENERATION_0: 2}
    assert offsets(reader) == [], "once"


def test_an_error_alone_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(Consumer(failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)), monkeypatch)
    with pytest.raises(LogError):
        reader.poll(100, 0.0)


def test_nothing_is_read_behind_a_record_of_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(Consumer(record(0), record(1, NEWER), record(2)), monkeypatch)
    assert offsets(reader) == [0]
    for _ in range(2):
        with pytest.raises(NewerSchemaError):
            reader.poll(100, 0.0)
    assert reader.positions() == {GENERATION_0: 1}, "or a replay would seem to have reached its end"


def test_a_closed_reader_is_freed_at_once_and_not_by_the_garbage_collector() -> None:
    """The collector may run on the thread of an administrative client and free it, which aborts the process."""
    gc.disable()
    try:
        connection = KafkaConnection("127.0.0.1:1")
        reader = PartitionReader(connection, {Partition("t", 0): 7}, client_id="test")
        reader._asked = AskedStableEnds(connection, [Partition("t", 0)])
        freed = [weakref.ref(each) for each in (reader, reader._client, reader._asked, connection)]
        reader.close()
        del reader, connection
        assert [each() for each in freed] == [None] * 4
    finally:
        gc.enable()
