"""The changes a bench replays: Debezium JSON as the PostgreSQL connector writes it, with and without schema.

The same seed gives the same bytes, so every side reads the same topic, and what the target must hold afterwards is
known without asking the system under test: the generator keeps the last row per key.
"""

import random
import time
from collections.abc import Iterable, Iterator
from typing import Final

import confluent_kafka
import msgspec
import orjson
from confluent_kafka.admin import NewTopic

from headgate.eventlog.connection import KafkaConnection
from headgate_lab.benchmarks.shapes import SHAPES, USUAL, places

DDL: Final = "CREATE TABLE {table} (" + USUAL.ddl("postgresql") + ")"


class Mix(msgspec.Struct, frozen=True):
    """Shares of inserts and deletes among all changes; the rest are updates of random living rows."""

    inserts: float
    deletes: float


MIXES: Final[dict[str, Mix]] = {
    "insert": Mix(2 / 3, 0.0),
    "update": Mix(0.1, 0.0),
    "delete": Mix(0.4, 0.18),
    "inserts_only": Mix(1.0, 0.0),
    "of_keys": Mix(0.0, 0.3),
}
"""``insert``: two inserts to one update; and of what is not an insert, 70 % updates and 30 % deletes. ``of_keys``: 70 %
updates and 30 % deletes of the rows that are there before; a deleted one that is drawn again is inserted."""

POLL_EVERY: Final = 2_000
"""Delivery reports are served this often, so that the producer's queue never fills up."""

QUEUE_RECORDS_MAX: Final = 40_000
"""Below librdkafka's own bound of 100 000, past which produce() raises."""

TOPIC_TIMEOUT_SECONDS: Final = 30


class Expected(msgspec.Struct):
    """What the target must hold: row count and two sums over the last version of every row."""

    rows: int
    sum_ver: int
    sum_qty: int


class Workload(msgspec.Struct, frozen=True):
    """A topic's worth of changes: ``with_schema`` puts the Connect schema beside every payload.

    ``mix`` is of MIXES, ``shape`` of SHAPES. ``with_before``: updates carry the old row as well, as under PostgreSQL's
    REPLICA IDENTITY FULL. ``rows_before``: rows that the table has before, in version 1, and that changes are of; with
    the mix ``of_keys`` only.
    """

    topic: str
    changes: int
    partitions: int
    with_schema: bool
    seed: int
    mix: str = "insert"
    shape: str = "usual"
    with_before: bool = False
    rows_before: int = 0


def create_topic(bootstrap: str, topic: str, partitions: int, settings: dict[str, str] | None = None) -> None:
    """A fresh topic; raises KafkaException where it exists."""
    admin = KafkaConnection(bootstrap).admin
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings or {})
    for future in admin.create_topics([new]).values():
        future.result(TOPIC_TIMEOUT_SECONDS)


def fill_topic(bootstrap: str, workload: Workload) -> Expected:
    """Write the workload (keys spread over partitions by id) and return what a target must hold afterwards."""
    chooser = random.Random(workload.seed)  # noqa: S311 (a workload, not a secret)
    producer = KafkaConnection(bootstrap).client(
        confluent_kafka.Producer,
        enable_idempotence=True,  # a retried request must not put an older version of a row behind a newer one
        linger_ms=20,
        compression_type="lz4",
        batch_size=1 << 20,
    )
    rows = _RowsOfKeys(workload) if workload.rows_before else _Rows(workload)
    envelope = _Envelope(workload)
    for number in range(workload.changes):
        row_id, operation = rows.draw(chooser)
        rows.versions[row_id] += 1
        rows.quantities[row_id] = chooser.randrange(1_000)
        key, value = envelope.event(row_id, rows.versions[row_id], rows.quantities[row_id], operation, number)
        producer.produce(workload.topic, value, key, partition=row_id % workload.partitions)
        if number % POLL_EVERY == 0:
            producer.poll(0)
            while len(producer) > QUEUE_RECORDS_MAX:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{workload.topic}: the broker did not take the whole workload within two minutes")
    living = list(rows.living())
    return Expected(len(living), sum(rows.versions[i] for i in living), sum(rows.quantities[i] for i in living))


def rows_before(workload: Workload) -> Iterator[dict[str, object]]:
    """The rows that the table has before, as JSON has their values."""
    template = SHAPES[workload.shape].template()
    for row_id in range(workload.rows_before):
        row: dict[str, object] = orjson.loads(template % places(row_id, 1, 0, 0))
        yield row


