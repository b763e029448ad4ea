"""A quick stand-in for a connector: a trigger records every change, a thread writes it to Kafka as Debezium would.

Debezium itself shares the broker's JVM here, so a killed broker would take it along, and it starts in ten seconds; the
campaign is about what happens behind the topics. The events have Debezium's envelope and its ways: a changed key is a
delete and a create, a delete is followed by a tombstone, decimals are texts, dates are days. Order is kept per key,
because every row has one writer, and the outbox is emptied in the order in which that writer filled it.
"""

import threading
from typing import Final

import msgspec
import psycopg
from confluent_kafka import KafkaException, Producer
from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from headgate.eventlog.connection import KafkaConnection
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.schema import SCHEMA, TABLES, VERSION, ShopColumn, ShopTable
from headgate_lab.demo.stack import TOPIC_PREFIX
from headgate_lab.embedded.clients import postgres_client

LOOK_SECONDS: Final = 0.05
FLUSH_SECONDS: Final = 600.0
"""A broker that restarts is waited for; the outbox keeps what comes in the meantime."""

JOIN_SECONDS_MAX: Final = 120.0

_OUTBOX: Final = """
CREATE SCHEMA capture;
CREATE TABLE capture.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "table" text NOT NULL,
                             key jsonb NOT NULL, row jsonb)
"""

_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION capture.{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND {old_key} <> {new_key}) THEN
    INSERT INTO capture.outbox ("table", key) VALUES ({label}, {old_key});
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO capture.outbox ("table", key, row) VALUES ({label}, {new_key}, {row});
  END IF;
  RETURN NULL;
END $$
"""

_TAKE: Final = """
WITH taken AS (DELETE FROM capture.outbox RETURNING id, "table", key, row)
SELECT "table", key::text, row::text FROM taken ORDER BY id
"""


class CaptureError(Exception):
    """Changes of the source cannot be read or written to Kafka; the message explains why."""


def install_outbox(source: Connection) -> None:
    """Record all changes from now on."""
    source.execute(_OUTBOX)
    for table in TABLES:
        capture_columns(source, table)
        source.execute(
            SQL(
                "CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION capture.{name}()"
            ).format(table=Identifier(SCHEMA, table.name), name=Identifier(table.name))
        )


def capture_columns(source: Connection, table: ShopTable) -> None:
    """Have events carry the columns that the table has now. Call it in the transaction that alters the table."""
    key = [column for column in table.columns if column.name in table.key]
    parts = {
        "name": Identifier(table.name),
        "label": Literal(table.full_name),
        "old_key": _object("OLD", key),
        "new_key": _object("NEW", key),
        "row": _object("NEW", [*table.columns, ShopColumn(VERSION, "bigint", lambda _random, _serial: None)]),
    }
    source.execute(SQL(_FUNCTION).format(**parts))


def _object(record: str, columns: list[ShopColumn]) -> Composed:
    pairs: list[Composable] = []
    for column in columns:
        value = SQL(record + ".{}").format(Identifier(column.name))
        pairs += [Literal(column.name), _as_debezium(column.sql_type.split()[0], value)]
    return SQL("jsonb_build_object({})").format(SQL(", ").join(pairs))


def _as_debezium(kind: str, value: Composed) -> Composed:
    if kind == "date":
        return SQL("({} - DATE '1970-01-01')").format(value)
    if kind == "bytea":
        return SQL("encode({}, 'base64')").format(value)
    if kind.startswith("numeric") or kind in ("double", "jsonb"):
        return SQL("({})::text").format(value)
    return value


class Capture:
    """The thread that empties the outbox. ``failure`` is the reason why it died."""

    def __init__(self, source_dsn: str, bootstrap: str) -> None:
        self.failure: Exception | None = None
        self._dsn = source_dsn
        self._producer = KafkaConnection(bootstrap).client(
            Producer,
            enable_idempotence=True,  # a retry must neither reorder nor double
            linger_ms=5,
            message_timeout_ms=int(FLUSH_SECONDS * 1000),
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-capture", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Raise CaptureError if it has died."""
        if self.failure is not None:
            raise CaptureError(f"changes do not reach Kafka any more: {self.failure}") from self.failure

    def drain(self) -> None:
        """Stop when the outbox is empty; the caller has stopped the writers. Idempotent. Raises CaptureError."""
        self._stopping.set()
        self._thread.join(scaled_seconds(JOIN_SECONDS_MAX))
        if self._thread.is_alive():
            raise CaptureError(f"the last changes did not reach Kafka within {scaled_seconds(JOIN_SECONDS_MAX):.0f} s")
        self.check()

    def _run(self) -> None:
        try:
            with postgres_client(self._dsn, name="capture") as source:
                while True:
                    last = self._stopping.is_set()
                    moved = self._move(source)
                    if last and not moved:
                        return
                    self._stopping.wait(0.0 if moved else LOOK_SECONDS)
        except (psycopg.Error, KafkaException, CaptureError) as error:
            self.failure = error

    def _move(self, source: Connection) -> bool:
        with source.transaction():
            rows = source.execute(_TAKE).fetchall()
            for table, key, row in rows:
                topic = f"{TOPIC_PREFIX}.{table}"
                raw_key = msgspec.Raw(key.encode())
                envelope = {"before": None, "after": None if row is None else msgspec.Raw(row.encode()), "op": "u"}
                if row is None:
                    envelope = {"before": raw_key, "after": None, "op": "d"}
                self._produce(topic, key, msgspec.json.encode(envelope))
                if row is None:
                    self._produce(topic, key, None)
            # Counts as taken only when Kafka has it; a thread that dies in between ends the run.
            if self._producer.flush(FLUSH_SECONDS):
                raise CaptureError(f"Kafka did not take the changes within {FLUSH_SECONDS:.0f} s")
        return bool(rows)

    def _produce(self, topic: str, key: str, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key.encode(), on_delivery=_delivered)
            except BufferError:
                self._producer.poll(LOOK_SECONDS)
            else:
                return


def _delivered(error: object, _message: object) -> None:
    if error is not None:
        raise CaptureError(f"Kafka refused a change: {error}")