class _Rows:
    """The rows that a workload is of, and what becomes of them."""

    def __init__(self, workload: Workload) -> None:
        self._mix = MIXES[workload.mix]
        self.versions: list[int] = []
        self.quantities: list[int] = []
        self._living: list[int] = []

    def draw(self, chooser: random.Random) -> tuple[int, bytes]:
        """The row of the next change, and its operation."""
        drawn = chooser.random()
        if not self._living or drawn < self._mix.inserts:
            self.versions.append(0)
            self.quantities.append(0)
            self._living.append(len(self.versions) - 1)
            return self._living[-1], b"c"
        at = chooser.randrange(len(self._living))
        row_id = self._living[at]
        if drawn >= self._mix.inserts + self._mix.deletes:
            return row_id, b"u"
        self._living[at] = self._living[-1]
        self._living.pop()
        return row_id, b"d"

    def living(self) -> Iterable[int]:
        """The rows that there are."""
        return self._living


class _RowsOfKeys(_Rows):
    """The same where all rows are there before."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.versions = [1] * workload.rows_before
        self.quantities = [0] * workload.rows_before
        self._is_living = bytearray(b"\1" * workload.rows_before)

    def draw(self, chooser: random.Random) -> tuple[int, bytes]:
        """See _Rows."""
        row_id, is_deleted = chooser.randrange(len(self.versions)), chooser.random() < self._mix.deletes
        operation = b"c" if not self._is_living[row_id] else b"d" if is_deleted else b"u"
        self._is_living[row_id] = operation != b"d"
        return row_id, operation

    def living(self) -> Iterable[int]:
        """See _Rows."""
        return (row_id for row_id, is_living in enumerate(self._is_living) if is_living)


def insert_event(topic: str, row_id: int, *, with_schema: bool = False) -> tuple[bytes, bytes]:
    """Key and value of one insert."""
    return _Envelope(Workload(topic, 1, 1, with_schema, 0)).event(row_id, 1, row_id % 1_000, b"c", row_id)


class _Envelope:
    """Bytes of one event; what is the same in every event is encoded once."""

    def __init__(self, workload: Workload) -> None:
        _, self.schema, self.table = workload.topic.rsplit(".", 2)
        self.with_schema = workload.with_schema
        self.with_before = workload.with_before
        fields = SHAPES[workload.shape].connect_fields
        self.row = SHAPES[workload.shape].template()
        row = {"type": "struct", "fields": fields, "optional": True, "name": f"{workload.topic}.Value"}
        source = {
            "type": "struct",
            "optional": False,
            "name": "io.debezium.connector.postgresql.Source",
            "field": "source",
        }
        source_fields = [
            {"type": "string", "optional": True, "field": name}
            for name in ("version", "connector", "name", "db", "sequence")
        ]
        source_fields += [
            {"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "txId", "lsn", "xmin")
        ]
        value_schema = {
            "type": "struct",
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                {**source, "fields": source_fields},
                {"type": "string", "optional": False, "field": "op"},
                {"type": "int64", "optional": True, "field": "ts_ms"},
            ],
            "optional": False,
            "name": f"{workload.topic}.Envelope",
            "version": 2,
        }
        key_schema = {"type": "struct", "fields": fields[:1], "optional": False, "name": f"{workload.topic}.Key"}
        self.value_head = b'{"schema":' + orjson.dumps(value_schema) + b',"payload":'
        self.key_head = b'{"schema":' + orjson.dumps(key_schema) + b',"payload":'
        self.started_ms = time.time_ns() // 1_000_000

    def event(self, row_id: int, version: int, quantity: int, operation: bytes, number: int) -> tuple[bytes, bytes]:
        row = self.row % places(row_id, version, quantity, number)
        before = b"null"
        if operation == b"d":
            before = row
        elif operation == b"u" and self.with_before:
            before = self.row % places(row_id, version - 1, quantity, number)
        payload = (
            b'{"before":%s,"after":%s,"source":{"version":"3.6.0.Final","connector":"postgresql","name":"bench",'
            b'"ts_ms":%d,"snapshot":"false","db":"bench","sequence":"[\\"%d\\",\\"%d\\"]","schema":"%s","table":"%s",'
            b'"txId":%d,"lsn":%d,"xmin":null},"transaction":null,"op":"%s","ts_ms":%d}'
        ) % (
            before,
            b"null" if operation == b"d" else row,
            self.started_ms + number // 1_000,
            number,
            number,
            self.schema.encode(),
            self.table.encode(),
            number // 10,
            number,
            operation,
            self.started_ms + number // 1_000,
        )
        key = b'{"id":%d}' % row_id
        if self.with_schema:
            return self.key_head + key + b"}", self.value_head + payload + b"}"
        return key, payload
